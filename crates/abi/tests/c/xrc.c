/* XRC: initiators name the shared receive queue that a message is for; targets have no receives of their own. */
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#include "check.h"

enum { SLOT = 64 };

static struct ibv_context *context;

/* A protection domain with an XRC shared receive queue in it. */
struct receiver {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	uint32_t number;
	_Alignas(8) char buffer[DEPTH * SLOT];
};

static struct ibv_xrcd *open_xrcd(int fd, int oflags)
{
	struct ibv_xrcd_init_attr attr = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd,
		.oflags = oflags };
	return ibv_open_xrcd(context, &attr);
}

static void make_receiver(struct receiver *r, struct ibv_xrcd *xrcd)
{
	r->pd = ibv_alloc_pd(context);
	r->cq = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
	struct ibv_srq_init_attr_ex init = { .attr = { .max_wr = DEPTH, .max_sge = 1 }, .srq_type = IBV_SRQT_XRC,
		.pd = r->pd, .xrcd = xrcd, .cq = r->cq,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD };
	CHECK(!ibv_create_srq_ex(context, &init) && errno == EINVAL);
	init.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
	r->srq = ibv_create_srq_ex(context, &init);
	CHECK(r->srq && !ibv_get_srq_num(r->srq, &r->number) && r->number);
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	r->mr = ibv_reg_mr(r->pd, r->buffer, sizeof r->buffer, access);
	CHECK(r->mr);
	/* Its receives are for XRC targets alone. */
	struct ibv_qp_init_attr rc = { .send_cq = r->cq, .recv_cq = r->cq, .srq = r->srq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_send_sge = 1 } };
	errno = 0;
	CHECK(!ibv_create_qp(r->pd, &rc) && errno == EINVAL);
}

static void post(struct receiver *r, uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)r->buffer + wr_id * SLOT, SLOT, r->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(!ibv_post_srq_recv(r->srq, &wr, &bad));
}

/* One connection: an initiator with a buffer, and a target in the domain. */
struct connection {
	struct ibv_qp *initiator, *target;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char buffer[SLOT];
};

static void connect_qp(struct ibv_qp *qp, uint32_t peer)
{
	to_init(qp);
	int responds = qp->qp_type == IBV_QPT_XRC_RECV;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .rq_psn = 100,
		.max_dest_rd_atomic = 4, .min_rnr_timer = 1, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .sq_psn = 100,
		.max_rd_atomic = 4 };
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.sgid_index = loopback_gid(context, &attr.ah_attr.grh.dgid);
	int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
		responder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN,
		requester = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	/* Each end needs what concerns it; what concerns the other is ignored, so that both can be treated like RC. */
	CHECK(ibv_modify_qp(qp, &attr, rtr) == (responds ? EINVAL : 0));
	if (responds)
		CHECK(!ibv_modify_qp(qp, &attr, rtr | responder));
	attr.qp_state = IBV_QPS_RTS;
	if (!responds)
		CHECK(ibv_modify_qp(qp, &attr, rts) == EINVAL);
	CHECK(!ibv_modify_qp(qp, &attr, rts | requester));
	CHECK(qp->state == IBV_QPS_RTS);
}

