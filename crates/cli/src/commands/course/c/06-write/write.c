/* Exercise 6: write into the peer's memory. See README.md. */
#include "course.h"

#include <stdio.h>
#include <string.h>

/* Writes the bytes of course->buffer into the end of the peer's memory, so that its last byte is your
 * last byte. 0 when they are there. */
int put(struct course *course)
{
	struct ibv_sge sge = { (uintptr_t)course->buffer, course->length, course->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge,
		.num_sge = 1,
	};
	struct ibv_send_wr *bad;
	wr.wr.rdma.remote_addr = course->peer.addr + course->peer.length;
	wr.wr.rdma.rkey = course->mr->rkey;

	int error = ibv_post_send(course->qp, &wr, &bad);
	if (error) {
		fprintf(stderr, "ibv_post_send: %s\n", strerror(error));
		return error;
	}
	struct ibv_wc wc;
	int n;
	while ((n = ibv_poll_cq(course->cq, 1, &wc)) == 0)
		;
	return n > 0 ? (int)wc.status : n;
}
