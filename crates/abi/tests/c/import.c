/* ibv_import_*: a second context and second handles of a domain, a region, device memory, in one process. */
#include <fcntl.h>
#include <unistd.h>
#include "pair.h"

int main(void)
{
	struct pair pair = make_pair();
	int fd = dup(pair.context->cmd_fd), other = open("/dev/null", O_RDONLY);
	CHECK(fd >= 0 && other >= 0);
	CHECK(!ibv_import_device(-1) && errno == EBADF);
	CHECK(!ibv_import_device(other) && errno == EINVAL);
	struct ibv_context *context = ibv_import_device(fd);
	CHECK(context && context->cmd_fd == fd && context->device == pair.context->device);

	CHECK(!ibv_import_pd(context, 0x7fffffff) && errno == ENOENT);
	struct ibv_pd *pd = ibv_import_pd(context, pair.pd->handle);
	CHECK(pd && pd->context == context);
	CHECK(!ibv_import_mr(pd, 0) && errno == ENOENT);
	struct ibv_mr *mr = ibv_import_mr(pd, pair.far.mr->handle);
	CHECK(mr && mr->lkey == pair.far.mr->lkey && mr->rkey == pair.far.mr->rkey && mr->length == BUFFER && !mr->addr);
	CHECK(ibv_dereg_mr(mr) == EINVAL);

	/* A queue pair in the imported domain uses the region of the original one. */
	struct side side = make_side(pd, NULL);
	to_rts(side.qp, pair.near.qp->qp_num);
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	CHECK(!ibv_modify_qp(pair.near.qp, &reset, IBV_QP_STATE));
	to_init(pair.near.qp);
	to_rts(pair.near.qp, side.qp->qp_num);
	memset(pair.far.buffer, 0x42, 64);
	struct ibv_sge from = { (uintptr_t)pair.far.buffer, 64, mr->lkey };
	CHECK(do_one(&side, IBV_WR_RDMA_WRITE, from, (uintptr_t)pair.near.buffer, pair.near.mr->rkey) == IBV_WC_SUCCESS);
	CHECK(pair.near.buffer[63] == 0x42);
	memset(pair.near.buffer, 0x17, 64);
	CHECK(reach(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)pair.far.buffer, 64, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(pair.far.buffer[63] == 0x17);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	destroy_side(&side);

	/* Device memory. */
	struct ibv_alloc_dm_attr dm_attr = { .length = 64 };
	struct ibv_dm *dm = ibv_alloc_dm(pair.context, &dm_attr), *second;
	CHECK(dm && !ibv_import_dm(context, dm->handle + 1000) && errno == ENOENT);
	second = ibv_import_dm(context, dm->handle);
	uint32_t word = 77, back = 0;
	CHECK(second && !ibv_memcpy_to_dm(dm, 8, &word, 4) && !ibv_memcpy_from_dm(&back, second, 8, 4) && back == 77);
	CHECK(ibv_free_dm(dm) == EBUSY);
	ibv_unimport_dm(second);
	CHECK(!ibv_free_dm(dm));

	ibv_unimport_mr(mr);
	ibv_unimport_pd(pd);
	CHECK(!ibv_close_device(context) && fcntl(fd, F_GETFD) < 0);
	/* Closed with an object left, too: the descriptor is not the object's. */
	fd = dup(pair.context->cmd_fd);
	context = ibv_import_device(fd);
	CHECK(context && ibv_alloc_pd(context) && !ibv_close_device(context) && fcntl(fd, F_GETFD) < 0);
	destroy_pair(&pair);
	puts("import: ok");
	return 0;
}
