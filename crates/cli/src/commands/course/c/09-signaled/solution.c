/* Exercise 9: many sends, few completions. See README.md. */
#include "course.h"

#include <stdio.h>
#include <string.h>

/* So many requests fit into the send queue of course->qp; one in EVERY is signaled. */
enum { DEPTH = 16, EVERY = 8 };

/* Waits for a completion, which frees all requests up to it. */
static int wait_for_one(struct course *course)
{
	struct ibv_wc wc;
	int n;
	while ((n = ibv_poll_cq(course->cq, 1, &wc)) == 0)
		;
	return n < 0 ? -1 : (int)wc.status;
}

/* Sends the numbers 0 to count - 1, a message of four bytes each. 0 when all are sent. */
int send_many(struct course *course, int count)
{
	int room = DEPTH, open = 0, error;

	for (int i = 0; i < count; i++) {
		if (room == 0) {
			if ((error = wait_for_one(course)))
				return error;
			room += EVERY;
			open--;
		}
		int last = i % EVERY == EVERY - 1 || i == count - 1;
		uint32_t number = i;
		struct ibv_sge sge = { (uintptr_t)&number, sizeof(number), 0 };
		struct ibv_send_wr wr = {
			.wr_id = i,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_INLINE | (last ? IBV_SEND_SIGNALED : 0),
			.sg_list = &sge,
			.num_sge = 1,
		};
		struct ibv_send_wr *bad;
		error = ibv_post_send(course->qp, &wr, &bad);
		if (error) {
			fprintf(stderr, "message %d: %s\n", i, strerror(error));
			return error;
		}
		room--;
		open += last;
	}
	for (; open > 0; open--)
		if ((error = wait_for_one(course)))
			return error;
	return 0;
}