static void make_connection(struct connection *c, struct ibv_pd *pd, struct ibv_xrcd *xrcd)
{
	c->cq = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
	/* What the receive side would be does not matter to an initiator. */
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_XRC_SEND, .send_cq = c->cq, .pd = pd,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = UINT32_MAX, .max_send_sge = 1,
			.max_recv_sge = UINT32_MAX },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM };
	c->initiator = ibv_create_qp_ex(context, &init);
	CHECK(c->initiator && c->initiator->qp_type == IBV_QPT_XRC_SEND && init.cap.max_recv_wr == 0);
	struct ibv_qp_init_attr_ex recv = { .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd };
	CHECK(!ibv_create_qp_ex(context, &recv) && errno == EINVAL);
	recv.comp_mask = IBV_QP_INIT_ATTR_XRCD;
	recv.xrcd = xrcd;
	c->target = ibv_create_qp_ex(context, &recv);
	CHECK(c->target && !c->target->pd && !c->target->recv_cq && !ibv_qp_to_qp_ex(c->target));
	connect_qp(c->initiator, c->target->qp_num);
	connect_qp(c->target, c->initiator->qp_num);
	struct ibv_recv_wr none = { .wr_id = 1 }, *bad;
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND }, *bad_send;
	CHECK(ibv_post_recv(c->initiator, &none, &bad) == EINVAL && ibv_post_recv(c->target, &none, &bad) == EINVAL);
	CHECK(ibv_post_send(c->target, &send, &bad_send) == EINVAL);
	c->mr = ibv_reg_mr(pd, c->buffer, sizeof c->buffer, IBV_ACCESS_LOCAL_WRITE);
	CHECK(c->mr);
}

static void destroy_connection(struct connection *c)
{
	CHECK(!ibv_destroy_qp(c->initiator) && !ibv_destroy_qp(c->target) && !ibv_dereg_mr(c->mr) && !ibv_destroy_cq(c->cq));
}

/* Posts one work request for the shared receive queue `srqn`, and gives its status. */
static enum ibv_wc_status work(struct connection *c, enum ibv_wr_opcode opcode, uint32_t srqn, struct receiver *memory)
{
	struct ibv_sge sge = { (uintptr_t)c->buffer, 8, c->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 3, .opcode = opcode, .sg_list = &sge, .num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED, .imm_data = 77, .qp_type.xrc.remote_srqn = srqn }, *bad;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)memory->buffer;
		wr.wr.atomic.rkey = memory->mr->rkey;
		wr.wr.atomic.compare_add = 1;
	} else if (memory) {
		wr.wr.rdma.remote_addr = (uintptr_t)memory->buffer;
		wr.wr.rdma.rkey = memory->mr->rkey;
	}
	CHECK(!ibv_post_send(c->initiator, &wr, &bad));
	struct ibv_wc wc = wait_wc(c->cq);
	CHECK(wc.wr_id == 3 && wc.qp_num == c->initiator->qp_num);
	return wc.status;
}

/* The next completion of a receiver: a receive through this target. */
static void expect_receive(struct receiver *r, struct connection *c, uint64_t wr_id, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc = wait_wc(r->cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == wr_id && wc.opcode == opcode && wc.byte_len == 8);
	CHECK(wc.qp_num == c->target->qp_num && wc.src_qp == c->initiator->qp_num);
}

static void domains(void)
{
	struct ibv_xrcd_init_attr bare = { .fd = -1 };
	CHECK(!ibv_open_xrcd(context, &bare) && errno == EINVAL);
	CHECK(!open_xrcd(1 << 20, O_CREAT) && errno == EBADF);
	char name[] = "/tmp/rnic-xrcd-XXXXXX";
	int fd = mkstemp(name), again = open(name, O_RDONLY);
	CHECK(fd >= 0 && again >= 0 && !unlink(name));
	CHECK(!open_xrcd(fd, 0) && errno == EAGAIN);
	struct ibv_xrcd *first = open_xrcd(fd, O_CREAT | O_EXCL);
	CHECK(first && first->context == context);
	CHECK(!open_xrcd(again, O_CREAT | O_EXCL) && errno == EINVAL);
	struct ibv_xrcd *second = open_xrcd(again, 0);
	CHECK(second && second != first);

	/* A target made through one is found through the other, and lives until its last handle is gone. */
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = first };
	struct ibv_qp *qp = ibv_create_qp_ex(context, &init);
	CHECK(qp && ibv_close_xrcd(first) == EBUSY);
	struct ibv_qp_open_attr open = { .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE |
		IBV_QP_OPEN_ATTR_CONTEXT, .qp_num = qp->qp_num, .xrcd = second, .qp_context = &init, .qp_type = IBV_QPT_XRC_RECV };
	struct ibv_qp *other = ibv_open_qp(context, &open);
	CHECK(other && other != qp && other->qp_num == qp->qp_num && other->qp_context == &init);
	to_init(other);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr same;
	CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &same) && attr.qp_state == IBV_QPS_INIT);
	CHECK(!ibv_destroy_qp(qp) && !ibv_close_xrcd(first));
	CHECK(!ibv_query_qp(other, &attr, IBV_QP_STATE, &same) && attr.qp_state == IBV_QPS_INIT);
	CHECK(ibv_close_xrcd(second) == EBUSY && !ibv_destroy_qp(other));
	CHECK(!ibv_open_qp(context, &open) && errno == EINVAL);
	/* Gone with its last opening. */
	CHECK(!ibv_close_xrcd(second) && !open_xrcd(fd, 0) && errno == EAGAIN);
	CHECK(!close(fd) && !close(again));
}

