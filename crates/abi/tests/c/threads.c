/* Any verb from any thread: threads that share a context, a protection domain and completion queues create, connect, use,
 * query and destroy queue pairs and regions, all at once, while others look at the device and wait for events.
 *
 * threads [SECONDS]        how long; half a second if not said */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include "check.h"

enum { PAIRS = 4, SENDERS = 3, ROUNDS = 64 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *shared_cq; /* of the shared queue pair's sends, polled by all of its senders */
static struct side target, origin;
static atomic_int stop;
static atomic_long created, sent, completed, received, looked, events;

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

/* A life of a pair of queue pairs, from creation to destruction; sometimes with work under way. */
static void *live(void *seed)
{
	unsigned random = (uintptr_t)seed;
	while (!atomic_load(&stop)) {
		struct side a = make_side(pd, NULL), b = make_side(pd, NULL);
		to_rts(a.qp, b.qp->qp_num);
		to_rts(b.qp, a.qp->qp_num);
		for (int i = 0; i < DEPTH; i++)
			CHECK(!post_recv(&b, i, i * 64, 64));
		struct ibv_sge sge = { (uintptr_t)a.buffer, 64, a.mr->lkey };
		for (int i = 0; i < DEPTH; i++) {
			struct ibv_send_wr wr = { .wr_id = i, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
				.sg_list = &sge, .num_sge = 1 }, *bad;
			CHECK(!ibv_post_send(a.qp, &wr, &bad));
		}
		int awaited = rand_r(&random) % (DEPTH + 1);
		for (int i = 0; i < awaited; i++) {
			expect_success(a.cq, i, IBV_WC_SEND);
			expect_success(b.cq, i, IBV_WC_RECV);
		}
		if (rand_r(&random) % 2) {
			struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
			CHECK(!ibv_modify_qp(b.qp, &attr, IBV_QP_STATE));
		}
		destroy_side(&a);
		destroy_side(&b);
		atomic_fetch_add(&created, 2);
	}
	return NULL;
}

/* Several threads post to one queue pair and poll one completion queue, each taking whatever comes. */
static void *send_shared(void *unused)
{
	(void)unused;
	struct ibv_wc wc[4];
	while (!atomic_load(&stop) || atomic_load(&completed) < atomic_load(&sent)) {
		if (!atomic_load(&stop)) {
			struct ibv_sge sge = { (uintptr_t)origin.buffer, 256, origin.mr->lkey };
			struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .send_flags = IBV_SEND_SIGNALED,
				.sg_list = &sge, .num_sge = 1, .wr.rdma = { (uintptr_t)target.buffer, target.mr->rkey } }, *bad;
			atomic_fetch_add(&sent, 1);
			int error = ibv_post_send(origin.qp, &wr, &bad);
			CHECK(!error || error == ENOMEM);
			if (error)
				atomic_fetch_sub(&sent, 1);
		}
		int count = ibv_poll_cq(shared_cq, 4, wc);
		CHECK(count >= 0);
		for (int i = 0; i < count; i++)
			CHECK(wc[i].status == IBV_WC_SUCCESS && wc[i].opcode == IBV_WC_RDMA_WRITE && wc[i].qp_num == origin.qp->qp_num);
		atomic_fetch_add(&completed, count);
	}
	return NULL;
}

static void *receive_shared(void *channel)
{
	CHECK(!ibv_req_notify_cq(target.cq, 0));
	while (!atomic_load(&stop) || atomic_load(&received) < atomic_load(&sent)) {
		struct ibv_wc wc;
		struct ibv_cq *cq;
		void *cq_context;
		int got = 0;
		while (ibv_poll_cq(target.cq, 1, &wc) == 1) {
			CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
			atomic_fetch_add(&received, 1);
			CHECK(!post_recv(&target, 0, 0, 64));
			got = 1;
		}
		if (!got && !ibv_get_cq_event(channel, &cq, &cq_context)) {
			ibv_ack_cq_events(cq, 1);
			CHECK(!ibv_req_notify_cq(cq, 0));
		}
	}
	return NULL;
}

/* Regions come and go, the device is asked and opened. */
static void *look(void *unused)
{
	(void)unused;
	static char memory[1 << 16];
	while (!atomic_load(&stop)) {
		struct ibv_context *own = open_device();
		struct ibv_device_attr device;
		struct ibv_port_attr port;
		struct ibv_qp_attr attr;
		struct ibv_qp_init_attr init;
		union ibv_gid gid;
		CHECK(!ibv_query_device(own, &device) && !ibv_query_port(own, 1, &port) && !ibv_query_gid(context, 1, 0, &gid));
		CHECK(!ibv_query_qp(origin.qp, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_RTS);
		struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		CHECK(mr && !ibv_dereg_mr(mr));
		struct ibv_cq *cq = ibv_create_cq(own, 16, NULL, NULL, 0);
		CHECK(cq && !ibv_resize_cq(cq, 100) && !ibv_destroy_cq(cq));
		CHECK(!ibv_close_device(own));
		atomic_fetch_add(&looked, 1);
	}
	return NULL;
}

static void *watch(void *unused)
{
	(void)unused;
	struct ibv_async_event event;
	while (!atomic_load(&stop)) {
		if (ibv_get_async_event(context, &event)) {
			CHECK(errno == EAGAIN);
			nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
			continue;
		}
		ibv_ack_async_event(&event);
		atomic_fetch_add(&events, 1);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 0.5;
	context = open_device();
	pd = ibv_alloc_pd(context);
	int flags = fcntl(context->async_fd, F_GETFL);
	CHECK(!fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK));
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	CHECK(channel && !fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK));
	target = make_side(pd, channel);
	origin = make_side(pd, NULL);
	shared_cq = origin.cq;
	to_rts(target.qp, origin.qp->qp_num);
	to_rts(origin.qp, target.qp->qp_num);
	for (int i = 0; i < DEPTH; i++)
		CHECK(!post_recv(&target, 0, 0, 64));

	pthread_t threads[PAIRS + SENDERS + 3];
	int n = 0;
	for (long i = 0; i < PAIRS; i++)
		CHECK(!pthread_create(&threads[n++], NULL, live, (void *)(i + 1)));
	for (int i = 0; i < SENDERS; i++)
		CHECK(!pthread_create(&threads[n++], NULL, send_shared, NULL));
	CHECK(!pthread_create(&threads[n++], NULL, receive_shared, channel));
	CHECK(!pthread_create(&threads[n++], NULL, look, NULL));
	CHECK(!pthread_create(&threads[n++], NULL, watch, NULL));
	/* Everybody comes at least a few times, however busy the machine is. */
	double start = now();
	while (now() < start + seconds || created < 8 || completed < 100 || received < 100 || looked < 2)
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	atomic_store(&stop, 1);
	for (int i = 0; i < n; i++)
		CHECK(!pthread_join(threads[i], NULL));
	CHECK(sent == completed && sent == received);
	struct ibv_async_event event;
	while (!ibv_get_async_event(context, &event))
		ibv_ack_async_event(&event);
	destroy_side(&origin);
	destroy_side(&target);
	CHECK(!ibv_destroy_comp_channel(channel) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	fprintf(stderr, "%ld queue pairs, %ld writes, %ld looks, %ld events\n", created, sent, looked, events);
	puts("threads: ok");
	return 0;
}
