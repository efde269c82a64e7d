/* A shared receive queue: several queue pairs take their receives from it; limit event, RNR, last WQE reached. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include "check.h"

enum { SIDES = 3, SLOT = 64 };

static struct ibv_context *context;
static struct ibv_mr *srq_mr;
static char srq_buffer[DEPTH * 4 * SLOT];

static int post_srq(struct ibv_srq *srq, uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)srq_buffer + wr_id * SLOT, SLOT, srq_mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad = NULL;
	int error = ibv_post_srq_recv(srq, &wr, &bad);
	CHECK(error ? bad == &wr : !bad);
	return error;
}

/* A queue pair that receives from `srq`, in INIT. Whatever it asks for of a receive queue of its own, it has none. */
static struct ibv_qp *receiver(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = UINT32_MAX, .max_send_sge = 1, .max_recv_sge = UINT32_MAX } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp && qp->srq == srq);
	CHECK(init.cap.max_recv_wr == 0 && init.cap.max_recv_sge == 0);
	struct ibv_recv_wr wr = { .wr_id = 1 }, *bad;
	to_init(qp);
	CHECK(ibv_post_recv(qp, &wr, &bad) == EINVAL && bad == &wr);
	struct ibv_qp_attr attr;
	CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) && init.srq == srq);
	return qp;
}

static void send_text(struct side *from, const char *text)
{
	strcpy(from->buffer, text);
	struct ibv_sge sge = { (uintptr_t)from->buffer, strlen(text) + 1, from->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 7, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED }, *bad;
	CHECK(!ibv_post_send(from->qp, &wr, &bad));
}

/* The next completion: a receive of `text` by `qp` into the buffer that its wr_id names. */
static uint64_t expect_text(struct ibv_cq *cq, struct ibv_qp *qp, const char *text)
{
	struct ibv_wc wc = wait_wc(cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.qp_num == qp->qp_num);
	CHECK(wc.byte_len == strlen(text) + 1 && !strcmp(srq_buffer + wc.wr_id * SLOT, text));
	return wc.wr_id;
}

/* No event is waiting. */
static void expect_quiet(void)
{
	struct ibv_async_event event;
	CHECK(ibv_get_async_event(context, &event) == -1 && errno == EAGAIN);
}

/* The next event, which concerns `object`. */
static struct ibv_async_event expect_event(enum ibv_event_type type, void *object)
{
	struct pollfd readable = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_async_event event;
	CHECK(poll(&readable, 1, 60000) == 1 && !ibv_get_async_event(context, &event));
	CHECK(event.event_type == type && (void *)event.element.srq == object);
	return event;
}

static uint32_t limit_of(struct ibv_srq *srq)
{
	struct ibv_srq_attr attr;
	CHECK(!ibv_query_srq(srq, &attr));
	return attr.srq_limit;
}

static int arm(struct ibv_srq *srq, uint32_t limit)
{
	struct ibv_srq_attr attr = { .srq_limit = limit };
	return ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT);
}

static void refusals(struct ibv_pd *pd)
{
	struct ibv_device_attr device;
	CHECK(!ibv_query_device(context, &device));
	CHECK(device.max_srq > 0 && device.max_srq_wr > 0 && device.max_srq_sge > 0);
	CHECK(device.device_cap_flags & IBV_DEVICE_SRQ_RESIZE);
	struct ibv_srq_init_attr none = { .attr = { .max_wr = 0, .max_sge = 1 } };
	CHECK(!ibv_create_srq(pd, &none) && errno == EINVAL);
	struct ibv_srq_init_attr deep = { .attr = { .max_wr = device.max_srq_wr + 1, .max_sge = 1 } };
	CHECK(!ibv_create_srq(pd, &deep) && errno == EINVAL);
	struct ibv_srq_init_attr wide = { .attr = { .max_wr = 1, .max_sge = device.max_srq_sge + 1 } };
	CHECK(!ibv_create_srq(pd, &wide) && errno == EINVAL);
	struct ibv_srq_init_attr most = { .attr = { .max_wr = device.max_srq_wr, .max_sge = device.max_srq_sge } };
	struct ibv_srq *srq = ibv_create_srq(pd, &most);
	CHECK(srq && most.attr.max_wr == (uint32_t)device.max_srq_wr);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	CHECK(!ibv_destroy_srq(srq));
}

