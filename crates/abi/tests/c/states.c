/* The states of an RC queue pair as ibv_modify_qp, ibv_query_qp and posting show them: SQD with its event, what may change
 * in it, what each state takes, ERR and RESET. */
#include <fcntl.h>
#include "check.h"

static struct ibv_qp_attr query(struct ibv_qp *qp, struct ibv_qp_init_attr *init)
{
	struct ibv_qp_attr attr;
	memset(&attr, 0xee, sizeof(attr));
	CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, init));
	CHECK(attr.qp_state == attr.cur_qp_state && attr.qp_state == qp->state);
	return attr;
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	return query(qp, &init).qp_state;
}

static int move(struct ibv_qp *qp, enum ibv_qp_state state, int mask)
{
	struct ibv_qp_attr attr = { .qp_state = state, .en_sqd_async_notify = 1, .cur_qp_state = IBV_QPS_RTS };
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | mask);
}

static int send_one(struct side *side, uint64_t wr_id)
{
	struct ibv_send_wr wr = { .wr_id = wr_id, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad = NULL;
	int error = ibv_post_send(side->qp, &wr, &bad);
	CHECK(!error == !bad && (!bad || bad == &wr));
	return error;
}

static void expect_flush(struct ibv_cq *cq, uint64_t wr_id)
{
	struct ibv_wc wc = wait_wc(cq);
	CHECK(wc.wr_id == wr_id && wc.status == IBV_WC_WR_FLUSH_ERR && wc.vendor_err);
}

static void expect_nothing(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	for (int i = 0; i < 1000; i++)
		CHECK(!ibv_poll_cq(cq, 1, &wc));
}

static void expect_event(struct ibv_qp *qp, enum ibv_event_type type)
{
	struct ibv_async_event event;
	CHECK(!ibv_get_async_event(qp->context, &event));
	CHECK(event.event_type == type && event.element.qp == qp);
	ibv_ack_async_event(&event);
}

static void expect_no_event(struct ibv_context *context)
{
	struct ibv_async_event event;
	int flags = fcntl(context->async_fd, F_GETFL);
	CHECK(!fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK));
	CHECK(ibv_get_async_event(context, &event) == -1 && errno == EAGAIN);
	CHECK(!fcntl(context->async_fd, F_SETFL, flags));
}

/* Every attribute is told as it was set. */
static void test_query(struct side *a, struct side *b)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr = query(a->qp, &init);
	CHECK(init.qp_type == IBV_QPT_RC && init.send_cq == a->cq && init.recv_cq == a->cq && !init.srq);
	CHECK(init.cap.max_send_wr >= DEPTH && init.cap.max_recv_wr >= DEPTH && init.cap.max_send_sge >= 2);
	CHECK(init.cap.max_recv_sge >= 2 && init.cap.max_inline_data >= 64 && !init.sq_sig_all);
	CHECK(!memcmp(&attr.cap, &init.cap, sizeof(attr.cap)));
	CHECK(attr.qp_state == IBV_QPS_RTS && attr.path_mtu == IBV_MTU_1024 && attr.path_mig_state == IBV_MIG_MIGRATED);
	CHECK(attr.rq_psn == 100 && attr.sq_psn == 100 && attr.dest_qp_num == b->qp->qp_num && attr.port_num == 1);
	CHECK(attr.qp_access_flags == (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC));
	CHECK(attr.max_rd_atomic == 4 && attr.max_dest_rd_atomic == 4 && attr.min_rnr_timer == 12);
	CHECK(attr.timeout == 14 && attr.retry_cnt == 7 && attr.rnr_retry == 7 && attr.pkey_index == 0);
	CHECK(attr.ah_attr.is_global && attr.ah_attr.port_num == 1 && attr.ah_attr.grh.hop_limit == 64);
	CHECK(!attr.sq_draining && !attr.en_sqd_async_notify && !attr.alt_port_num && !attr.alt_timeout && !attr.rate_limit);
	union ibv_gid gid;
	CHECK(attr.ah_attr.grh.sgid_index == loopback_gid(a->qp->context, &gid));
	CHECK(!memcmp(&attr.ah_attr.grh.dgid, &gid, sizeof(gid)));
}

