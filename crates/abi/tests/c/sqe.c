/* SQE: a send that fails stops the send queue of a UC or UD queue pair alone. It goes on receiving, what is posted is flushed,
 * and ibv_modify_qp puts it back to work with all its room. */
#include "check.h"

enum { QKEY = 0x1234 };

static struct ibv_ah *handle;
static uint32_t to;

/* Has one packet of the other queue pair as its peer, or an address handle. */
static struct ibv_send_wr request(enum ibv_qp_type type, struct ibv_sge *sge, uint64_t wr_id, int flags)
{
	struct ibv_send_wr wr = { .wr_id = wr_id, .opcode = IBV_WR_SEND, .send_flags = flags, .sg_list = sge, .num_sge = 1 };
	if (type == IBV_QPT_UD) {
		wr.wr.ud.ah = handle;
		wr.wr.ud.remote_qpn = to;
		wr.wr.ud.remote_qkey = QKEY;
	}
	return wr;
}

static struct side make(struct ibv_pd *pd, enum ibv_qp_type type)
{
	struct side side = { .cq = ibv_create_cq(pd->context, 4 * DEPTH, NULL, NULL, 0) };
	struct ibv_qp_init_attr init = { .send_cq = side.cq, .recv_cq = side.cq, .qp_type = type,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 } };
	side.qp = ibv_create_qp(pd, &init);
	CHECK(side.qp);
	side.buffer = aligned_alloc(4096, BUFFER);
	side.mr = ibv_reg_mr(pd, side.buffer, BUFFER, IBV_ACCESS_LOCAL_WRITE);
	CHECK(side.buffer && side.mr);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
	CHECK(!ibv_modify_qp(side.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		(type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
	return side;
}

static void join(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .rq_psn = 7 };
	attr.ah_attr = (struct ibv_ah_attr){ .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } };
	attr.ah_attr.grh.sgid_index = loopback_gid(qp->context, &attr.ah_attr.grh.dgid);
	int connected = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | (qp->qp_type == IBV_QPT_UD ? 0 : connected)));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .sq_psn = 7 };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

static void expect(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = wait_wc(cq);
	if (wc.wr_id != wr_id || wc.status != status)
		fprintf(stderr, "wr %d: %s, not wr %d: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status), (int)wr_id,
			ibv_wc_status_str(status));
	CHECK(wc.wr_id == wr_id && wc.status == status);
}

static void test(struct ibv_pd *pd, enum ibv_qp_type type)
{
	struct side a = make(pd, type), b = make(pd, type);
	join(a.qp, b.qp->qp_num);
	join(b.qp, a.qp->qp_num);
	struct ibv_sge good = { (uintptr_t)a.buffer, 100, a.mr->lkey }, bad = { (uintptr_t)a.buffer, 100, ~a.mr->lkey };
	struct ibv_send_wr *refused;
	to = b.qp->qp_num;
	CHECK(!post_recv(&b, 50, 0, 1024) && !post_recv(&a, 60, 0, 1024));

	struct ibv_send_wr last = request(type, &good, 4, 0), third = request(type, &bad, 3, 0);
	struct ibv_send_wr second = request(type, &good, 2, 0), first = request(type, &good, 1, 0);
	first.next = &second;
	second.next = &third;
	third.next = &last;
	CHECK(!ibv_post_send(a.qp, &first, &refused));
	expect(a.cq, 3, IBV_WC_LOC_PROT_ERR);
	expect(a.cq, 4, IBV_WC_WR_FLUSH_ERR);
	expect(b.cq, 50, IBV_WC_SUCCESS);
	CHECK(state_of(a.qp) == IBV_QPS_SQE && state_of(b.qp) == IBV_QPS_RTS);
	/* What is posted is flushed. */
	struct ibv_send_wr another = request(type, &good, 5, 0);
	CHECK(!ibv_post_send(a.qp, &another, &refused));
	expect(a.cq, 5, IBV_WC_WR_FLUSH_ERR);
	/* It receives. */
	to = a.qp->qp_num;
	struct ibv_sge back = { (uintptr_t)b.buffer, 100, b.mr->lkey };
	struct ibv_send_wr answer = request(type, &back, 6, IBV_SEND_SIGNALED);
	CHECK(!ibv_post_send(b.qp, &answer, &refused));
	expect(b.cq, 6, IBV_WC_SUCCESS);
	expect(a.cq, 60, IBV_WC_SUCCESS);
	/* Only to RTS, RESET and ERR; the program may say what it believes. */
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .cur_qp_state = IBV_QPS_RTS };
	CHECK(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE) == EINVAL);
	attr.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE) == EINVAL);
	attr.cur_qp_state = IBV_QPS_SQE;
	CHECK(!ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE) && a.qp->state == IBV_QPS_RTS);
	/* It sends again, as many at once as before. */
	struct ibv_qp_init_attr init;
	CHECK(!ibv_query_qp(a.qp, &attr, IBV_QP_CAP, &init));
	to = b.qp->qp_num;
	for (unsigned i = 0; i < init.cap.max_send_wr; i++) {
		int flags = i + 1 == init.cap.max_send_wr ? IBV_SEND_SIGNALED : 0;
		struct ibv_send_wr wr = request(type, &good, 100 + i, flags);
		CHECK(!post_recv(&b, 200, 0, 1024) && !ibv_post_send(a.qp, &wr, &refused));
		expect(b.cq, 200, IBV_WC_SUCCESS);
	}
	struct ibv_send_wr surplus = request(type, &good, 7, 0);
	CHECK(ibv_post_send(a.qp, &surplus, &refused) == ENOMEM);
	expect(a.cq, 100 + init.cap.max_send_wr - 1, IBV_WC_SUCCESS);
	CHECK(!ibv_post_send(a.qp, &surplus, &refused));

	/* SQD: nothing is ever under way for long. */
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	CHECK(!ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
	struct ibv_async_event event;
	CHECK(!ibv_get_async_event(a.qp->context, &event));
	CHECK(event.event_type == IBV_EVENT_SQ_DRAINED && event.element.qp == a.qp);
	ibv_ack_async_event(&event);
	struct ibv_send_wr waiting = request(type, &good, 8, IBV_SEND_SIGNALED);
	CHECK(!post_recv(&b, 201, 0, 1024) && !ibv_post_send(a.qp, &waiting, &refused));
	struct ibv_wc wc;
	for (int i = 0; i < 1000; i++)
		CHECK(!ibv_poll_cq(a.cq, 1, &wc));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(a.qp, &attr, IBV_QP_STATE));
	expect(a.cq, 8, IBV_WC_SUCCESS);
	expect(b.cq, 201, IBV_WC_SUCCESS);
	destroy_side(&a);
	destroy_side(&b);
}

int main(void)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_ah_attr address = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } };
	address.grh.sgid_index = loopback_gid(context, &address.grh.dgid);
	handle = ibv_create_ah(pd, &address);
	CHECK(handle);
	test(pd, IBV_QPT_UD);
	test(pd, IBV_QPT_UC);
	CHECK(!ibv_destroy_ah(handle) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("sqe: ok");
	return 0;
}
