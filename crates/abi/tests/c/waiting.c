/* Threads that wait in ibv_get_cq_event drive the device: alone, several at once, beside one that polls the descriptor,
 * interrupted by signals whose handlers restart calls, and cancelled. No event is lost and none comes twice. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <unistd.h>
#include "check.h"

enum { ROUNDS = 300 };

static struct ibv_pd *pd;
static atomic_int alarms;

static void on_alarm(int signal)
{
	(void)signal;
	atomic_fetch_add(&alarms, 1);
}

static void every(long microseconds)
{
	struct itimerval timer = { .it_value = { .tv_usec = microseconds }, .it_interval = { .tv_usec = microseconds } };
	CHECK(!setitimer(ITIMER_REAL, &timer, NULL));
}

/* One end of a ping-pong by events. */
struct end {
	struct ibv_comp_channel *channel;
	struct side side;
	int polls_descriptor;
	int serves;
};

static struct end make_end(int polls_descriptor, int serves)
{
	struct end end = { .channel = ibv_create_comp_channel(pd->context), .polls_descriptor = polls_descriptor,
		.serves = serves };
	CHECK(end.channel);
	end.side = make_side(pd, end.channel);
	CHECK(!ibv_req_notify_cq(end.side.cq, 0));
	CHECK(!post_recv(&end.side, 2, 0, 64));
	return end;
}

static void destroy_end(struct end *end)
{
	destroy_side(&end->side);
	CHECK(!ibv_destroy_comp_channel(end->channel));
}

static void send_one(struct end *end)
{
	struct ibv_send_wr wr = { .wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	CHECK(!ibv_post_send(end->side.qp, &wr, &bad));
}

static void receive_one(struct end *end)
{
	for (;;) {
		struct pollfd readable = { .fd = end->channel->fd, .events = POLLIN };
		while (end->polls_descriptor && poll(&readable, 1, -1) < 0)
			CHECK(errno == EINTR);
		struct ibv_cq *cq;
		void *context;
		CHECK(!ibv_get_cq_event(end->channel, &cq, &context));
		CHECK(cq == end->side.cq);
		ibv_ack_cq_events(cq, 1);
		CHECK(!ibv_req_notify_cq(cq, 0));
		struct ibv_wc wc;
		int n, received = 0;
		while ((n = ibv_poll_cq(cq, 1, &wc)) > 0) {
			CHECK(wc.status == IBV_WC_SUCCESS);
			if (wc.opcode == IBV_WC_RECV) {
				CHECK(!post_recv(&end->side, 2, 0, 64));
				received++;
			}
		}
		CHECK(!n && received <= 1);
		if (received)
			return;
	}
}

static void *play(void *argument)
{
	struct end *end = argument;
	for (int i = 0; i < ROUNDS; i++) {
		if (end->serves)
			send_one(end);
		receive_one(end);
		if (!end->serves)
			send_one(end);
	}
	return NULL;
}

/* For an end that is not played: what it sent is done. */
static void drain(struct end *end)
{
	CHECK(wait_wc(end->side.cq).status == IBV_WC_SUCCESS);
}

/* Pairs of threads, each pair with a connection of its own. */
static void ping_pong(int pairs, int polls_descriptor)
{
	struct end ends[8];
	pthread_t threads[8];
	for (int i = 0; i < 2 * pairs; i++)
		ends[i] = make_end(i % 2 && polls_descriptor, i % 2);
	for (int i = 0; i < 2 * pairs; i++)
		to_rts(ends[i].side.qp, ends[i ^ 1].side.qp->qp_num);
	for (int i = 0; i < 2 * pairs; i++)
		CHECK(!pthread_create(&threads[i], NULL, play, &ends[i]));
	for (int i = 0; i < 2 * pairs; i++)
		CHECK(!pthread_join(threads[i], NULL));
	for (int i = 0; i < 2 * pairs; i++)
		destroy_end(&ends[i]);
}

static void *wait_in_vain(void *channel)
{
	struct ibv_cq *cq;
	void *context;
	ibv_get_cq_event(channel, &cq, &context);
	return NULL;
}

static void *wait_once(void *argument)
{
	receive_one(argument);
	return NULL;
}

int main(void)
{
	struct ibv_context *context = open_device();
	pd = ibv_alloc_pd(context);
	CHECK(pd);

	/* Two threads, of which one may drive; then many; then some that wait on the descriptor. */
	ping_pong(1, 0);
	ping_pong(4, 0);
	ping_pong(1, 1);
	ping_pong(4, 1);

	/* A thread alone in the verb: packets come from one that does not look after the device. */
	struct end a = make_end(0, 1), b = make_end(0, 0);
	to_rts(a.side.qp, b.side.qp->qp_num);
	to_rts(b.side.qp, a.side.qp->qp_num);
	pthread_t thread;
	for (int i = 0; i < 50; i++) {
		CHECK(!pthread_create(&thread, NULL, wait_once, &b));
		send_one(&a);
		CHECK(!pthread_join(thread, NULL));
		drain(&a);
	}

	/* Cancelled again and again: whoever waits afterwards gets his events. */
	for (int i = 0; i < 50; i++) {
		void *result;
		CHECK(!pthread_create(&thread, NULL, wait_in_vain, b.channel));
		if (i % 2)
			usleep(1000);
		CHECK(!pthread_cancel(thread));
		CHECK(!pthread_join(thread, &result));
		CHECK(result == PTHREAD_CANCELED);
	}
	CHECK(!pthread_create(&thread, NULL, wait_once, &b));
	send_one(&a);
	CHECK(!pthread_join(thread, NULL));
	drain(&a);

	/* Handlers that restart calls are not noticed, whatever there is beside for the program's own faults. */
	struct sigaction fault = { .sa_handler = on_alarm };
	CHECK(!sigaction(SIGSEGV, &fault, NULL));
	struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	CHECK(!sigaction(SIGALRM, &action, NULL));
	every(500);
	ping_pong(1, 0);
	sigset_t alarm;
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	CHECK(!pthread_sigmask(SIG_BLOCK, &alarm, NULL));
	CHECK(!pthread_create(&thread, NULL, wait_once, &b));
	CHECK(!pthread_sigmask(SIG_UNBLOCK, &alarm, NULL));
	send_one(&a);
	CHECK(!pthread_join(thread, NULL));
	drain(&a);
	every(0);

	/* Nobody else has a handler: one that ends calls ends the wait. */
	action.sa_flags = 0;
	CHECK(!sigaction(SIGALRM, &action, NULL));
	every(50000);
	struct ibv_cq *cq;
	void *cq_context;
	CHECK(ibv_get_cq_event(b.channel, &cq, &cq_context) == -1 && errno == EINTR);
	every(0);

	destroy_end(&a);
	destroy_end(&b);
	CHECK(!ibv_dealloc_pd(pd));
	CHECK(!ibv_close_device(context));
	CHECK(atomic_load(&alarms) > 0);
	printf("waiting: ok\n");
	return 0;
}
