/* On-demand paging: pages come and go while the region stands; what is not there is an error on both sides. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include "pair.h"

enum { PAGE = 4096, PAGES = 16,
	ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
		IBV_ACCESS_ON_DEMAND };

/* Far from where the kernel puts what is mapped without an address: what another thread maps must not fill a hole. */
static char *const APART = (char *)0x7e9000000000;

static char *map(void *at, size_t length)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0);
	char *memory = mmap(at ? at : APART, length, PROT_READ | PROT_WRITE, flags, -1, 0);
	CHECK(memory != MAP_FAILED);
	return memory;
}

static int present(char *page)
{
	unsigned char in_core;
	CHECK(!mincore(page, PAGE, &in_core));
	return in_core & 1;
}

/* Every kind of access to what is not mapped fails at both ends, and the process lives. */
static void expect_gone(struct pair *pair, char *at, struct ibv_mr *mr)
{
	EXPECT_REFUSED(pair, IBV_WR_RDMA_WRITE, (uintptr_t)at, 64, mr->rkey);
	EXPECT_REFUSED(pair, IBV_WR_RDMA_READ, (uintptr_t)at, 64, mr->rkey);
	EXPECT_REFUSED(pair, IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t)at, 8, mr->rkey);
	struct ibv_sge local = { (uintptr_t)at, 64, mr->lkey };
	CHECK(do_one(&pair->near, IBV_WR_RDMA_WRITE, local, (uintptr_t)pair->far.buffer, pair->far.mr->rkey) ==
		IBV_WC_LOC_PROT_ERR);
	mend_pair(pair);
	CHECK(do_one(&pair->near, IBV_WR_RDMA_READ, local, (uintptr_t)pair->far.buffer, pair->far.mr->rkey) ==
		IBV_WC_LOC_PROT_ERR);
	mend_pair(pair);
	struct ibv_recv_wr recv = { .wr_id = 9, .sg_list = &local, .num_sge = 1 }, *bad;
	CHECK(!ibv_post_recv(pair->far.qp, &recv, &bad));
	CHECK(do_one(&pair->near, IBV_WR_SEND, sge_of(&pair->near, 0, 64), 0, 0) == IBV_WC_REM_OP_ERR);
	struct ibv_wc wc = wait_wc(pair->far.cq);
	CHECK(wc.status == IBV_WC_LOC_PROT_ERR && wc.wr_id == 9);
	mend_pair(pair);
}

