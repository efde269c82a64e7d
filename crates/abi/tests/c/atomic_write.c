/* ibv_wr_atomic_write, and the same by ibv_post_send: eight bytes that arrive at once. */
#include "check.h"

int main(void)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd);
	struct ibv_device_attr_ex device;
	CHECK(!ibv_query_device_ex(context, NULL, &device) && device.device_cap_flags_ex & 1ull << 40);
	struct side peer = make_side(pd, NULL);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(cq);
	struct ibv_qp_init_attr_ex init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 8, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE };
	init.qp_type = IBV_QPT_UD;
	CHECK(!ibv_create_qp_ex(context, &init) && errno == EOPNOTSUPP);
	init.qp_type = IBV_QPT_RC;
	struct ibv_qp *qp = ibv_create_qp_ex(context, &init);
	CHECK(qp);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	CHECK(ex);
	to_init(qp);
	to_rts(qp, peer.qp->qp_num);
	to_rts(peer.qp, qp->qp_num);
	uint64_t *remote = (uint64_t *)peer.buffer;

	/* The value is copied at once; no inline data need be agreed for it. */
	uint64_t value = 0x1122334455667788;
	ibv_wr_start(ex);
	ex->wr_id = 1;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_atomic_write(ex, peer.mr->rkey, (uintptr_t)&remote[1], &value);
	value = 0;
	CHECK(!ibv_wr_complete(ex));
	expect_success(cq, 1, IBV_WC_ATOMIC_WRITE);
	CHECK(remote[0] == 0 && remote[1] == 0x1122334455667788 && remote[2] == 0);

	/* From registered memory. */
	uint64_t *source = (uint64_t *)(peer.buffer + 4096);
	*source = 77;
	struct ibv_sge sge = { (uintptr_t)source, 8, peer.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_ATOMIC_WRITE,
		.send_flags = IBV_SEND_SIGNALED, .wr.rdma = { (uintptr_t)&remote[1], peer.mr->rkey } }, *bad;
	CHECK(!ibv_post_send(qp, &wr, &bad));
	expect_success(cq, 2, IBV_WC_ATOMIC_WRITE);
	CHECK(remote[1] == 77);

	/* An address that is no multiple of eight is the peer's to refuse, after which nothing has changed. */
	wr.wr.rdma.remote_addr += 4;
	CHECK(!ibv_post_send(qp, &wr, &bad));
	CHECK(wait_wc(cq).status == IBV_WC_REM_INV_REQ_ERR && remote[1] == 77 && remote[2] == 0);

	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
	destroy_side(&peer);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("atomic_write: ok");
	return 0;
}