/* What RoCE has no path for. */
static void test_refusals(struct side *a)
{
	struct ibv_qp_attr attr = { .path_mig_state = IBV_MIG_REARM, .alt_port_num = 1, .rate_limit = 1000 };
	CHECK(ibv_modify_qp(a->qp, &attr, IBV_QP_PATH_MIG_STATE) == EINVAL);
	CHECK(ibv_modify_qp(a->qp, &attr, IBV_QP_ALT_PATH) == EOPNOTSUPP);
	CHECK(ibv_modify_qp(a->qp, &attr, IBV_QP_RATE_LIMIT) == EINVAL);
	CHECK(ibv_modify_qp(a->qp, &attr, IBV_QP_CAP) == EINVAL);
	struct ibv_qp_rate_limit_attr rate = { .rate_limit = 1000 };
	CHECK(ibv_modify_qp_rate_limit(a->qp, &rate) == EOPNOTSUPP);
	attr.path_mig_state = IBV_MIG_MIGRATED;
	CHECK(!ibv_modify_qp(a->qp, &attr, IBV_QP_PATH_MIG_STATE));
	struct ibv_ece ece = { .vendor_id = 0x15b3 };
	CHECK(ibv_query_ece(a->qp, &ece) == EOPNOTSUPP);
	CHECK(ibv_set_ece(a->qp, &ece) == EOPNOTSUPP);
	/* The program is wrong about the state it believes in. */
	attr.cur_qp_state = IBV_QPS_SQD;
	CHECK(ibv_modify_qp(a->qp, &attr, IBV_QP_CUR_STATE) == EINVAL);
	attr.cur_qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(a->qp, &attr, IBV_QP_CUR_STATE));
	/* RTS takes the rights and the RNR timer, nothing of the path. */
	attr.timeout = 3;
	CHECK(ibv_modify_qp(a->qp, &attr, IBV_QP_TIMEOUT) == EINVAL);
	CHECK(ibv_modify_qp(a->qp, &attr, IBV_QP_DEST_QPN) == EINVAL);
}

static void test_sqd(struct side *a, struct side *b)
{
	/* Nothing is under way: drained at once. Without the mask no event. */
	CHECK(!move(a->qp, IBV_QPS_SQD, 0) && a->qp->state == IBV_QPS_SQD);
	expect_no_event(a->qp->context);
	CHECK(!move(a->qp, IBV_QPS_RTS, 0));
	CHECK(!move(a->qp, IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY));
	expect_event(a->qp, IBV_EVENT_SQ_DRAINED);
	CHECK(!move(a->qp, IBV_QPS_RTS, IBV_QP_CUR_STATE) == 0); /* it is in SQD, not RTS */

	/* What is posted now waits. The other direction goes on. */
	CHECK(!post_recv(b, 10, 0, 64) && !post_recv(a, 11, 0, 64));
	CHECK(!send_one(a, 1) && !send_one(b, 2));
	expect_success(a->cq, 11, IBV_WC_RECV);
	expect_success(b->cq, 2, IBV_WC_SEND);
	expect_nothing(b->cq);
	/* Attributes that a queue at rest may change. */
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr = query(a->qp, &init);
	CHECK(attr.qp_state == IBV_QPS_SQD && !attr.sq_draining && attr.en_sqd_async_notify);
	attr.timeout = 10;
	attr.retry_cnt = 3;
	attr.rnr_retry = 0;
	attr.max_rd_atomic = 1;
	attr.max_dest_rd_atomic = 2;
	attr.min_rnr_timer = 1;
	attr.qp_access_flags = 0;
	attr.ah_attr.grh.hop_limit = 3;
	CHECK(!ibv_modify_qp(a->qp, &attr, IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_PORT |
		IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_ACCESS_FLAGS |
		IBV_QP_PKEY_INDEX));
	CHECK(ibv_modify_qp(a->qp, &attr, IBV_QP_PATH_MTU) == EINVAL);
	attr = query(a->qp, &init);
	CHECK(attr.qp_state == IBV_QPS_SQD && attr.timeout == 10 && attr.retry_cnt == 3 && attr.rnr_retry == 0);
	CHECK(attr.max_rd_atomic == 1 && attr.max_dest_rd_atomic == 2 && attr.min_rnr_timer == 1);
	CHECK(!attr.qp_access_flags && attr.ah_attr.grh.hop_limit == 3);
	attr.ah_attr.port_num = 0;
	CHECK(ibv_modify_qp(a->qp, &attr, IBV_QP_AV) == EINVAL);
	CHECK(!move(a->qp, IBV_QPS_RTS, 0));
	expect_success(b->cq, 10, IBV_WC_RECV);
	expect_success(a->cq, 1, IBV_WC_SEND);

	/* No receive: the send cannot end, so the queue drains for long. What is behind it waits. */
	struct ibv_qp_attr patient = { .rnr_retry = 7 };
	CHECK(!move(a->qp, IBV_QPS_SQD, 0) && !ibv_modify_qp(a->qp, &patient, IBV_QP_RNR_RETRY) && !move(a->qp, IBV_QPS_RTS, 0));
	CHECK(!send_one(a, 3));
	CHECK(!move(a->qp, IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY) && !send_one(a, 4));
	CHECK(query(a->qp, &init).sq_draining);
	CHECK(ibv_modify_qp(a->qp, &patient, IBV_QP_RNR_RETRY) == EINVAL);
	expect_no_event(a->qp->context);
	CHECK(!post_recv(b, 12, 0, 64) && !post_recv(b, 13, 0, 64));
	expect_success(b->cq, 12, IBV_WC_RECV);
	expect_success(a->cq, 3, IBV_WC_SEND);
	expect_event(a->qp, IBV_EVENT_SQ_DRAINED);
	CHECK(!query(a->qp, &init).sq_draining);
	expect_nothing(b->cq);
	CHECK(!move(a->qp, IBV_QPS_RTS, 0));
	expect_success(b->cq, 13, IBV_WC_RECV);
	expect_success(a->cq, 4, IBV_WC_SEND);
	expect_no_event(a->qp->context);
}

