/* Exercise 7: tell the peer that the data is there. See README.md. */
#include "course.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

/* Writes the bytes of course->buffer to the beginning of the peer's memory, and tells the peer
 * `number` when they are there. 0 when it is done. */
int put_and_tell(struct course *course, uint32_t number)
{
	struct ibv_sge sge = { (uintptr_t)course->buffer, course->length, course->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = number,
		.sg_list = &sge,
		.num_sge = 1,
	};
	struct ibv_send_wr *bad;
	wr.wr.rdma.remote_addr = course->peer.addr;
	wr.wr.rdma.rkey = course->peer.rkey;

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
