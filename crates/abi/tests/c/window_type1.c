/* Memory windows of type 1: ibv_bind_mw gives each bind a new key, moves and closes the window. */
#include "pair.h"

enum { BINDABLE = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, WRITE = IBV_ACCESS_REMOTE_WRITE,
	READ = IBV_ACCESS_REMOTE_READ };

/* `far` binds one of its windows and waits for that. */
static void bind(struct pair *pair, struct ibv_mw *mw, struct ibv_mr *mr, void *addr, uint64_t length, int access)
{
	struct ibv_mw_bind request = { .wr_id = 5, .send_flags = IBV_SEND_SIGNALED,
		.bind_info = { mr, (uintptr_t)addr, length, access } };
	CHECK(!ibv_bind_mw(pair->far.qp, mw, &request));
	expect_success(pair->far.cq, 5, IBV_WC_BIND_MW);
}

/* A bind that is only found to be wrong when it is executed. */
static void expect_bind_error(struct pair *pair, struct ibv_mw *mw, struct ibv_mr *mr, void *addr, uint64_t length,
	int access)
{
	struct ibv_mw_bind request = { .wr_id = 6, .bind_info = { mr, (uintptr_t)addr, length, access } };
	CHECK(!ibv_bind_mw(pair->far.qp, mw, &request));
	struct ibv_wc wc = wait_wc(pair->far.cq);
	CHECK(wc.status == IBV_WC_MW_BIND_ERR && wc.wr_id == 6 && wc.vendor_err);
	CHECK(state_of(pair->far.qp) == IBV_QPS_ERR);
	mend_pair(pair);
}

int main(void)
{
	struct pair pair = make_pair();
	struct ibv_device_attr device;
	CHECK(!ibv_query_device(pair.context, &device) && device.max_mw > 0);
	CHECK(device.device_cap_flags & IBV_DEVICE_MEM_WINDOW);
	char *memory = aligned_alloc(4096, 4096);
	CHECK(memory);
	memset(memory, 0, 4096);
	memset(pair.near.buffer, 0x5a, 4096);
	struct ibv_mr *mr = ibv_reg_mr(pair.pd, memory, 4096, BINDABLE);
	struct ibv_mw *mw = ibv_alloc_mw(pair.pd, IBV_MW_TYPE_1);
	CHECK(mr && mw && mw->pd == pair.pd && mw->type == IBV_MW_TYPE_1 && mw->context == pair.context);
	CHECK(!ibv_alloc_mw(pair.pd, 3) && errno == EINVAL);

	/* Closed at first; the region itself gives peers nothing. */
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory, 8, mw->rkey);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory, 8, mr->rkey);

	/* Bound: opens exactly its bytes, for what it says. */
	uint32_t first = mw->rkey;
	bind(&pair, mw, mr, memory + 1000, 100, WRITE);
	CHECK(mw->rkey != first && mw->rkey >> 8 == first >> 8);
	EXPECT_REACHED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory + 1000, 100, mw->rkey);
	CHECK(memory[999] == 0 && memory[1000] == 0x5a && memory[1099] == 0x5a && memory[1100] == 0);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory + 999, 8, mw->rkey);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory + 1093, 8, mw->rkey);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_READ, (uintptr_t)memory + 1000, 8, mw->rkey);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory + 1000, 8, first);
	CHECK(ibv_dereg_mr(mr) == EBUSY);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, BINDABLE) == IBV_REREG_MR_ERR_INPUT);

	/* Moved, shrunk, and with another right: the key of before is stale. */
	uint32_t stale = mw->rkey;
	bind(&pair, mw, mr, memory, 64, READ);
	EXPECT_REACHED(&pair, IBV_WR_RDMA_READ, (uintptr_t)memory, 64, mw->rkey);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_READ, (uintptr_t)memory, 65, mw->rkey);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory + 1000, 8, stale);
	memset(pair.near.buffer, 0x5a, 4096);

	/* No bytes: closed. */
	bind(&pair, mw, NULL, NULL, 0, 0);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_READ, (uintptr_t)memory, 8, mw->rkey);

	/* Refused at once. */
	struct ibv_pd *other_pd = ibv_alloc_pd(pair.context);
	struct ibv_mr *other_mr = ibv_reg_mr(other_pd, memory, 4096, BINDABLE);
	struct ibv_mw *type_2 = ibv_alloc_mw(pair.pd, IBV_MW_TYPE_2);
	CHECK(other_pd && other_mr && type_2);
	struct ibv_mw_bind request = { .bind_info = { NULL, 1, 1, WRITE } };
	CHECK(ibv_bind_mw(pair.far.qp, mw, &request) == EINVAL);
	request.bind_info = (struct ibv_mw_bind_info){ other_mr, (uintptr_t)memory, 8, WRITE };
	CHECK(ibv_bind_mw(pair.far.qp, mw, &request) == EPERM);
	request.bind_info = (struct ibv_mw_bind_info){ mr, (uintptr_t)memory, 8, IBV_ACCESS_MW_BIND };
	CHECK(ibv_bind_mw(pair.far.qp, mw, &request) == EINVAL);
	request.bind_info.mw_access_flags = WRITE | IBV_ACCESS_ZERO_BASED;
	CHECK(ibv_bind_mw(pair.far.qp, mw, &request) == EINVAL);
	request.bind_info.mw_access_flags = WRITE;
	CHECK(ibv_bind_mw(pair.far.qp, type_2, &request) == EINVAL);

	/* Refused when executed: range, the region's rights. */
	expect_bind_error(&pair, mw, mr, memory + 4000, 97, WRITE);
	expect_bind_error(&pair, mw, mr, memory - 1, 8, WRITE);
	struct ibv_mr *closed = ibv_reg_mr(pair.pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mr *readable = ibv_reg_mr(pair.pd, memory, 4096, IBV_ACCESS_MW_BIND);
	CHECK(closed && readable);
	expect_bind_error(&pair, mw, closed, memory, 8, READ);
	expect_bind_error(&pair, mw, readable, memory, 8, WRITE);
	bind(&pair, mw, readable, memory, 8, READ);
	EXPECT_REACHED(&pair, IBV_WR_RDMA_READ, (uintptr_t)memory, 8, mw->rkey);
	CHECK(ibv_dereg_mr(readable) == EBUSY);

	/* Without a signal no completion, but in order: the write behind the bind finds the window. */
	request = (struct ibv_mw_bind){ .bind_info = { mr, (uintptr_t)memory, 64, WRITE } };
	CHECK(!ibv_bind_mw(pair.far.qp, mw, &request) && !ibv_dereg_mr(readable));
	EXPECT_REACHED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory, 64, mw->rkey);

	/* Freed while bound: closed. */
	stale = mw->rkey;
	CHECK(ibv_dealloc_pd(pair.pd) == EBUSY && !ibv_dealloc_mw(mw));
	memset(memory, 0, 4096);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory, 8, stale);
	for (int i = 0; i < 4096; i++)
		CHECK(memory[i] == 0);

	CHECK(!ibv_dereg_mr(mr) && !ibv_dereg_mr(closed) && !ibv_dereg_mr(other_mr) && !ibv_dealloc_mw(type_2));
	CHECK(!ibv_dealloc_pd(other_pd));
	destroy_pair(&pair);
	free(memory);
	puts("window_type1: ok");
	return 0;
}
