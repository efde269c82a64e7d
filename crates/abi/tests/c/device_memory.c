/* Device memory: ibv_alloc_dm, copies into and out of it, regions of it, and what it refuses. */
#include "pair.h"

enum { SIZE = 8192,
	ALL = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		IBV_ACCESS_REMOTE_ATOMIC };

int main(void)
{
	struct pair pair = make_pair();
	struct ibv_device_attr_ex attr;
	CHECK(!ibv_query_device_ex(pair.context, NULL, &attr) && attr.max_dm_size >= SIZE);

	/* As much as the device says, and no more. */
	struct ibv_alloc_dm_attr wanted = { .length = attr.max_dm_size };
	struct ibv_dm *dm = ibv_alloc_dm(pair.context, &wanted);
	CHECK(dm && dm->context == pair.context);
	struct ibv_alloc_dm_attr one = { .length = 1 };
	CHECK(!ibv_alloc_dm(pair.context, &one) && errno == ENOMEM);
	CHECK(!ibv_free_dm(dm));
	wanted.length++;
	CHECK(!ibv_alloc_dm(pair.context, &wanted) && errno == EINVAL);
	wanted.length = 0;
	CHECK(!ibv_alloc_dm(pair.context, &wanted) && errno == EINVAL);
	wanted = (struct ibv_alloc_dm_attr){ .length = SIZE, .comp_mask = 1 };
	CHECK(!ibv_alloc_dm(pair.context, &wanted) && errno == EINVAL);
	wanted = (struct ibv_alloc_dm_attr){ .length = SIZE, .log_align_req = 6 };
	dm = ibv_alloc_dm(pair.context, &wanted);
	CHECK(dm);

	/* Copies, and their bounds. */
	char bytes[64], back[64];
	memset(bytes, 0x77, sizeof(bytes));
	CHECK(!ibv_memcpy_to_dm(dm, SIZE - 64, bytes, 64) && !ibv_memcpy_from_dm(back, dm, SIZE - 64, 64));
	CHECK(!memcmp(bytes, back, 64));
	CHECK(ibv_memcpy_to_dm(dm, SIZE - 60, bytes, 64) == EFAULT);
	CHECK(ibv_memcpy_from_dm(back, dm, -4ull, 8) == EFAULT);
	CHECK(ibv_memcpy_to_dm(dm, 1, bytes, 4) == EINVAL && ibv_memcpy_from_dm(back, dm, 4, 1) == EINVAL);

	/* Regions are zero-based, and lie within. */
	CHECK(!ibv_reg_dm_mr(pair.pd, dm, 0, SIZE, ALL & ~IBV_ACCESS_ZERO_BASED) && errno == EINVAL);
	CHECK(!ibv_reg_dm_mr(pair.pd, dm, 0, SIZE, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL);
	CHECK(!ibv_reg_dm_mr(pair.pd, dm, 0, SIZE, ALL | IBV_ACCESS_ON_DEMAND) && errno == EINVAL);
	CHECK(!ibv_reg_dm_mr(pair.pd, dm, 1, SIZE, ALL) && errno == EINVAL);
	CHECK(!ibv_reg_dm_mr(pair.pd, dm, -1ull, 2, ALL) && errno == EINVAL);
	struct ibv_mr *mr = ibv_reg_dm_mr(pair.pd, dm, 4096, 4096, ALL);
	CHECK(mr && mr->length == 4096);
	CHECK(ibv_free_dm(dm) == EBUSY);

	/* A peer writes, reads and adds; local work requests use it too. */
	memset(pair.near.buffer, 0x5a, 4096);
	EXPECT_REACHED(&pair, IBV_WR_RDMA_WRITE, 0, 32, mr->rkey);
	CHECK(!ibv_memcpy_from_dm(back, dm, 4096, 64) && back[0] == 0x5a && back[31] == 0x5a && back[32] == 0);
	CHECK(!ibv_memcpy_from_dm(back, dm, 4092, 4) && back[3] == 0);
	EXPECT_REACHED(&pair, IBV_WR_ATOMIC_FETCH_AND_ADD, 64, 8, mr->rkey);
	EXPECT_REACHED(&pair, IBV_WR_RDMA_READ, 64, 8, mr->rkey);
	CHECK(*(uint64_t *)pair.near.buffer == 1);
	CHECK(do_one(&pair.near, IBV_WR_RDMA_WRITE, (struct ibv_sge){ 4032, 64, mr->lkey }, (uintptr_t)pair.far.buffer,
		pair.far.mr->rkey) == IBV_WC_SUCCESS);
	CHECK(!memcmp(pair.far.buffer, bytes, 64));
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_WRITE, 4065, 32, mr->rkey);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 7) == IBV_REREG_MR_ERR_INPUT);

	CHECK(!ibv_dereg_mr(mr) && !ibv_free_dm(dm));
	destroy_pair(&pair);
	puts("device_memory: ok");
	return 0;
}
