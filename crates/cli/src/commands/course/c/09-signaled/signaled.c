/* Exercise 9: many sends, few completions. See README.md. */
#include "course.h"

#include <stdio.h>
#include <string.h>

/* So many requests fit into the send queue of course->qp. */
enum { DEPTH = 16 };

/* Sends the numbers 0 to count - 1, a message of four bytes each. 0 when all are sent. */
int send_many(struct course *course, int count)
{
	for (int i = 0; i < count; i++) {
		uint32_t number = i;
		struct ibv_sge sge = { (uintptr_t)&number, sizeof(number), 0 };
		struct ibv_send_wr wr = {
			.wr_id = i,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_INLINE,
			.sg_list = &sge,
			.num_sge = 1,
		};
		struct ibv_send_wr *bad;
		int error = ibv_post_send(course->qp, &wr, &bad);
		if (error) {
			fprintf(stderr, "message %d: %s\n", i, strerror(error));
			return error;
		}
	}
	return 0;
}