int main(void)
{
	struct pair pair = make_pair();
	struct ibv_device_attr_ex attr;
	CHECK(!ibv_query_device_ex(pair.context, NULL, &attr));
	CHECK(attr.odp_caps.general_caps == (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT));
	uint32_t rc = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
		IBV_ODP_SUPPORT_ATOMIC;
	CHECK((attr.odp_caps.per_transport_caps.rc_odp_caps & rc) == rc);

	/* Registration fetches nothing; access does. */
	char *memory = map(NULL, PAGES * PAGE);
	struct ibv_mr *mr = ibv_reg_mr(pair.pd, memory, PAGES * PAGE, ALL);
	CHECK(mr && !present(memory));
	memset(pair.near.buffer, 0x5a, 3 * PAGE);
	EXPECT_REACHED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory + 100, 2 * PAGE, mr->rkey);
	CHECK(present(memory) && present(memory + 2 * PAGE) && !present(memory + 3 * PAGE));
	CHECK(memory[99] == 0 && memory[100] == 0x5a && memory[2 * PAGE + 99] == 0x5a && memory[2 * PAGE + 100] == 0);
	EXPECT_REACHED(&pair, IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t)memory + 5 * PAGE, 8, mr->rkey);
	CHECK(*(uint64_t *)(memory + 5 * PAGE) == 1);

	/* Pages go and come: what is read is what is there now. */
	CHECK(!madvise(memory, PAGE, MADV_DONTNEED));
	EXPECT_REACHED(&pair, IBV_WR_RDMA_READ, (uintptr_t)memory, PAGE, mr->rkey);
	CHECK(pair.near.buffer[0] == 0 && pair.near.buffer[PAGE - 1] == 0);
	CHECK(!munmap(memory, PAGE));
	expect_gone(&pair, memory, mr);
	memset(map(memory, PAGE), 0x11, PAGE);
	EXPECT_REACHED(&pair, IBV_WR_RDMA_READ, (uintptr_t)memory, PAGE, mr->rkey);
	CHECK(pair.near.buffer[0] == 0x11);
	CHECK(!mprotect(memory, PAGE, PROT_READ));
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory, 64, mr->rkey);
	CHECK(memory[0] == 0x11 && !mprotect(memory, PAGE, PROT_READ | PROT_WRITE));

	/* Part of a message has landed when the rest is found to be gone. */
	CHECK(!munmap(memory + PAGE, PAGE));
	memset(pair.near.buffer, 0x5a, 2 * PAGE);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory, 2 * PAGE, mr->rkey);
	CHECK(memory[0] == 0x5a);
	map(memory + PAGE, PAGE);

	/* Prefetching. */
	struct ibv_sge list = { (uintptr_t)memory + 8 * PAGE, 2 * PAGE, mr->lkey };
	CHECK(!present(memory + 8 * PAGE));
	CHECK(!ibv_advise_mr(pair.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, IBV_ADVISE_MR_FLAG_FLUSH, &list, 1));
	CHECK(!present(memory + 8 * PAGE));
	CHECK(!ibv_advise_mr(pair.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &list, 1));
	CHECK(present(memory + 8 * PAGE) && present(memory + 9 * PAGE));
	CHECK(!ibv_advise_mr(pair.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &list, 1));
	CHECK(ibv_advise_mr(pair.pd, 77, 0, &list, 1) == EOPNOTSUPP);
	CHECK(ibv_advise_mr(pair.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 2, &list, 1) == EINVAL);
	CHECK(ibv_advise_mr(pair.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &list, 0) == EINVAL);
	list.length = 9 * PAGE;
	CHECK(ibv_advise_mr(pair.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &list, 1) == EFAULT);
	/* The errno are those of mlx5, which knows regions with on-demand paging alone. */
	list = (struct ibv_sge){ (uintptr_t)memory, 64, 0x77777777 };
	CHECK(ibv_advise_mr(pair.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &list, 1) == ENOENT);
	list = sge_of(&pair.near, 0, 64);
	CHECK(ibv_advise_mr(pair.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &list, 1) == ENOENT);
	CHECK(ibv_advise_mr(pair.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &list, 1) == ENOENT);
	struct ibv_mw *window = ibv_alloc_mw(pair.pd, IBV_MW_TYPE_1);
	CHECK(window);
	list.lkey = window->rkey;
	CHECK(ibv_advise_mr(pair.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &list, 1) == EINVAL);
	CHECK(!ibv_dealloc_mw(window));
	list = (struct ibv_sge){ (uintptr_t)memory, 64, mr->lkey };
	struct ibv_pd *other = ibv_alloc_pd(pair.pd->context);
	CHECK(ibv_advise_mr(other, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &list, 1) == EPERM && !ibv_dealloc_pd(other));
	struct ibv_mr *read_only = ibv_reg_mr(pair.pd, memory, PAGE, IBV_ACCESS_ON_DEMAND);
	CHECK(read_only);
	list.lkey = read_only->lkey;
	CHECK(ibv_advise_mr(pair.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, &list, 1) == EPERM);
	CHECK(!ibv_advise_mr(pair.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &list, 1) && !ibv_dereg_mr(read_only));
	CHECK(!munmap(memory + 10 * PAGE, PAGE));
	list = (struct ibv_sge){ (uintptr_t)memory + 10 * PAGE, PAGE, mr->lkey };
	CHECK(ibv_advise_mr(pair.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &list, 1) == EFAULT);
	CHECK(!ibv_advise_mr(pair.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &list, 1));
	CHECK(!ibv_dereg_mr(mr));

	/* Nothing is mapped yet. */
	CHECK(!munmap(memory, PAGES * PAGE));
	mr = ibv_reg_mr(pair.pd, memory, PAGE, ALL);
	CHECK(mr);
	expect_gone(&pair, memory, mr);
	map(memory, PAGE);
	EXPECT_REACHED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory, 64, mr->rkey);
	CHECK(!ibv_dereg_mr(mr));

	/* The whole address space in one region. */
	CHECK(!ibv_reg_mr(pair.pd, NULL, SIZE_MAX, ALL & ~IBV_ACCESS_ON_DEMAND));
	mr = ibv_reg_mr(pair.pd, NULL, SIZE_MAX, ALL);
	CHECK(mr && mr->length == SIZE_MAX);
	EXPECT_REACHED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory + 64, 64, mr->rkey);
	CHECK(memory[64] == 0x5a);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_READ, 4096, 64, mr->rkey);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_READ, -64ull, 64, mr->rkey);
	CHECK(!munmap(memory, PAGE));
	expect_gone(&pair, memory, mr);
	CHECK(!ibv_dereg_mr(mr));

	destroy_pair(&pair);
	puts("on_demand: ok");
	return 0;
}
