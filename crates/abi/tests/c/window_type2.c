/* Memory windows of type 2: bound and invalidated by work requests, in their order, for one queue pair; invalidated by
 * the peer's SEND with invalidate. */
#include "pair.h"

enum { BINDABLE = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, WRITE = IBV_ACCESS_REMOTE_WRITE };

static struct ibv_send_wr bind_wr(struct ibv_mw *mw, uint32_t rkey, struct ibv_mr *mr, void *addr, uint64_t length,
	int access)
{
	return (struct ibv_send_wr){ .wr_id = 5, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { mw, rkey, { mr, (uintptr_t)addr, length, access } } };
}

static struct ibv_send_wr invalidate_wr(uint32_t rkey)
{
	return (struct ibv_send_wr){ .wr_id = 6, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED,
		.invalidate_rkey = rkey };
}

static void post(struct side *side, struct ibv_send_wr wr, enum ibv_wc_opcode opcode)
{
	struct ibv_send_wr *bad;
	CHECK(!ibv_post_send(side->qp, &wr, &bad));
	expect_success(side->cq, wr.wr_id, opcode);
}

/* Fails when executed: the queue pair goes to ERR, and what is behind is flushed. */
static void expect_bind_error(struct pair *pair, struct ibv_send_wr wr)
{
	struct ibv_send_wr behind = { .wr_id = 8, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	wr.next = &behind;
	wr.send_flags = 0;
	CHECK(!ibv_post_send(pair->far.qp, &wr, &bad));
	struct ibv_wc wc = wait_wc(pair->far.cq);
	CHECK(wc.status == IBV_WC_MW_BIND_ERR && wc.wr_id == wr.wr_id && wc.vendor_err);
	wc = wait_wc(pair->far.cq);
	CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == 8 && state_of(pair->far.qp) == IBV_QPS_ERR);
	mend_pair(pair);
}

