/* ibv_rereg_mr: a region gets other memory, another protection domain, other rights; its keys stay. */
#include "pair.h"

enum { ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

int main(void)
{
	struct pair pair = make_pair();
	struct ibv_pd *other_pd = ibv_alloc_pd(pair.context);
	char *first = aligned_alloc(4096, 8192), *second = aligned_alloc(4096, 8192);
	CHECK(other_pd && first && second);
	memset(first, 0, 8192);
	memset(second, 0, 8192);
	memset(pair.near.buffer, 0x5a, 4096);
	struct ibv_mr *mr = ibv_reg_mr(pair.pd, first, 4096, ALL);
	CHECK(mr);
	uint32_t rkey = mr->rkey, lkey = mr->lkey;
	EXPECT_REACHED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)first, 4096, rkey);

	/* Other memory: the old is out of reach. */
	memset(first, 0, 4096);
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, second, 8192, 0));
	CHECK(mr->addr == second && mr->length == 8192 && mr->rkey == rkey && mr->lkey == lkey && mr->pd == pair.pd);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)first, 8, rkey);
	EXPECT_REACHED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)second + 4096, 4096, rkey);
	CHECK(first[0] == 0 && second[0] == 0 && second[4096] == 0x5a && second[8191] == 0x5a);

	/* Other rights. */
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_READ));
	CHECK(mr->addr == second && mr->length == 8192 && mr->rkey == rkey);
	EXPECT_REACHED(&pair, IBV_WR_RDMA_READ, (uintptr_t)second, 4096, rkey);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)second, 8, rkey);

	/* Another protection domain: the queue pair's own no longer fits, and the other one is in use. */
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other_pd, NULL, 0, 0) && mr->pd == other_pd);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_READ, (uintptr_t)second, 8, rkey);
	CHECK(ibv_dealloc_pd(other_pd) == EBUSY);

	/* All at once, back again. */
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_FLAGS_SUPPORTED, pair.pd, first, 4096, ALL));
	CHECK(mr->pd == pair.pd && mr->addr == first && mr->length == 4096 && mr->rkey == rkey);
	EXPECT_REACHED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)first, 4096, rkey);
	CHECK(!ibv_dealloc_pd(other_pd));

	/* Refused input: the region is as it was. */
	CHECK(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT && errno == EINVAL);
	CHECK(ibv_rereg_mr(mr, 8, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 64, 0) == IBV_REREG_MR_ERR_INPUT);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, first, 0, 0) == IBV_REREG_MR_ERR_INPUT);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pair.pd, NULL, 0, ALL) == IBV_REREG_MR_ERR_INPUT);
	EXPECT_REACHED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)first, 4096, rkey);

	/* A command that fails: the region opens nothing any more, and can only be deregistered. */
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, (void *)4096, 4096, 0) == IBV_REREG_MR_ERR_CMD);
	CHECK(errno == EFAULT && mr->addr == first);
	memset(first, 0, 4096);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)first, 8, rkey);
	CHECK(first[0] == 0 && !ibv_dereg_mr(mr));
	mr = ibv_reg_mr(pair.pd, first, 4096, 0);
	CHECK(mr);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE) == IBV_REREG_MR_ERR_CMD);
	CHECK(!ibv_dereg_mr(mr));

	destroy_pair(&pair);
	free(first);
	free(second);
	puts("rereg: ok");
	return 0;
}
