/* One queue for many queue pairs and threads, one channel for many queues, and the order in which they may go. */
#include <pthread.h>
#include <stdatomic.h>
#include "check.h"

enum { PAIRS = 3, THREADS = 3, MESSAGES = 100 };

static struct ibv_cq *cq;
static struct side sides[2 * PAIRS];
static atomic_int seen[2 * PAIRS][2][MESSAGES], total;

static int side_of(uint32_t qp_num)
{
	for (int i = 0; i < 2 * PAIRS; i++)
		if (sides[i].qp->qp_num == qp_num)
			return i;
	CHECK(!"a queue pair of this queue");
	return -1;
}

static void *poll_all(void *unused)
{
	while (atomic_load(&total) < 2 * PAIRS * 2 * MESSAGES) {
		struct ibv_wc wc[4];
		int count = ibv_poll_cq(cq, 4, wc);
		CHECK(count >= 0);
		for (int i = 0; i < count; i++) {
			CHECK(wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id < MESSAGES);
			atomic_fetch_add(&seen[side_of(wc[i].qp_num)][wc[i].opcode == IBV_WC_RECV][wc[i].wr_id], 1);
			atomic_fetch_add(&total, 1);
		}
	}
	return unused;
}

/* Sends and receives of all queue pairs complete into one queue, which threads poll together. */
static void many_users(struct ibv_pd *pd)
{
	cq = ibv_create_cq(pd->context, 2 * PAIRS * 2 * DEPTH, NULL, NULL, 0);
	CHECK(cq);
	for (int i = 0; i < 2 * PAIRS; i++) {
		struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
			.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 } };
		sides[i].qp = ibv_create_qp(pd, &init);
		CHECK(sides[i].qp);
		to_init(sides[i].qp);
	}
	for (int i = 0; i < 2 * PAIRS; i++)
		to_rts(sides[i].qp, sides[i ^ 1].qp->qp_num);
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, poll_all, NULL));
	for (uint64_t message = 0; message < MESSAGES; message++) {
		for (int i = 0; i < 2 * PAIRS; i++) {
			struct ibv_recv_wr wr = { .wr_id = message }, *bad;
			while (ibv_post_recv(sides[i].qp, &wr, &bad))
				CHECK(errno == ENOMEM);
		}
		for (int i = 0; i < 2 * PAIRS; i++) {
			struct ibv_send_wr wr = { .wr_id = message, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
			while (ibv_post_send(sides[i].qp, &wr, &bad))
				CHECK(errno == ENOMEM);
		}
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_join(threads[i], NULL));
	for (int i = 0; i < 2 * PAIRS * 2 * MESSAGES; i++)
		CHECK(((atomic_int *)seen)[i] == 1);
	for (int i = 0; i < 2 * PAIRS; i++) {
		CHECK(ibv_destroy_cq(cq) == EBUSY);
		CHECK(!ibv_destroy_qp(sides[i].qp));
	}
	CHECK(!ibv_destroy_cq(cq));
}

static atomic_int acknowledged;

static void *destroy(void *queue)
{
	CHECK(!ibv_destroy_cq(queue));
	CHECK(atomic_load(&acknowledged)); /* not before that */
	return NULL;
}

static void flush_one(struct side *side)
{
	CHECK(!ibv_req_notify_cq(side->cq, 0) && !post_recv(side, 1, 0, 1));
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	CHECK(!ibv_modify_qp(side->qp, &error, IBV_QP_STATE));
}

/* Events of several queues come through one channel, in the order in which they fired. */
static void one_channel(struct ibv_pd *pd)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(pd->context);
	CHECK(channel);
	CHECK(!ibv_create_cq(pd->context, 1, NULL, channel, pd->context->num_comp_vectors) && errno == EINVAL);
	CHECK(!ibv_create_cq(pd->context, 1, NULL, channel, -1) && errno == EINVAL);
	struct side side[3];
	for (int i = 0; i < 3; i++)
		side[i] = make_side(pd, channel);
	CHECK(channel->refcnt == 3 && ibv_destroy_comp_channel(channel) == EBUSY);
	flush_one(&side[2]);
	flush_one(&side[0]);
	flush_one(&side[1]);
	struct ibv_cq *fired;
	void *cq_context;
	CHECK(!ibv_get_cq_event(channel, &fired, &cq_context) && fired == side[2].cq);
	CHECK(!ibv_get_cq_event(channel, &fired, &cq_context) && fired == side[0].cq);
	ibv_ack_cq_events(side[2].cq, 1);
	/* An event that nobody took goes with its queue; one that was taken is waited for. */
	for (int i = 0; i < 3; i++)
		CHECK(!ibv_destroy_qp(side[i].qp));
	CHECK(!ibv_destroy_cq(side[1].cq) && !ibv_destroy_cq(side[2].cq));
	pthread_t thread;
	CHECK(!pthread_create(&thread, NULL, destroy, side[0].cq));
	sched_yield();
	atomic_store(&acknowledged, 1);
	ibv_ack_cq_events(side[0].cq, 1);
	CHECK(!pthread_join(thread, NULL));
	CHECK(!channel->refcnt && !ibv_destroy_comp_channel(channel));
	for (int i = 0; i < 3; i++) {
		CHECK(!ibv_dereg_mr(side[i].mr));
		free(side[i].buffer);
	}
}

int main(void)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd);
	many_users(pd);
	one_channel(pd);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("cq_shared: ok");
	return 0;
}
