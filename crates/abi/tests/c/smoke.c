/* Every kind of RC operation between two queue pairs of one process, byte for byte. */
#include <arpa/inet.h>
#include "check.h"

static void fill(char *buffer, size_t length, unsigned seed)
{
	for (size_t i = 0; i < length; i++)
		buffer[i] = (char)((i * 31 + seed) ^ (i >> 8));
}

static void post(struct side *side, struct ibv_send_wr *wr, struct ibv_sge *sge, uint32_t offset, uint32_t length)
{
	struct ibv_send_wr *bad;
	*sge = (struct ibv_sge){ (uintptr_t)side->buffer + offset, length, side->mr->lkey };
	wr->sg_list = sge;
	wr->num_sge = 1;
	wr->send_flags |= IBV_SEND_SIGNALED;
	CHECK(!ibv_post_send(side->qp, wr, &bad));
}

int main(void)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd && pd->context == context);
	struct side a = make_side(pd, NULL), b = make_side(pd, NULL);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	to_rts(a.qp, b.qp->qp_num);
	to_rts(b.qp, a.qp->qp_num);

	struct ibv_sge sge;
	uint64_t remote = (uintptr_t)b.buffer;
	for (uint32_t length = 0; length <= 300000; length = length * 3 + 1) {
		fill(a.buffer, length, length);
		memset(b.buffer, 0, length + 1);
		CHECK(!post_recv(&b, 7, 0, BUFFER));
		struct ibv_send_wr send = { .wr_id = 1, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htonl(0x01020304) };
		post(&a, &send, &sge, 0, length);
		struct ibv_wc wc = wait_wc(b.cq);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.wr_id == 7 && wc.byte_len == length);
		CHECK(wc.wc_flags == IBV_WC_WITH_IMM && wc.imm_data == htonl(0x01020304));
		CHECK(wc.qp_num == b.qp->qp_num && wc.src_qp == a.qp->qp_num);
		CHECK(!memcmp(a.buffer, b.buffer, length) && b.buffer[length] == 0);
		expect_success(a.cq, 1, IBV_WC_SEND);

		fill(a.buffer, length, length + 1);
		struct ibv_send_wr write = { .wr_id = 2, .opcode = IBV_WR_RDMA_WRITE };
		write.wr.rdma.remote_addr = remote + 5;
		write.wr.rdma.rkey = b.mr->rkey;
		post(&a, &write, &sge, 0, length);
		expect_success(a.cq, 2, IBV_WC_RDMA_WRITE);
		CHECK(!memcmp(a.buffer, b.buffer + 5, length));

		fill(b.buffer, length, length + 2);
		struct ibv_send_wr read = { .wr_id = 3, .opcode = IBV_WR_RDMA_READ };
		read.wr.rdma.remote_addr = remote;
		read.wr.rdma.rkey = b.mr->rkey;
		post(&a, &read, &sge, 500000, length);
		expect_success(a.cq, 3, IBV_WC_RDMA_READ);
		CHECK(!memcmp(a.buffer + 500000, b.buffer, length));
	}

	/* Atomics: 8 bytes of the host's byte order. */
	*(uint64_t *)b.buffer = 40;
	struct ibv_send_wr add = { .wr_id = 4, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD };
	add.wr.atomic.remote_addr = remote;
	add.wr.atomic.rkey = b.mr->rkey;
	add.wr.atomic.compare_add = 2;
	post(&a, &add, &sge, 64, 8);
	expect_success(a.cq, 4, IBV_WC_FETCH_ADD);
	CHECK(*(uint64_t *)(a.buffer + 64) == 40 && *(uint64_t *)b.buffer == 42);
	struct ibv_send_wr swap = { .wr_id = 5, .opcode = IBV_WR_ATOMIC_CMP_AND_SWP };
	swap.wr.atomic.remote_addr = remote;
	swap.wr.atomic.rkey = b.mr->rkey;
	swap.wr.atomic.compare_add = 42;
	swap.wr.atomic.swap = UINT64_C(0x1122334455667788);
	post(&a, &swap, &sge, 64, 8);
	expect_success(a.cq, 5, IBV_WC_COMP_SWAP);
	CHECK(*(uint64_t *)(a.buffer + 64) == 42 && *(uint64_t *)b.buffer == UINT64_C(0x1122334455667788));

	/* Inline data is copied by ibv_post_send: the buffer may change at once, and needs no lkey. */
	char text[] = "inline data of no region";
	struct ibv_sge inl = { (uintptr_t)text, sizeof(text), 0xdeadbeef };
	struct ibv_send_wr send_inline = { .wr_id = 6, .sg_list = &inl, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED, .imm_data = htonl(9) }, *bad;
	send_inline.wr.rdma.remote_addr = remote + 100;
	send_inline.wr.rdma.rkey = b.mr->rkey;
	CHECK(!post_recv(&b, 8, 0, 0));
	CHECK(!ibv_post_send(a.qp, &send_inline, &bad));
	memset(text, 'x', sizeof(text));
	struct ibv_wc wc = wait_wc(b.cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == sizeof(text));
	CHECK(wc.imm_data == htonl(9) && !strcmp(b.buffer + 100, "inline data of no region"));
	expect_success(a.cq, 6, IBV_WC_RDMA_WRITE);

	/* A wrong rkey: remote access error here, and the queue is flushed. */
	struct ibv_send_wr wrong = { .wr_id = 10, .opcode = IBV_WR_RDMA_WRITE };
	wrong.wr.rdma.remote_addr = remote;
	wrong.wr.rdma.rkey = b.mr->rkey ^ 0x5a5a;
	post(&a, &wrong, &sge, 0, 64);
	wc = wait_wc(a.cq);
	CHECK(wc.status == IBV_WC_REM_ACCESS_ERR && wc.wr_id == 10 && wc.qp_num == a.qp->qp_num);
	wrong.wr_id = 11;
	post(&a, &wrong, &sge, 0, 64);
	wc = wait_wc(a.cq);
	CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == 11);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(!ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init));
	CHECK(attr.qp_state == IBV_QPS_ERR && a.qp->state == IBV_QPS_ERR);
	CHECK(init.send_cq == a.cq && init.cap.max_send_sge >= 2 && init.qp_type == IBV_QPT_RC);

	destroy_side(&a);
	destroy_side(&b);
	CHECK(!ibv_dealloc_pd(pd));
	CHECK(!ibv_close_device(context));
	puts("smoke: ok");
	return 0;
}
