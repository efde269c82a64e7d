/* Objects destroyed in the wrong order: what others still use is busy; a device that is closed takes its objects along. */
#include "check.h"

static int send_one(struct side *side, uint64_t wr_id)
{
	struct ibv_send_wr wr = { .wr_id = wr_id, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	return ibv_post_send(side->qp, &wr, &bad);
}

int main(void)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct side a = make_side(pd, channel);
	CHECK(ibv_dealloc_pd(pd) == EBUSY && ibv_destroy_cq(a.cq) == EBUSY && ibv_destroy_comp_channel(channel) == EBUSY);
	CHECK(!ibv_destroy_qp(a.qp));
	CHECK(ibv_dealloc_pd(pd) == EBUSY && ibv_destroy_comp_channel(channel) == EBUSY); /* the region, the queue */
	CHECK(!ibv_destroy_cq(a.cq));
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	CHECK(!ibv_dereg_mr(a.mr));
	CHECK(!ibv_destroy_comp_channel(channel));
	CHECK(!ibv_dealloc_pd(pd));
	free(a.buffer);

	/* Two contexts, connected. One is closed with all it has: nobody answers there any more. */
	struct ibv_context *other = open_device();
	struct ibv_pd *other_pd = ibv_alloc_pd(other);
	pd = ibv_alloc_pd(context);
	struct side b = make_side(other_pd, NULL);
	a = make_side(pd, NULL);
	to_rts(a.qp, b.qp->qp_num);
	to_rts(b.qp, a.qp->qp_num);
	CHECK(!post_recv(&b, 1, 0, 64) && !post_recv(&b, 2, 0, 64));
	CHECK(!send_one(&a, 3));
	expect_success(a.cq, 3, IBV_WC_SEND);
	CHECK(!ibv_close_device(other));
	CHECK(!send_one(&a, 4));
	struct ibv_wc wc = wait_wc(a.cq);
	CHECK(wc.wr_id == 4 && wc.status == IBV_WC_RETRY_EXC_ERR && wc.qp_num == a.qp->qp_num && wc.vendor_err);
	/* The device works on for the other context. */
	struct side c = make_side(pd, NULL), d = make_side(pd, NULL);
	to_rts(c.qp, d.qp->qp_num);
	to_rts(d.qp, c.qp->qp_num);
	CHECK(!post_recv(&d, 5, 0, 64) && !send_one(&c, 6));
	expect_success(d.cq, 5, IBV_WC_RECV);
	expect_success(c.cq, 6, IBV_WC_SEND);
	destroy_side(&c);
	destroy_side(&d);
	destroy_side(&a);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));

	/* And everything left to exit(). */
	context = open_device();
	pd = ibv_alloc_pd(context);
	a = make_side(pd, NULL);
	b = make_side(pd, NULL);
	to_rts(a.qp, b.qp->qp_num);
	to_rts(b.qp, a.qp->qp_num);
	CHECK(!send_one(&a, 7)); /* no receive: it is under way for ever */
	puts("order: ok");
	return 0;
}