/* From SQD to ERR: what waits is flushed, sends before receives. */
static void test_error_and_reset(struct side *a, struct side *b)
{
	CHECK(!move(a->qp, IBV_QPS_SQD, 0));
	CHECK(!post_recv(a, 21, 0, 64) && !send_one(a, 22) && !post_recv(a, 23, 0, 64) && !send_one(a, 24));
	CHECK(!move(a->qp, IBV_QPS_ERR, 0) && state_of(a->qp) == IBV_QPS_ERR);
	expect_flush(a->cq, 22);
	expect_flush(a->cq, 24);
	expect_flush(a->cq, 21);
	expect_flush(a->cq, 23);
	CHECK(!send_one(a, 25) && !post_recv(a, 26, 0, 64));
	expect_flush(a->cq, 25);
	expect_flush(a->cq, 26);
	CHECK(!move(a->qp, IBV_QPS_ERR, 0));
	CHECK(move(a->qp, IBV_QPS_RTS, 0) == EINVAL && move(a->qp, IBV_QPS_INIT, 0) == EINVAL);

	/* RESET forgets attributes, work requests and completions nobody has polled. */
	CHECK(!send_one(a, 27) && !move(a->qp, IBV_QPS_RESET, 0));
	expect_nothing(a->cq);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr = query(a->qp, &init);
	CHECK(attr.qp_state == IBV_QPS_RESET && !attr.dest_qp_num && !attr.timeout && !attr.qp_access_flags);
	CHECK(attr.cap.max_send_wr >= DEPTH);
	CHECK(send_one(a, 28) == EINVAL && post_recv(a, 29, 0, 64) == EINVAL);
	CHECK(move(a->qp, IBV_QPS_ERR, 0) == EINVAL && !move(a->qp, IBV_QPS_RESET, 0));
	/* All slots are free again, in INIT receives are taken, sends are not. */
	to_init(a->qp);
	for (int i = 0; i < DEPTH; i++)
		CHECK(!post_recv(a, 30 + i, 0, 64));
	CHECK(send_one(a, 28) == EINVAL);
	/* A queue pair in INIT takes no packet: b's send is not answered. */
	CHECK(!send_one(b, 50));
	expect_nothing(a->cq);
	CHECK(!move(b->qp, IBV_QPS_RESET, 0));
	to_init(b->qp);
	to_rts(a->qp, b->qp->qp_num);
	to_rts(b->qp, a->qp->qp_num);
	CHECK(!send_one(b, 51));
	expect_success(a->cq, 30, IBV_WC_RECV);
	expect_success(b->cq, 51, IBV_WC_SEND);
}

