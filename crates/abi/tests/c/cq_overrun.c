/* A completion that finds its queue full: the queue reports an error once, and each queue pair that completes into it
 * fails; others live on. With IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN the oldest completion is lost instead. */
#include <poll.h>
#include "check.h"

enum { SMALL = 3, MANY = 6 };

static struct ibv_context *context;
static struct ibv_pd *pd;

static struct ibv_qp *make_qp(struct ibv_cq *send_cq, struct ibv_cq *recv_cq)
{
	struct ibv_qp_init_attr init = { .send_cq = send_cq, .recv_cq = recv_cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	to_init(qp);
	return qp;
}

static void connect_pair(struct ibv_qp *a, struct ibv_qp *b)
{
	to_rts(a, b->qp_num);
	to_rts(b, a->qp_num);
}

/* Empty sends and receives, numbered. */
static void post_sends(struct ibv_qp *qp, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		struct ibv_send_wr wr = { .wr_id = i, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
		CHECK(!ibv_post_send(qp, &wr, &bad));
	}
}

static void post_receives(struct ibv_qp *qp, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		struct ibv_recv_wr wr = { .wr_id = i }, *bad;
		CHECK(!ibv_post_recv(qp, &wr, &bad));
	}
}

static enum ibv_qp_state state(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

/* The next event of these two kinds; connections are established meanwhile. */
static struct ibv_async_event next_event(void)
{
	struct ibv_async_event event;
	for (;;) {
		CHECK(!ibv_get_async_event(context, &event));
		ibv_ack_async_event(&event);
		if (event.event_type != IBV_EVENT_COMM_EST)
			return event;
	}
}

static void expect_cq_error(struct ibv_cq *cq)
{
	struct ibv_async_event event = next_event();
	CHECK(event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == cq);
}

static void expect_qp_fatal(struct ibv_qp *qp)
{
	struct ibv_async_event event = next_event();
	CHECK(event.event_type == IBV_EVENT_QP_FATAL && event.element.qp == qp);
	CHECK(state(qp) == IBV_QPS_ERR);
}

static void expect_no_more_events(void)
{
	struct pollfd fd = { .fd = context->async_fd, .events = POLLIN };
	while (poll(&fd, 1, 0) == 1) {
		struct ibv_async_event event;
		CHECK(!ibv_get_async_event(context, &event));
		ibv_ack_async_event(&event);
		CHECK(event.event_type == IBV_EVENT_COMM_EST);
	}
}

int main(void)
{
	context = open_device();
	pd = ibv_alloc_pd(context);
	CHECK(pd);
	struct ibv_cq *large = ibv_create_cq(context, 100, NULL, NULL, 0);
	struct ibv_cq *small = ibv_create_cq(context, SMALL, NULL, NULL, 0);
	CHECK(large && small && small->cqe == SMALL);

	/* The sender's queue overruns. Nobody polls: the error is found all the same. */
	struct ibv_qp *sender = make_qp(small, large), *receiver = make_qp(large, large);
	struct ibv_qp *second = make_qp(small, large), *third = make_qp(small, large);
	connect_pair(sender, receiver);
	post_receives(receiver, MANY);
	post_sends(sender, MANY);
	expect_cq_error(small);
	expect_qp_fatal(sender);
	CHECK(ibv_resize_cq(small, 100) == EINVAL);
	struct ibv_wc wc[MANY];
	CHECK(ibv_poll_cq(small, MANY, wc) == SMALL);
	for (int i = 0; i < SMALL; i++)
		CHECK(wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id == (uint64_t)i);
	CHECK(!ibv_poll_cq(small, MANY, wc)); /* empty, and it stays so */

	/* Another queue pair that completes into it fails as well, one that has nothing to report does not. */
	struct ibv_qp *peer = make_qp(large, large), *idle = make_qp(large, large);
	connect_pair(second, peer);
	connect_pair(third, idle);
	post_receives(peer, 1);
	post_sends(second, 1);
	expect_qp_fatal(second);
	CHECK(!ibv_poll_cq(small, MANY, wc));
	CHECK(state(third) == IBV_QPS_RTS);
	expect_no_more_events();
	CHECK(ibv_destroy_cq(small) == EBUSY);
	CHECK(!ibv_destroy_qp(sender) && !ibv_destroy_qp(second) && !ibv_destroy_qp(third) && !ibv_destroy_cq(small));
	CHECK(!ibv_destroy_qp(receiver) && !ibv_destroy_qp(peer) && !ibv_destroy_qp(idle));
	while (ibv_poll_cq(large, MANY, wc))
		;

	/* The receiver's queue overruns: what it has taken is there; the sender's requests run into silence. */
	small = ibv_create_cq(context, SMALL, NULL, NULL, 0);
	CHECK(small);
	sender = make_qp(large, large);
	receiver = make_qp(large, small);
	connect_pair(sender, receiver);
	post_receives(receiver, MANY);
	post_sends(sender, SMALL + 1);
	expect_cq_error(small);
	expect_qp_fatal(receiver);
	CHECK(ibv_poll_cq(small, MANY, wc) == SMALL && wc[SMALL - 1].status == IBV_WC_SUCCESS);
	CHECK(!ibv_destroy_qp(receiver) && !ibv_destroy_qp(sender) && !ibv_destroy_cq(small));
	while (ibv_poll_cq(large, MANY, wc))
		;

	/* A flush that overruns while the program only waits for events. */
	small = ibv_create_cq(context, SMALL, NULL, NULL, 0);
	CHECK(small);
	receiver = make_qp(large, small);
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	CHECK(!ibv_modify_qp(receiver, &error, IBV_QP_STATE));
	post_receives(receiver, MANY);
	expect_cq_error(small);
	expect_qp_fatal(receiver);
	CHECK(ibv_poll_cq(small, MANY, wc) == SMALL && wc[0].status == IBV_WC_WR_FLUSH_ERR);
	CHECK(!ibv_destroy_qp(receiver) && !ibv_destroy_cq(small));

	/* Without overrun check: the newest completions are kept, nobody fails. */
	struct ibv_cq_init_attr_ex lossy = { .cqe = SMALL, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN };
	struct ibv_cq_ex *ex = ibv_create_cq_ex(context, &lossy);
	CHECK(ex);
	small = ibv_cq_ex_to_cq(ex);
	sender = make_qp(small, large);
	receiver = make_qp(large, large);
	connect_pair(sender, receiver);
	post_receives(receiver, MANY);
	post_sends(sender, MANY - 1);
	struct ibv_send_wr marker = { .wr_id = MANY - 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	CHECK(!ibv_post_send(sender, &marker, &bad));
	int found = 0;
	for (uint64_t last = 0; last != MANY - 1; found++) {
		CHECK(found < MANY);
		wc[0] = wait_wc(small);
		CHECK(wc[0].status == IBV_WC_SUCCESS && (!last || wc[0].wr_id > last));
		last = wc[0].wr_id;
	}
	CHECK(state(sender) == IBV_QPS_RTS);
	expect_no_more_events();
	/* Lost or polled, the room in the send queue is free again. */
	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < MANY; i++)
			expect_success(large, i, IBV_WC_RECV);
		post_receives(receiver, MANY);
		post_sends(sender, MANY);
		do
			wc[0] = wait_wc(small);
		while (wc[0].wr_id != MANY - 1);
	}
	CHECK(!ibv_destroy_qp(sender) && !ibv_destroy_qp(receiver) && !ibv_destroy_cq(small) && !ibv_destroy_cq(large));
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("cq_overrun: ok");
	return 0;
}