/* Too many entries, a full queue, more room. */
static void posting(struct ibv_pd *pd)
{
	struct ibv_srq_init_attr_ex init = { .attr = { .max_wr = 5, .max_sge = 2 }, .pd = pd, .srq_type = IBV_SRQT_BASIC,
		.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE };
	struct ibv_srq *srq = ibv_create_srq_ex(context, &init);
	CHECK(srq && srq->context == context && srq->pd == pd);
	uint32_t room = init.attr.max_wr, number = 0;
	CHECK(room >= 5 && init.attr.max_sge == 2);
	CHECK(!ibv_get_srq_num(srq, &number) && number && number < 1 << 24);

	struct ibv_sge sge[3] = { { (uintptr_t)srq_buffer, 1, srq_mr->lkey }, { (uintptr_t)srq_buffer, 1, srq_mr->lkey } };
	struct ibv_recv_wr third = { .wr_id = 3 }, second = { .wr_id = 2, .sg_list = sge, .num_sge = 3, .next = &third },
		first = { .wr_id = 1, .sg_list = sge, .num_sge = 2, .next = &second }, *bad;
	CHECK(ibv_post_srq_recv(srq, &first, &bad) == EINVAL && bad == &second);
	for (uint32_t posted = 1; posted < room; posted++)
		CHECK(!post_srq(srq, 0));
	CHECK(post_srq(srq, 0) == ENOMEM);

	struct ibv_srq_attr attr = { .max_wr = room + 1 };
	CHECK(!ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR));
	CHECK(!ibv_query_srq(srq, &attr) && attr.max_wr > room && attr.max_sge == 2 && attr.srq_limit == 0);
	CHECK(!post_srq(srq, 0));
	/* Not below what is posted, and nothing else than size and limit. */
	struct ibv_srq_attr small = { .max_wr = 1 };
	CHECK(ibv_modify_srq(srq, &small, IBV_SRQ_MAX_WR) == EINVAL);
	CHECK(ibv_modify_srq(srq, &small, 4) == EINVAL);
	CHECK(arm(srq, attr.max_wr + 1) == EINVAL && limit_of(srq) == 0);
	CHECK(!ibv_destroy_srq(srq));
}

static atomic_int acknowledged;

static void *acknowledge_later(void *event)
{
	struct timespec pause = { .tv_nsec = 50000000 };
	nanosleep(&pause, NULL);
	atomic_store(&acknowledged, 1);
	ibv_ack_async_event(event);
	return NULL;
}

static void *destroy(void *srq)
{
	CHECK(!ibv_destroy_srq(srq));
	return NULL;
}

/* While its destruction waits for an acknowledgement, a queue is still there for whoever took the event, and good for
 * nothing: above all it sends no further event, which would name what is freed. */
static void use_while_destroyed(struct ibv_pd *pd)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 7, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	CHECK(srq && !arm(srq, 1));
	struct ibv_async_event event = expect_event(IBV_EVENT_SRQ_LIMIT_REACHED, srq);
	pthread_t thread;
	CHECK(!pthread_create(&thread, NULL, destroy, srq));
	struct ibv_srq_attr attr;
	int gone;
	for (time_t end = time(NULL) + 60; !(gone = ibv_query_srq(srq, &attr));)
		CHECK(time(NULL) < end);
	CHECK(gone == EINVAL);
	CHECK(post_srq(srq, 0) == EINVAL && arm(srq, 1) == EINVAL);
	expect_quiet();
	ibv_ack_async_event(&event);
	CHECK(!pthread_join(thread, NULL));
	expect_quiet();
}

