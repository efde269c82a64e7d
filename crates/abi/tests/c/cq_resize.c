/* ibv_resize_cq: what waits in the queue stays, in order; less room than that is refused. */
#include "check.h"

enum { WAITING = 5 };

int main(void)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd);
	struct side side = make_side(pd, NULL);
	struct ibv_device_attr device;
	CHECK(!ibv_query_device(context, &device));
	CHECK(!ibv_resize_cq(side.cq, 1) && side.cq->cqe == 1);
	CHECK(!ibv_resize_cq(side.cq, 100) && side.cq->cqe == 127); /* a power of two less one, as hardware rounds */

	/* A queue pair that is moved to ERR flushes its receives at once: completions that wait. */
	for (uint64_t i = 0; i < WAITING; i++)
		CHECK(!post_recv(&side, i, 0, 8));
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	CHECK(!ibv_modify_qp(side.qp, &error, IBV_QP_STATE));

	CHECK(ibv_resize_cq(side.cq, 0) == EINVAL && ibv_resize_cq(side.cq, -1) == EINVAL);
	CHECK(ibv_resize_cq(side.cq, device.max_cqe + 1) == EINVAL);
	CHECK(ibv_resize_cq(side.cq, WAITING - 1) == EINVAL && side.cq->cqe == 127);
	CHECK(!ibv_resize_cq(side.cq, WAITING) && side.cq->cqe == 7);
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(side.cq, 1, &wc) == 1 && wc.wr_id == 0);
	CHECK(!ibv_resize_cq(side.cq, device.max_cqe) && side.cq->cqe == device.max_cqe);
	for (uint64_t i = 1; i < WAITING; i++) {
		CHECK(ibv_poll_cq(side.cq, 1, &wc) == 1);
		CHECK(wc.wr_id == i && wc.status == IBV_WC_WR_FLUSH_ERR && wc.qp_num == side.qp->qp_num);
	}
	CHECK(!ibv_poll_cq(side.cq, 1, &wc));

	destroy_side(&side);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("cq_resize: ok");
	return 0;
}
