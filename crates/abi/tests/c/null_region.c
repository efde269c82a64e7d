/* ibv_alloc_null_mr: a local piece that reads as zeros and swallows what comes. */
#include "pair.h"

int main(void)
{
	struct pair pair = make_pair();
	struct ibv_mr *null_mr = ibv_alloc_null_mr(pair.pd);
	CHECK(null_mr && null_mr->lkey && null_mr->pd == pair.pd);
	memset(pair.near.buffer, 0x5a, 4096);
	memset(pair.far.buffer, 0x33, 4096);

	/* Zeros between bytes of the program. */
	struct ibv_sge list[2] = { { 0x1234, 100, null_mr->lkey }, sge_of(&pair.near, 0, 28) };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = list, .num_sge = 2, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED, .wr.rdma = { (uintptr_t)pair.far.buffer, pair.far.mr->rkey } }, *bad;
	CHECK(!ibv_post_send(pair.near.qp, &wr, &bad));
	expect_success(pair.near.cq, 1, IBV_WC_RDMA_WRITE);
	CHECK(pair.far.buffer[0] == 0 && pair.far.buffer[99] == 0);
	CHECK(pair.far.buffer[100] == 0x5a && pair.far.buffer[127] == 0x5a && pair.far.buffer[128] == 0x33);

	/* A READ of which only the end is wanted. */
	wr.wr_id = 2;
	wr.opcode = IBV_WR_RDMA_READ;
	list[0] = (struct ibv_sge){ 0, 128, null_mr->lkey };
	list[1] = sge_of(&pair.near, 2000, 8);
	CHECK(!ibv_post_send(pair.near.qp, &wr, &bad));
	expect_success(pair.near.cq, 2, IBV_WC_RDMA_READ);
	CHECK(pair.near.buffer[1999] == 0x5a && pair.near.buffer[2000] == 0x33 && pair.near.buffer[2008] == 0x5a);

	/* A received message that is thrown away. */
	struct ibv_sge sink = { -128ull, 64, null_mr->lkey };
	struct ibv_recv_wr recv = { .wr_id = 3, .sg_list = &sink, .num_sge = 1 }, *bad_recv;
	CHECK(!ibv_post_recv(pair.far.qp, &recv, &bad_recv));
	CHECK(do_one(&pair.near, IBV_WR_SEND, sge_of(&pair.near, 0, 64), 0, 0) == IBV_WC_SUCCESS);
	struct ibv_wc wc = wait_wc(pair.far.cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 3 && wc.byte_len == 64);

	/* It is local: no peer reaches it, no window opens it, nothing can be changed about it. */
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_READ, 0, 8, null_mr->lkey);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_WRITE, 0, 8, null_mr->rkey);
	CHECK(ibv_rereg_mr(null_mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 7) == IBV_REREG_MR_ERR_INPUT);
	CHECK(ibv_dealloc_pd(pair.pd) == EBUSY && !ibv_dereg_mr(null_mr));

	destroy_pair(&pair);
	puts("null_region: ok");
	return 0;
}
