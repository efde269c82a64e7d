/* Registration in all its forms: other addresses, zero-based, hints, no bytes, wrong rights, dmabuf. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <unistd.h>
#include "pair.h"

enum { ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

int main(void)
{
	struct pair pair = make_pair();
	char *memory = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	memset(pair.near.buffer, 0x5a, 4096);

	/* Addresses of the program's choice, at the same place of their page. */
	struct ibv_mr *mr = ibv_reg_mr_iova(pair.pd, memory, 4096, 0x7000000000, ALL);
	CHECK(mr && mr->addr == memory && mr->length == 4096);
	EXPECT_REACHED(&pair, IBV_WR_RDMA_WRITE, 0x7000000000 + 4092, 4, mr->rkey);
	CHECK(memory[4092] == 0x5a && memory[4091] == 0);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory, 4, mr->rkey);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_WRITE, 0x7000000000 + 4093, 4, mr->rkey);
	uint32_t old = mr->rkey;
	CHECK(!ibv_dereg_mr(mr));
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_WRITE, 0x7000000000, 4, old);
	CHECK(!ibv_reg_mr_iova(pair.pd, memory, 4096, 0x7000000001, ALL) && errno == EINVAL);
	CHECK(!ibv_reg_mr_iova(pair.pd, memory, 4096, -4096ull, ALL) && errno == EINVAL);

	/* Zero-based: offsets instead of addresses. */
	mr = ibv_reg_mr(pair.pd, memory + 100, 64, ALL | IBV_ACCESS_ZERO_BASED);
	CHECK(mr);
	EXPECT_REACHED(&pair, IBV_WR_RDMA_WRITE, 0, 64, mr->rkey);
	CHECK(memory[99] == 0 && memory[100] == 0x5a && memory[163] == 0x5a && memory[164] == 0);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_WRITE, 1, 64, mr->rkey);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_READ, (uintptr_t)memory + 100, 8, mr->rkey);
	CHECK(!ibv_dereg_mr(mr));

	/* Hints may be ignored, unknown flags may not. */
	mr = ibv_reg_mr(pair.pd, memory, 64, ALL | IBV_ACCESS_RELAXED_ORDERING | (1 << 29));
	CHECK(mr && !ibv_dereg_mr(mr));
	mr = ibv_reg_mr(pair.pd, memory, 4096, ALL | IBV_ACCESS_HUGETLB);
	CHECK(mr && !ibv_dereg_mr(mr));
	CHECK(!ibv_reg_mr_iova2(pair.pd, memory, 64, (uintptr_t)memory, 1 << 12) && errno == EINVAL);

	/* No bytes: nothing to register at the start of a page; elsewhere a region that opens nothing. */
	CHECK(!ibv_reg_mr(pair.pd, memory, 0, ALL) && errno == EINVAL);
	mr = ibv_reg_mr(pair.pd, memory + 1, 0, ALL);
	CHECK(mr);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory + 1, 1, mr->rkey);
	CHECK(!ibv_dereg_mr(mr));

	/* Rights: to write remotely needs LOCAL_WRITE; memory that may only be read cannot be registered for more. */
	CHECK(!ibv_reg_mr(pair.pd, memory, 64, IBV_ACCESS_REMOTE_ATOMIC) && errno == EINVAL);
	CHECK(!mprotect(memory + 4096, 4096, PROT_READ));
	CHECK(!ibv_reg_mr(pair.pd, memory, 3 * 4096, ALL) && errno == EFAULT);
	mr = ibv_reg_mr(pair.pd, memory, 3 * 4096, IBV_ACCESS_REMOTE_READ);
	CHECK(mr);
	EXPECT_REACHED(&pair, IBV_WR_RDMA_READ, (uintptr_t)memory + 4096, 64, mr->rkey);
	CHECK(!ibv_dereg_mr(mr));
	CHECK(!munmap(memory + 4096, 4096));
	CHECK(!ibv_reg_mr(pair.pd, memory, 3 * 4096, IBV_ACCESS_REMOTE_READ) && errno == EFAULT);

	/* A dmabuf is one, or it is refused. */
	int fd = memfd_create("no dmabuf", MFD_CLOEXEC);
	CHECK(fd >= 0 && !ftruncate(fd, 4096));
	CHECK(!ibv_reg_dmabuf_mr(pair.pd, 0, 4096, 0, fd, ALL) && errno == EINVAL);
	CHECK(!ibv_reg_dmabuf_mr(pair.pd, 0, 4096, 0, -1, ALL) && errno == EBADF);
	CHECK(!ibv_reg_dmabuf_mr(pair.pd, 0, 4096, 0, fd, ALL | IBV_ACCESS_ON_DEMAND) && errno == EINVAL);
	close(fd);

	destroy_pair(&pair);
	puts("regions: ok");
	return 0;
}