int main(void)
{
	context = open_device();
	CHECK(!fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK));
	/* The receives' memory belongs to the domain of the shared receive queue, not to that of the queue pairs. */
	struct ibv_pd *pd = ibv_alloc_pd(context), *srq_pd = ibv_alloc_pd(context);
	CHECK(pd && srq_pd);
	srq_mr = ibv_reg_mr(srq_pd, srq_buffer, sizeof srq_buffer, IBV_ACCESS_LOCAL_WRITE);
	CHECK(srq_mr);
	refusals(srq_pd);
	posting(srq_pd);

	struct ibv_srq_init_attr init = { .srq_context = &srq_mr, .attr = { .max_wr = 7, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(srq_pd, &init);
	CHECK(srq && srq->srq_context == &srq_mr && init.attr.max_wr == 7);
	struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	CHECK(cq);
	struct side senders[SIDES];
	struct ibv_qp *qps[SIDES];
	for (int i = 0; i < SIDES; i++) {
		senders[i] = make_side(pd, NULL);
		qps[i] = receiver(pd, cq, srq);
		to_rts(senders[i].qp, qps[i]->qp_num);
		to_rts(qps[i], senders[i].qp->qp_num);
	}
	CHECK(ibv_destroy_srq(srq) == EBUSY);

	/* Oldest first, whoever gets the message. */
	for (int i = 0; i < 7; i++)
		CHECK(!post_srq(srq, i));
	CHECK(post_srq(srq, 7) == ENOMEM);
	CHECK(!arm(srq, 5) && limit_of(srq) == 5);
	send_text(&senders[2], "two");
	CHECK(expect_text(cq, qps[2], "two") == 0);
	expect_success(senders[2].cq, 7, IBV_WC_SEND);
	send_text(&senders[0], "zero");
	expect_success(senders[0].cq, 7, IBV_WC_SEND);
	/* The place of a receive is free when its completion was polled, not before. */
	CHECK(!post_srq(srq, 7) && post_srq(srq, 8) == ENOMEM);
	CHECK(expect_text(cq, qps[0], "zero") == 1);
	expect_quiet();

	/* Six are left. Below five the event comes, once. */
	send_text(&senders[1], "one");
	CHECK(expect_text(cq, qps[1], "one") == 2);
	expect_quiet();
	send_text(&senders[1], "again");
	CHECK(expect_text(cq, qps[1], "again") == 3);
	struct ibv_async_event event = expect_event(IBV_EVENT_SRQ_LIMIT_REACHED, srq);
	ibv_ack_async_event(&event);
	CHECK(limit_of(srq) == 0);
	send_text(&senders[1], "more");
	CHECK(expect_text(cq, qps[1], "more") == 4);
	expect_quiet();
	/* Armed above what is posted: at once. */
	CHECK(!arm(srq, 4));
	event = expect_event(IBV_EVENT_SRQ_LIMIT_REACHED, srq);
	ibv_ack_async_event(&event);
	for (int i = 0; i < 3; i++)
		expect_success(senders[1].cq, 7, IBV_WC_SEND);

	/* A queue pair in ERR leaves the receives alone, which serve the others. */
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	CHECK(!ibv_modify_qp(qps[2], &error, IBV_QP_STATE));
	event = expect_event(IBV_EVENT_QP_LAST_WQE_REACHED, qps[2]);
	ibv_ack_async_event(&event);
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
	send_text(&senders[0], "still here");
	CHECK(expect_text(cq, qps[0], "still here") == 5);
	expect_success(senders[0].cq, 7, IBV_WC_SEND);

	/* One of two receives is taken by a completion that nobody polls: it is free after the queue pair is destroyed. */
	send_text(&senders[1], "unread");
	expect_success(senders[1].cq, 7, IBV_WC_SEND);
	for (int i = 0; i < 5; i++)
		CHECK(!post_srq(srq, 8 + i));
	CHECK(post_srq(srq, 13) == ENOMEM);
	CHECK(!ibv_destroy_qp(qps[1]));
	CHECK(!post_srq(srq, 13) && post_srq(srq, 14) == ENOMEM);
	for (int i = 0; i < 7; i++) {
		send_text(&senders[0], "empty it");
		CHECK(expect_text(cq, qps[0], "empty it") == 7u + i);
		expect_success(senders[0].cq, 7, IBV_WC_SEND);
	}

	/* Empty: the sender is put off until there is a receive. */
	send_text(&senders[0], "late");
	struct timespec pause = { .tv_nsec = 20000000 };
	nanosleep(&pause, NULL);
	CHECK(ibv_poll_cq(senders[0].cq, 1, &wc) == 0 && ibv_poll_cq(cq, 1, &wc) == 0);
	CHECK(!post_srq(srq, 20));
	CHECK(expect_text(cq, qps[0], "late") == 20);
	expect_success(senders[0].cq, 7, IBV_WC_SEND);
	/* ... or gives up. */
	struct ibv_qp *impatient = receiver(pd, cq, srq);
	struct side hasty = make_side(pd, NULL);
	to_rts(impatient, hasty.qp->qp_num);
	struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = impatient->qp_num,
		.rq_psn = 100, .max_dest_rd_atomic = 1, .min_rnr_timer = 12 };
	rtr.ah_attr.is_global = 1;
	rtr.ah_attr.port_num = 1;
	rtr.ah_attr.grh.sgid_index = loopback_gid(context, &rtr.ah_attr.grh.dgid);
	CHECK(!ibv_modify_qp(hasty.qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 0, .sq_psn = 100 };
	CHECK(!ibv_modify_qp(hasty.qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
	send_text(&hasty, "never");
	CHECK(wait_wc(hasty.cq).status == IBV_WC_RNR_RETRY_EXC_ERR);

	/* Too small a receive is that receive's error, and the queue pair's. */
	struct ibv_sge one = { (uintptr_t)srq_buffer, 1, srq_mr->lkey };
	struct ibv_recv_wr tiny = { .wr_id = 21, .sg_list = &one, .num_sge = 1 }, *bad;
	CHECK(!ibv_post_srq_recv(srq, &tiny, &bad));
	send_text(&senders[0], "too long");
	wc = wait_wc(cq);
	CHECK(wc.wr_id == 21 && wc.status == IBV_WC_LOC_LEN_ERR && wc.qp_num == qps[0]->qp_num);
	CHECK(wait_wc(senders[0].cq).status == IBV_WC_REM_INV_REQ_ERR);
	event = expect_event(IBV_EVENT_QP_LAST_WQE_REACHED, qps[0]);
	ibv_ack_async_event(&event);

	CHECK(!ibv_destroy_qp(qps[0]) && !ibv_destroy_qp(qps[2]) && !ibv_destroy_qp(impatient));
	/* Destruction waits for the acknowledgement of an event that was taken. */
	CHECK(!arm(srq, 1));
	event = expect_event(IBV_EVENT_SRQ_LIMIT_REACHED, srq);
	pthread_t thread;
	CHECK(!pthread_create(&thread, NULL, acknowledge_later, &event));
	CHECK(!ibv_destroy_srq(srq));
	CHECK(atomic_load(&acknowledged) == 1);
	CHECK(!pthread_join(thread, NULL));

	use_while_destroyed(srq_pd);

	for (int i = 0; i < SIDES; i++)
		destroy_side(&senders[i]);
	destroy_side(&hasty);
	CHECK(!ibv_destroy_cq(cq) && !ibv_dereg_mr(srq_mr) && !ibv_dealloc_pd(pd) && !ibv_dealloc_pd(srq_pd));
	CHECK(!ibv_close_device(context));
	puts("srq: ok");
	return 0;
}