int main(void)
{
	struct pair pair = make_pair();
	struct side third = make_side(pair.pd, NULL);
	struct ibv_device_attr device;
	CHECK(!ibv_query_device(pair.context, &device) && device.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B);
	char *memory = aligned_alloc(4096, 4096);
	CHECK(memory);
	memset(memory, 0, 4096);
	memset(pair.near.buffer, 0x5a, 4096);
	struct ibv_mr *mr = ibv_reg_mr(pair.pd, memory, 4096, BINDABLE);
	struct ibv_mw *mw = ibv_alloc_mw(pair.pd, IBV_MW_TYPE_2);
	CHECK(mr && mw && mw->type == IBV_MW_TYPE_2);

	/* The program chooses the last byte of the key. */
	uint32_t key = ibv_inc_rkey(mw->rkey);
	post(&pair.far, bind_wr(mw, key, mr, memory + 1000, 100, WRITE), IBV_WC_BIND_MW);
	EXPECT_REACHED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory + 1000, 100, key);
	CHECK(memory[999] == 0 && memory[1000] == 0x5a && memory[1099] == 0x5a && memory[1100] == 0);
	CHECK(ibv_dereg_mr(mr) == EBUSY);
	post(&pair.far, invalidate_wr(key), IBV_WC_LOCAL_INV);
	memset(memory, 0, 4096);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory + 1000, 8, key);

	/* Zero-based, under another key; the key of before is stale. */
	uint32_t zero_based = ibv_inc_rkey(key);
	post(&pair.far, bind_wr(mw, zero_based, mr, memory + 64, 64, WRITE | IBV_ACCESS_ZERO_BASED), IBV_WC_BIND_MW);
	EXPECT_REACHED(&pair, IBV_WR_RDMA_WRITE, 56, 8, zero_based);
	CHECK(memory[119] == 0 && memory[120] == 0x5a && memory[127] == 0x5a && memory[128] == 0);
	post(&pair.far, invalidate_wr(zero_based), IBV_WC_LOCAL_INV);
	memset(memory, 0, 4096);

	/* A window is for the queue pair that bound it. (Resetting that one closes it, so the others' attempts come last.) */
	post(&pair.far, bind_wr(mw, key, mr, memory, 64, WRITE), IBV_WC_BIND_MW);
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	CHECK(!ibv_modify_qp(pair.near.qp, &reset, IBV_QP_STATE));
	to_init(pair.near.qp);
	to_rts(pair.near.qp, third.qp->qp_num);
	to_rts(third.qp, pair.near.qp->qp_num);
	CHECK(reach(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory, 8, key) == IBV_WC_REM_ACCESS_ERR);
	CHECK(state_of(third.qp) == IBV_QPS_ERR && memory[0] == 0);
	CHECK(!ibv_modify_qp(third.qp, &reset, IBV_QP_STATE));
	to_init(third.qp);
	CHECK(ibv_dereg_mr(mr) == EBUSY);
	mend_pair(&pair);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory, 8, key);

	/* Opened, told, closed in one list: the peer that is told by the SEND in between finds it open until then. */
	CHECK(!post_recv(&pair.near, 50, 8192, 64) && !post_recv(&pair.near, 51, 8192, 64));
	struct ibv_sge told = sge_of(&pair.far, 0, 4);
	struct ibv_send_wr list[2] = { bind_wr(mw, key, mr, memory, 64, WRITE),
		{ .wr_id = 7, .sg_list = &told, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED } }, *bad;
	list[0].next = &list[1];
	CHECK(!ibv_post_send(pair.far.qp, list, &bad));
	expect_success(pair.near.cq, 50, IBV_WC_RECV);
	EXPECT_REACHED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory, 64, key);
	expect_success(pair.far.cq, 5, IBV_WC_BIND_MW);
	expect_success(pair.far.cq, 7, IBV_WC_SEND);

	/* The peer closes it with its last message. */
	CHECK(!post_recv(&pair.far, 60, 8192, 64));
	struct ibv_sge last = sge_of(&pair.near, 0, 4);
	struct ibv_send_wr send = { .wr_id = 9, .sg_list = &last, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_INV,
		.send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = key };
	post(&pair.near, send, IBV_WC_SEND);
	struct ibv_wc wc = wait_wc(pair.far.cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 60 && wc.wc_flags & IBV_WC_WITH_INV && wc.invalidated_rkey == key);
	memset(memory, 0, 4096);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory, 8, key);

	/* What a peer cannot invalidate: a region, and what is closed. */
	uint32_t not_invalidatable[] = { mr->rkey, key, 0x12345678 };
	for (int i = 0; i < 3; i++) {
		CHECK(!post_recv(&pair.far, 61, 8192, 64));
		send.invalidate_rkey = not_invalidatable[i];
		CHECK(!ibv_post_send(pair.near.qp, &send, &bad));
		wc = wait_wc(pair.near.cq);
		CHECK(wc.status == IBV_WC_REM_ACCESS_ERR);
		wc = wait_wc(pair.far.cq);
		CHECK(wc.status != IBV_WC_SUCCESS && wc.wr_id == 61 && state_of(pair.far.qp) == IBV_QPS_ERR);
		mend_pair(&pair);
	}

	/* Refused at once. */
	struct ibv_mw *type_1 = ibv_alloc_mw(pair.pd, IBV_MW_TYPE_1);
	CHECK(type_1);
	struct ibv_send_wr refused[] = {
		bind_wr(type_1, ibv_inc_rkey(type_1->rkey), mr, memory, 64, WRITE),
		bind_wr(NULL, key, mr, memory, 64, WRITE),
		bind_wr(mw, key ^ 0x100, mr, memory, 64, WRITE),
		bind_wr(mw, key, NULL, memory, 64, WRITE),
		bind_wr(mw, key, mr, memory, 64, IBV_ACCESS_MW_BIND),
	};
	for (int i = 0; i < 5; i++)
		CHECK(ibv_post_send(pair.far.qp, &refused[i], &bad) == EINVAL && bad == &refused[i]);

	/* Refused when executed. */
	expect_bind_error(&pair, invalidate_wr(key));
	expect_bind_error(&pair, invalidate_wr(mr->rkey));
	expect_bind_error(&pair, invalidate_wr(type_1->rkey));
	expect_bind_error(&pair, bind_wr(mw, key, mr, memory + 4090, 7, WRITE));
	expect_bind_error(&pair, bind_wr(mw, key, pair.far.mr, pair.far.buffer, 7, WRITE));
	post(&pair.far, bind_wr(mw, key, mr, memory, 64, WRITE), IBV_WC_BIND_MW);
	struct ibv_send_wr again = bind_wr(mw, ibv_inc_rkey(key), mr, memory, 64, WRITE);
	expect_bind_error(&pair, again);

	/* Destroying the queue pair closes its windows. */
	to_rts(third.qp, third.qp->qp_num);
	post(&third, bind_wr(mw, key, mr, memory, 64, WRITE), IBV_WC_BIND_MW);
	CHECK(ibv_dereg_mr(mr) == EBUSY);
	destroy_side(&third);
	CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_mw(mw) && !ibv_dealloc_mw(type_1));

	destroy_pair(&pair);
	free(memory);
	puts("window_type2: ok");
	return 0;
}