/* Waits for an event of this queue pair's and acknowledges it. */
static void expect_event(enum ibv_event_type type, struct ibv_qp *qp)
{
	struct pollfd readable = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_async_event event;
	CHECK(poll(&readable, 1, 60000) == 1 && !ibv_get_async_event(context, &event));
	CHECK(event.event_type == type && event.element.qp == qp);
	ibv_ack_async_event(&event);
}

int main(void)
{
	context = open_device();
	struct ibv_device_attr device;
	CHECK(!ibv_query_device(context, &device) && device.device_cap_flags & IBV_DEVICE_XRC);
	domains();

	struct ibv_xrcd *xrcd = open_xrcd(-1, O_CREAT), *foreign = open_xrcd(-1, O_CREAT);
	CHECK(xrcd && foreign);
	static struct receiver a, b, c;
	make_receiver(&a, xrcd);
	make_receiver(&b, xrcd);
	make_receiver(&c, foreign);
	CHECK(a.number != b.number && b.number != c.number);
	CHECK(ibv_close_xrcd(xrcd) == EBUSY && ibv_destroy_cq(a.cq) == EBUSY);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd);
	static struct connection one, two;
	make_connection(&one, pd, xrcd);
	make_connection(&two, pd, xrcd);

	/* Two connections, two queues: the sender chooses. The completion is the queue's, and names the target. */
	post(&a, 1);
	post(&b, 1);
	post(&a, 2);
	strcpy(one.buffer, "first");
	strcpy(two.buffer, "second");
	CHECK(work(&one, IBV_WR_SEND, b.number, NULL) == IBV_WC_SUCCESS);
	CHECK(work(&two, IBV_WR_SEND, a.number, NULL) == IBV_WC_SUCCESS);
	CHECK(work(&one, IBV_WR_SEND_WITH_IMM, a.number, NULL) == IBV_WC_SUCCESS);
	expect_receive(&b, &one, 1, IBV_WC_RECV);
	CHECK(!strcmp(b.buffer + SLOT, "first"));
	expect_receive(&a, &two, 1, IBV_WC_RECV);
	CHECK(!strcmp(a.buffer + SLOT, "second"));
	expect_receive(&a, &one, 2, IBV_WC_RECV);

	/* The same by ibv_wr_*. */
	post(&b, 3);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(one.initiator);
	CHECK(ex);
	ibv_wr_start(ex);
	ex->wr_id = 4;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(ex);
	ibv_wr_set_xrc_srqn(ex, b.number);
	ibv_wr_set_sge(ex, one.mr->lkey, (uintptr_t)one.buffer, 8);
	CHECK(!ibv_wr_complete(ex));
	expect_success(one.cq, 4, IBV_WC_SEND);
	expect_receive(&b, &one, 3, IBV_WC_RECV);

	/* WRITE, READ and atomics work in the protection domain of the queue that they name. */
	CHECK(work(&one, IBV_WR_RDMA_WRITE, a.number, &a) == IBV_WC_SUCCESS && !strcmp(a.buffer, "first"));
	memset(one.buffer, 0, 8);
	CHECK(work(&one, IBV_WR_RDMA_READ, a.number, &a) == IBV_WC_SUCCESS && !strcmp(one.buffer, "first"));
	post(&b, 5);
	CHECK(work(&one, IBV_WR_RDMA_WRITE_WITH_IMM, b.number, &b) == IBV_WC_SUCCESS && !strcmp(b.buffer, "first"));
	expect_receive(&b, &one, 5, IBV_WC_RECV_RDMA_WITH_IMM);
	memset(b.buffer, 0, 8);
	CHECK(work(&one, IBV_WR_ATOMIC_FETCH_AND_ADD, b.number, &b) == IBV_WC_SUCCESS && *(uint64_t *)b.buffer == 1);

	/* An empty queue puts the sender off. */
	struct ibv_sge sge = { (uintptr_t)two.buffer, 8, two.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 6, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED, .qp_type.xrc.remote_srqn = a.number }, *bad;
	CHECK(!ibv_post_send(two.initiator, &wr, &bad));
	usleep(5000);
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(two.cq, 1, &wc) == 0);
	post(&a, 6);
	expect_receive(&a, &two, 6, IBV_WC_RECV);
	expect_success(two.cq, 6, IBV_WC_SEND);

	/* Another handle of the target gets the events too. */
	struct ibv_qp_open_attr attr = { .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = two.target->qp_num, .xrcd = xrcd, .qp_type = IBV_QPT_XRC_RECV };
	struct ibv_qp *other = ibv_open_qp(context, &attr);
	CHECK(other && other->state == IBV_QPS_RTS);
	/* A key of another domain than that of the queue that is named. */
	CHECK(work(&two, IBV_WR_RDMA_WRITE, a.number, &b) == IBV_WC_REM_ACCESS_ERR);
	expect_event(IBV_EVENT_QP_LAST_WQE_REACHED, two.target);
	expect_event(IBV_EVENT_QP_LAST_WQE_REACHED, other);
	expect_event(IBV_EVENT_QP_ACCESS_ERR, two.target);
	expect_event(IBV_EVENT_QP_ACCESS_ERR, other);
	CHECK(!ibv_destroy_qp(other));
	destroy_connection(&two);

	/* A queue of another XRC domain, and one that does not exist any more. */
	CHECK(work(&one, IBV_WR_SEND, c.number, NULL) == IBV_WC_REM_INV_REQ_ERR);
	expect_event(IBV_EVENT_QP_LAST_WQE_REACHED, one.target);
	expect_event(IBV_EVENT_QP_REQ_ERR, one.target);
	destroy_connection(&one);
	make_connection(&two, pd, xrcd);
	post(&b, 7);
	CHECK(work(&two, IBV_WR_SEND, b.number, NULL) == IBV_WC_SUCCESS);
	CHECK(!ibv_destroy_srq(b.srq));
	/* Completions go with their queue. */
	CHECK(ibv_poll_cq(b.cq, 1, &wc) == 0);
	CHECK(work(&two, IBV_WR_SEND, b.number, NULL) == IBV_WC_REM_INV_REQ_ERR);
	struct ibv_qp_attr state;
	struct ibv_qp_init_attr init;
	CHECK(!ibv_query_qp(two.target, &state, IBV_QP_STATE, &init) && state.qp_state == IBV_QPS_ERR);
	destroy_connection(&two);

	CHECK(!ibv_destroy_srq(a.srq) && !ibv_destroy_srq(c.srq));
	struct receiver *all[] = { &a, &b, &c };
	for (int i = 0; i < 3; i++)
		CHECK(!ibv_dereg_mr(all[i]->mr) && !ibv_destroy_cq(all[i]->cq) && !ibv_dealloc_pd(all[i]->pd));
	CHECK(!ibv_close_xrcd(xrcd) && !ibv_close_xrcd(foreign) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("xrc: ok");
	return 0;
}