/* With sq_sig_all every send completes; without, none that does not ask. */
static void test_signaling(struct ibv_pd *pd, struct side *b)
{
	struct ibv_cq *cq = ibv_create_cq(pd->context, 64, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 3, .max_recv_wr = 3, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 5 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp && init.cap.max_send_wr >= 3 && init.cap.max_recv_wr >= 3 && init.cap.max_inline_data >= 5);
	CHECK(!(init.cap.max_send_wr & (init.cap.max_send_wr - 1)) && !(init.cap.max_recv_wr & (init.cap.max_recv_wr - 1)));
	struct ibv_qp_init_attr asked;
	struct ibv_qp_attr attr = query(qp, &asked);
	CHECK(asked.sq_sig_all && !memcmp(&attr.cap, &init.cap, sizeof(init.cap)));
	to_init(qp);
	CHECK(!move(b->qp, IBV_QPS_RESET, 0));
	to_init(b->qp);
	to_rts(qp, b->qp->qp_num);
	to_rts(b->qp, qp->qp_num);
	char *text = malloc(init.cap.max_inline_data + 1);
	memset(text, 'x', init.cap.max_inline_data + 1);
	struct ibv_sge sge = { (uintptr_t)text, init.cap.max_inline_data, 0 };
	struct ibv_send_wr wr = { .wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE, .sg_list = &sge, .num_sge = 1 };
	struct ibv_send_wr *bad = NULL;
	CHECK(!post_recv(b, 2, 0, 4096) && !ibv_post_send(qp, &wr, &bad));
	memset(text, 'y', init.cap.max_inline_data); /* it was copied */
	expect_success(cq, 1, IBV_WC_SEND);
	expect_success(b->cq, 2, IBV_WC_RECV);
	CHECK(b->buffer[0] == 'x' && b->buffer[init.cap.max_inline_data - 1] == 'x');
	sge.length++;
	CHECK(ibv_post_send(qp, &wr, &bad) == ENOMEM && bad == &wr);
	/* As on ConnectX: more entries than the queue was made for are "no memory" in a send, "invalid" in a receive. */
	struct ibv_sge many[64] = { { 0 } };
	wr = (struct ibv_send_wr){ .opcode = IBV_WR_SEND, .sg_list = many, .num_sge = init.cap.max_send_sge + 1 };
	CHECK(ibv_post_send(qp, &wr, &bad) == ENOMEM && bad == &wr);
	struct ibv_recv_wr recv = { .sg_list = many, .num_sge = init.cap.max_recv_sge + 1 }, *bad_recv = NULL;
	CHECK(ibv_post_recv(qp, &recv, &bad_recv) == EINVAL && bad_recv == &recv);
	/* Destroyed with work under way: no completion is left behind. */
	wr = (struct ibv_send_wr){ .opcode = IBV_WR_SEND };
	for (unsigned i = 0; i < init.cap.max_send_wr; i++)
		CHECK(!ibv_post_send(qp, &wr, &bad));
	CHECK(ibv_post_send(qp, &wr, &bad) == ENOMEM && bad == &wr);
	CHECK(!ibv_destroy_qp(qp));
	expect_nothing(cq);
	CHECK(!ibv_destroy_cq(cq));
	free(text);
}

/* Sends that ended well without a completion, before one that failed, keep no place in the queue. */
static void test_room_after_failure(struct ibv_pd *pd)
{
	struct side a = make_side(pd, NULL), b = make_side(pd, NULL);
	to_rts(a.qp, b.qp->qp_num);
	to_rts(b.qp, a.qp->qp_num);
	struct ibv_qp_init_attr init;
	unsigned depth = query(a.qp, &init).cap.max_send_wr;
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;
	for (int i = 0; i < 5; i++)
		CHECK(!post_recv(&b, i, 0, 64) && !ibv_post_send(a.qp, &wr, &bad));
	for (int i = 0; i < 5; i++)
		expect_success(b.cq, i, IBV_WC_RECV);
	struct ibv_sge sge = { (uintptr_t)a.buffer, 8, ~a.mr->lkey };
	struct ibv_send_wr wrong = { .wr_id = 7, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1 };
	CHECK(!ibv_post_send(a.qp, &wrong, &bad));
	struct ibv_wc wc = wait_wc(a.cq); /* unsignaled, but it failed */
	CHECK(wc.wr_id == 7 && wc.status == IBV_WC_LOC_PROT_ERR && state_of(a.qp) == IBV_QPS_ERR);
	for (unsigned i = 0; i < depth; i++)
		CHECK(!ibv_post_send(a.qp, &wr, &bad));
	CHECK(ibv_post_send(a.qp, &wr, &bad) == ENOMEM);
	for (unsigned i = 0; i < depth; i++)
		expect_flush(a.cq, 0);
	CHECK(!ibv_post_send(a.qp, &wr, &bad));
	expect_flush(a.cq, 0);
	destroy_side(&a);
	destroy_side(&b);
}

int main(void)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct side a = make_side(pd, NULL), b = make_side(pd, NULL);
	to_rts(a.qp, b.qp->qp_num);
	to_rts(b.qp, a.qp->qp_num);
	test_query(&a, &b);
	test_refusals(&a);
	test_sqd(&a, &b);
	test_error_and_reset(&a, &b);
	test_signaling(pd, &b);
	test_room_after_failure(pd);
	destroy_side(&a);
	destroy_side(&b);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("states: ok");
	return 0;
}
