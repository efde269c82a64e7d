/* One shared receive queue for queue pairs of three services: RC, UC and UD. */
#include "datagram.h"
#include <poll.h>

enum { SLOT = 128 };

static struct ibv_context *context;
static struct ibv_mr *srq_mr;
static char srq_buffer[DEPTH * SLOT];

static void post_srq(struct ibv_srq *srq, uint64_t wr_id, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)srq_buffer + wr_id * SLOT, length, srq_mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(!ibv_post_srq_recv(srq, &wr, &bad));
}

static struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_srq *srq, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = type,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp && qp->srq == srq);
	if (type == IBV_QPT_UD) {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
		CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
		attr.qp_state = IBV_QPS_RTR;
		CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
		attr.qp_state = IBV_QPS_RTS;
		CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	} else {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
		CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	}
	if (srq) {
		struct ibv_recv_wr wr = { .wr_id = 1 }, *bad;
		CHECK(ibv_post_recv(qp, &wr, &bad) == EINVAL);
	}
	return qp;
}

static void connect_uc(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .rq_psn = 5,
		.sq_psn = 5 };
	attr.ah_attr = (struct ibv_ah_attr){ .is_global = 1, .port_num = 1 };
	attr.ah_attr.grh.sgid_index = loopback_gid(context, &attr.ah_attr.grh.dgid);
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

static void send_text(struct ibv_qp *qp, struct ibv_mr *mr, const char *text, struct ibv_ah *ah, uint32_t to)
{
	strcpy(mr->addr, text);
	struct ibv_sge sge = { (uintptr_t)mr->addr, strlen(text) + 1, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 7, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED }, *bad;
	if (ah) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = to;
		wr.wr.ud.remote_qkey = QKEY;
	}
	CHECK(!ibv_post_send(qp, &wr, &bad));
	expect_success(qp->send_cq, 7, IBV_WC_SEND);
}

/* The next completion: `text`, received by `qp` into the receive `wr_id`, behind `front` bytes. */
static void expect_text(struct ibv_qp *qp, uint64_t wr_id, const char *text, uint32_t front)
{
	struct ibv_wc wc = wait_wc(qp->recv_cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.wr_id == wr_id && wc.qp_num == qp->qp_num);
	CHECK(wc.byte_len == front + strlen(text) + 1 && !strcmp(srq_buffer + wr_id * SLOT + front, text));
}

int main(void)
{
	context = open_device();
	/* The receives' memory is in the domain of the shared receive queue, where the queue pairs are not. */
	struct ibv_pd *pd = ibv_alloc_pd(context), *srq_pd = ibv_alloc_pd(context);
	srq_mr = ibv_reg_mr(srq_pd, srq_buffer, sizeof srq_buffer, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_srq_init_attr init = { .attr = { .max_wr = DEPTH - 1, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(srq_pd, &init);
	struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0), *send_cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	static char buffer[SLOT];
	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_ah *ah = make_ah(pd, NULL);
	CHECK(pd && srq_mr && srq && cq && send_cq && mr && ah);

	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	struct ibv_qp *from[3], *to[3];
	for (int i = 0; i < 3; i++) {
		from[i] = make_qp(pd, send_cq, NULL, types[i]);
		to[i] = make_qp(pd, cq, srq, types[i]);
	}
	to_rts(from[0], to[0]->qp_num);
	to_rts(to[0], from[0]->qp_num);
	connect_uc(from[1], to[1]->qp_num);
	connect_uc(to[1], from[1]->qp_num);

	for (int i = 0; i < 6; i++)
		post_srq(srq, i, SLOT);
	send_text(from[2], mr, "by datagram", ah, to[2]->qp_num);
	expect_text(to[2], 0, "by datagram", GRH);
	send_text(from[1], mr, "unreliably", NULL, 0);
	expect_text(to[1], 1, "unreliably", 0);
	send_text(from[0], mr, "reliably", NULL, 0);
	expect_text(to[0], 2, "reliably", 0);
	send_text(from[2], mr, "again", ah, to[2]->qp_num);
	expect_text(to[2], 3, "again", GRH);

	/* In ERR none of them touches the receives, and each says that it is done with them. */
	for (int i = 1; i < 3; i++) {
		struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
		CHECK(!ibv_modify_qp(to[i], &error, IBV_QP_STATE));
		struct pollfd readable = { .fd = context->async_fd, .events = POLLIN };
		struct ibv_async_event event;
		CHECK(poll(&readable, 1, 60000) == 1 && !ibv_get_async_event(context, &event));
		CHECK(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && event.element.qp == to[i]);
		ibv_ack_async_event(&event);
	}
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
	send_text(from[0], mr, "still there", NULL, 0);
	expect_text(to[0], 4, "still there", 0);

	/* Reset and destroyed in whatever state, they leave the last receive where it is. */
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	CHECK(!ibv_modify_qp(to[1], &reset, IBV_QP_STATE));
	send_text(from[0], mr, "the last one", NULL, 0);
	expect_text(to[0], 5, "the last one", 0);
	CHECK(ibv_destroy_srq(srq) == EBUSY);
	for (int i = 0; i < 3; i++)
		CHECK(!ibv_destroy_qp(from[i]) && !ibv_destroy_qp(to[i]));
	CHECK(!ibv_destroy_ah(ah) && !ibv_destroy_srq(srq) && !ibv_destroy_cq(cq) && !ibv_destroy_cq(send_cq));
	CHECK(!ibv_dereg_mr(mr) && !ibv_dereg_mr(srq_mr) && !ibv_dealloc_pd(pd) && !ibv_dealloc_pd(srq_pd));
	CHECK(!ibv_close_device(context));
	puts("srq_services: ok");
	return 0;
}
