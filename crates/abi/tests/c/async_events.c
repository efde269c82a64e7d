/* Asynchronous events: waiting for them in every way, and what an event that was taken keeps from being destroyed. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <time.h>
#include "check.h"

static struct ibv_async_event taken;
static atomic_int acknowledged;

static void on_alarm(int signal)
{
	(void)signal;
}

static void *acknowledge_later(void *unused)
{
	(void)unused;
	struct timespec pause = { .tv_nsec = 50000000 };
	nanosleep(&pause, NULL);
	atomic_store(&acknowledged, 1);
	ibv_ack_async_event(&taken);
	return NULL;
}

static void nonblocking(int fd, int on)
{
	int flags = fcntl(fd, F_GETFL);
	CHECK(flags >= 0 && !fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK));
}

/* A queue pair in RTR that hears of its peer for the first time. */
static void establish(struct ibv_pd *pd, struct side *a, struct side *b)
{
	*a = make_side(pd, NULL);
	*b = make_side(pd, NULL);
	to_rts(b->qp, a->qp->qp_num);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = b->qp->qp_num,
		.rq_psn = 100, .max_dest_rd_atomic = 1, .min_rnr_timer = 1, .ah_attr = { .is_global = 1, .port_num = 1 } };
	attr.ah_attr.grh.sgid_index = loopback_gid(pd->context, &attr.ah_attr.grh.dgid);
	CHECK(!ibv_modify_qp(a->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	struct ibv_send_wr wr = { .wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	CHECK(!post_recv(a, 2, 0, 64) && !ibv_post_send(b->qp, &wr, &bad));
	expect_success(a->cq, 2, IBV_WC_RECV);
	expect_success(b->cq, 1, IBV_WC_SEND);
}

static void *destroy(void *qp)
{
	CHECK(!ibv_destroy_qp(qp));
	return NULL;
}

/* While its destruction waits for an acknowledgement, a queue pair is still there for whoever took the event, and good for
 * nothing. */
static void use_while_destroyed(struct ibv_pd *pd)
{
	struct side a, b;
	establish(pd, &a, &b);
	CHECK(!ibv_get_async_event(pd->context, &taken) && taken.element.qp == a.qp);
	pthread_t thread;
	CHECK(!pthread_create(&thread, NULL, destroy, a.qp));
	struct ibv_qp_attr attr, reset = { .qp_state = IBV_QPS_RESET };
	struct ibv_qp_init_attr init;
	int gone;
	for (time_t end = time(NULL) + 60; !(gone = ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init));)
		CHECK(time(NULL) < end);
	CHECK(gone == EINVAL);
	CHECK(ibv_modify_qp(a.qp, &reset, IBV_QP_STATE) == EINVAL);
	struct ibv_send_wr wr = { .wr_id = 3, .opcode = IBV_WR_SEND }, *bad;
	CHECK(post_recv(&a, 4, 0, 64) == EINVAL);
	CHECK(ibv_post_send(a.qp, &wr, &bad) == EINVAL && bad == &wr);
	ibv_ack_async_event(&taken);
	CHECK(!pthread_join(thread, NULL));
	CHECK(!ibv_destroy_cq(a.cq) && !ibv_dereg_mr(a.mr));
	free(a.buffer);
	destroy_side(&b);
}

int main(void)
{
	struct ibv_context *context = open_device(), *other = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(context->async_fd != other->async_fd);

	/* None: EAGAIN, or EINTR of a blocked call. */
	nonblocking(context->async_fd, 1);
	CHECK(ibv_get_async_event(context, &taken) == -1 && errno == EAGAIN);
	nonblocking(context->async_fd, 0);
	struct sigaction action = { .sa_handler = on_alarm };
	CHECK(!sigaction(SIGALRM, &action, NULL));
	struct itimerval timer = { .it_value = { .tv_usec = 50000 }, .it_interval = { .tv_usec = 50000 } }, off = { 0 };
	CHECK(!setitimer(ITIMER_REAL, &timer, NULL));
	CHECK(ibv_get_async_event(context, &taken) == -1 && errno == EINTR);
	CHECK(!setitimer(ITIMER_REAL, &off, NULL));

	/* Communication established: one event, of that queue pair, to its own context alone. */
	struct side a, b;
	establish(pd, &a, &b);
	struct pollfd fds[2] = { { .fd = context->async_fd, .events = POLLIN }, { .fd = other->async_fd, .events = POLLIN } };
	CHECK(poll(fds, 2, 60000) == 1 && fds[0].revents == POLLIN);
	CHECK(!ibv_get_async_event(context, &taken));
	CHECK(taken.event_type == IBV_EVENT_COMM_EST && taken.element.qp == a.qp);
	CHECK(!poll(fds, 2, 0));
	/* It was taken, so the queue pair cannot go before it is acknowledged; its completion queue may not go before that. */
	pthread_t thread;
	CHECK(!pthread_create(&thread, NULL, acknowledge_later, NULL));
	CHECK(!ibv_destroy_qp(a.qp));
	CHECK(atomic_load(&acknowledged) == 1);
	CHECK(!pthread_join(thread, NULL));
	CHECK(!ibv_destroy_cq(a.cq) && !ibv_dereg_mr(a.mr));
	free(a.buffer);
	destroy_side(&b);

	/* Nobody took it: it goes with its queue pair. */
	establish(pd, &a, &b);
	CHECK(poll(fds, 1, 60000) == 1);
	destroy_side(&a);
	CHECK(!poll(fds, 1, 0));
	destroy_side(&b);

	/* More acknowledgements than events hold nothing up. */
	establish(pd, &a, &b);
	CHECK(!ibv_get_async_event(context, &taken) && taken.element.qp == a.qp);
	ibv_ack_async_event(&taken);
	ibv_ack_async_event(&taken);
	destroy_side(&a);
	destroy_side(&b);

	use_while_destroyed(pd);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context) && !ibv_close_device(other));
	puts("async_events: ok");
	return 0;
}
