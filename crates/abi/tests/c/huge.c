/* Long lengths: a message of 1 GiB, a region of more than 4 GiB, 2 MiB pages. Memory that is never touched costs nothing:
 * most of it is one page of zeros, mapped again and again. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <unistd.h>
#include "pair.h"

enum { GIB = 1 << 30, MIB = 1 << 20,
	ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

int main(void)
{
	struct pair pair = make_pair();

	/* 1 GiB of address space over 2 MiB of memory, so that the message fits everywhere. */
	int fd = memfd_create("huge", MFD_CLOEXEC);
	CHECK(fd >= 0 && !ftruncate(fd, 2 * MIB));
	char *span = mmap(NULL, GIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(span != MAP_FAILED);
	for (size_t at = 0; at < GIB; at += 2 * MIB)
		CHECK(mmap(span + at, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == span + at);
	struct ibv_mr *mr = ibv_reg_mr(pair.pd, span, GIB, ALL);
	struct ibv_mr *sink = ibv_alloc_null_mr(pair.pd);
	CHECK(mr && sink);
	memset(span, 0x5a, 2 * MIB);
	/* Read it all, keep nothing. */
	struct ibv_sge all = { 0, GIB, sink->lkey };
	CHECK(do_one(&pair.near, IBV_WR_RDMA_READ, all, (uintptr_t)span, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(do_one(&pair.near, IBV_WR_RDMA_READ, all, (uintptr_t)span + 1, mr->rkey) == IBV_WC_REM_ACCESS_ERR);
	mend_pair(&pair);
	CHECK(!ibv_dereg_mr(mr) && !ibv_dereg_mr(sink) && !munmap(span, GIB));
	close(fd);

	/* Beyond 4 GiB: offsets do not wrap. On demand, so that only what is touched is there. */
	size_t length = 5ull * GIB + 4096;
	char *wide = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(wide != MAP_FAILED);
	mr = ibv_reg_mr(pair.pd, wide, length, ALL | IBV_ACCESS_ON_DEMAND);
	CHECK(mr && mr->length == length);
	memset(pair.near.buffer, 0x5a, 4096);
	EXPECT_REACHED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)wide + length - 64, 64, mr->rkey);
	CHECK(wide[length - 1] == 0x5a && wide[length - 65] == 0 && wide[4096 - 1] == 0);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)wide + length - 63, 64, mr->rkey);
	CHECK(!ibv_dereg_mr(mr) && !munmap(wide, length));

	/* 2 MiB pages, where the system gives them (transparently; it may refuse). */
	char *large = aligned_alloc(2 * MIB, 4 * MIB);
	CHECK(large);
	madvise(large, 4 * MIB, MADV_HUGEPAGE);
	memset(large, 0, 4 * MIB);
	mr = ibv_reg_mr(pair.pd, large, 4 * MIB, ALL | IBV_ACCESS_HUGETLB);
	CHECK(mr);
	EXPECT_REACHED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)large + 2 * MIB - 2048, 4096, mr->rkey);
	CHECK(large[2 * MIB - 2049] == 0 && large[2 * MIB - 2048] == 0x5a && large[2 * MIB + 2047] == 0x5a);
	CHECK(!ibv_dereg_mr(mr));
	free(large);

	destroy_pair(&pair);
	puts("huge: ok");
	return 0;
}
