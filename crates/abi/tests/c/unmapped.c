/* A program's mistake: memory is unmapped while it is registered. The access is an error; with RNIC_GUARDED_MEMORY=off the process
 * would end here. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include "pair.h"

int main(void)
{
	struct pair pair = make_pair();
	/* Far from where the kernel puts what is mapped without an address: what another thread maps must not be there next. */
	char *memory = mmap((void *)0x7e9000000000, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	struct ibv_mr *mr = ibv_reg_mr(pair.pd, memory, 8192, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(mr);
	memset(pair.near.buffer, 0x5a, 4096);
	EXPECT_REACHED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory + 4000, 200, mr->rkey);
	CHECK(memory[4000] == 0x5a && memory[4199] == 0x5a && memory[4200] == 0);
	CHECK(!munmap(memory, 8192));
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory + 4000, 200, mr->rkey);
	struct ibv_sge gone = { (uintptr_t)memory, 64, mr->lkey };
	CHECK(do_one(&pair.near, IBV_WR_RDMA_WRITE, gone, (uintptr_t)pair.far.buffer, pair.far.mr->rkey) ==
		IBV_WC_LOC_PROT_ERR);
	mend_pair(&pair);
	CHECK(!ibv_dereg_mr(mr));
	destroy_pair(&pair);
	puts("unmapped: ok");
	return 0;
}
