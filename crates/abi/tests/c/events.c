/* Completion channels and asynchronous events: blocking, not blocking, interrupted, acknowledged late. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include "check.h"

static void on_alarm(int signal)
{
	(void)signal;
}

static void nonblocking(int fd, int on)
{
	int flags = fcntl(fd, F_GETFL);
	CHECK(flags >= 0);
	CHECK(!fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK));
}

static atomic_int acknowledged;

static void *acknowledge_later(void *cq)
{
	struct timespec pause = { .tv_nsec = 50000000 };
	nanosleep(&pause, NULL);
	atomic_store(&acknowledged, 1);
	ibv_ack_cq_events(cq, 1);
	return NULL;
}

static void send_one(struct side *from, struct side *to, unsigned flags)
{
	struct ibv_send_wr wr = { .wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = flags }, *bad;
	CHECK(!post_recv(to, 2, 0, 64));
	CHECK(!ibv_post_send(from->qp, &wr, &bad));
}

int main(void)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	CHECK(pd && channel);
	struct side a = make_side(pd, NULL), b = make_side(pd, channel);
	CHECK(ibv_destroy_comp_channel(channel) == EBUSY);
	to_rts(a.qp, b.qp->qp_num);
	to_rts(b.qp, a.qp->qp_num);

	/* Nothing waits: EAGAIN; blocked in the call: EINTR. */
	struct ibv_cq *cq;
	void *cq_context;
	nonblocking(channel->fd, 1);
	CHECK(ibv_get_cq_event(channel, &cq, &cq_context) == -1 && errno == EAGAIN);
	nonblocking(channel->fd, 0);
	struct sigaction action = { .sa_handler = on_alarm };
	CHECK(!sigaction(SIGALRM, &action, NULL));
	struct itimerval timer = { .it_value = { .tv_usec = 50000 }, .it_interval = { .tv_usec = 50000 } }, off = { 0 };
	CHECK(!setitimer(ITIMER_REAL, &timer, NULL));
	CHECK(ibv_get_cq_event(channel, &cq, &cq_context) == -1 && errno == EINTR);
	CHECK(!setitimer(ITIMER_REAL, &off, NULL));

	/* Armed: one event for many completions, readable for poll(2). */
	CHECK(!ibv_req_notify_cq(b.cq, 0));
	send_one(&a, &b, 0);
	send_one(&a, &b, 0);
	struct pollfd readable = { .fd = channel->fd, .events = POLLIN };
	CHECK(poll(&readable, 1, 60000) == 1);
	CHECK(!ibv_get_cq_event(channel, &cq, &cq_context) && cq == b.cq && cq_context == b.cq->cq_context);
	expect_success(b.cq, 2, IBV_WC_RECV);
	expect_success(b.cq, 2, IBV_WC_RECV);
	nonblocking(channel->fd, 1);
	CHECK(ibv_get_cq_event(channel, &cq, &cq_context) == -1 && errno == EAGAIN);
	/* More acknowledgements than events, as some programs do. */
	ibv_ack_cq_events(b.cq, 3);

	/* Armed for solicited ones only. */
	CHECK(!ibv_req_notify_cq(b.cq, 1));
	send_one(&a, &b, 0);
	expect_success(b.cq, 2, IBV_WC_RECV);
	CHECK(ibv_get_cq_event(channel, &cq, &cq_context) == -1 && errno == EAGAIN);
	send_one(&a, &b, IBV_SEND_SOLICITED);
	CHECK(poll(&readable, 1, 60000) == 1 && !ibv_get_cq_event(channel, &cq, &cq_context));
	expect_success(b.cq, 2, IBV_WC_RECV);

	/* An asynchronous event: the responder of a refused write. It blocks destruction until it is acknowledged. */
	nonblocking(context->async_fd, 1);
	struct ibv_async_event event;
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_sge sge = { (uintptr_t)a.buffer, 8, a.mr->lkey };
	wr.sg_list = &sge;
	wr.wr.rdma.remote_addr = (uintptr_t)b.buffer;
	wr.wr.rdma.rkey = ~b.mr->rkey;
	while (!ibv_get_async_event(context, &event))
		ibv_ack_async_event(&event);
	CHECK(errno == EAGAIN);
	CHECK(!ibv_post_send(a.qp, &wr, &bad));
	CHECK(wait_wc(a.cq).status != IBV_WC_SUCCESS);
	struct pollfd async = { .fd = context->async_fd, .events = POLLIN };
	CHECK(poll(&async, 1, 60000) == 1);
	CHECK(!ibv_get_async_event(context, &event));
	CHECK(event.event_type == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == b.qp);
	CHECK(strcmp(ibv_event_type_str(event.event_type), "unknown"));
	ibv_ack_async_event(&event);

	/* ibv_destroy_cq waits for the acknowledgement of an event that was taken. */
	struct ibv_comp_channel *late = ibv_create_comp_channel(context);
	struct side c = make_side(pd, late), d = make_side(pd, NULL);
	to_rts(c.qp, d.qp->qp_num);
	to_rts(d.qp, c.qp->qp_num);
	CHECK(!ibv_req_notify_cq(c.cq, 0));
	send_one(&d, &c, 0);
	CHECK(!ibv_get_cq_event(late, &cq, &cq_context));
	CHECK(!ibv_destroy_qp(c.qp));
	pthread_t thread;
	CHECK(!pthread_create(&thread, NULL, acknowledge_later, c.cq));
	CHECK(!ibv_destroy_cq(c.cq));
	CHECK(atomic_load(&acknowledged) == 1);
	CHECK(!pthread_join(thread, NULL));
	CHECK(!ibv_dereg_mr(c.mr) && !ibv_destroy_comp_channel(late));
	free(c.buffer);

	destroy_side(&a);
	destroy_side(&b);
	destroy_side(&d);
	CHECK(!ibv_destroy_comp_channel(channel) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("events: ok");
	return 0;
}
