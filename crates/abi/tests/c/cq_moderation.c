/* ibv_modify_cq: one event for several completions, or for those of a period. */
#include <poll.h>
#include <time.h>
#include "check.h"

enum { COUNT = 4, PERIOD_US = 4095 };

static struct side a, b;
static struct ibv_comp_channel *channel;

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static int event_waits(void)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	return poll(&fd, 1, 0);
}

static void take_event(void)
{
	struct ibv_cq *cq;
	void *cq_context;
	CHECK(!ibv_get_cq_event(channel, &cq, &cq_context));
	CHECK(cq == a.cq);
	ibv_ack_cq_events(cq, 1);
}

/* One more completion in a's queue, polled. */
static void complete_one(void)
{
	struct ibv_sge sge = { (uintptr_t)a.buffer, 8, a.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED, .wr.rdma = { (uintptr_t)b.buffer, b.mr->rkey } }, *bad;
	CHECK(!ibv_post_send(a.qp, &wr, &bad));
	expect_success(a.cq, 1, IBV_WC_RDMA_WRITE);
}

static int moderate(uint16_t count, uint16_t period)
{
	struct ibv_modify_cq_attr attr = { .attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = { count, period } };
	return ibv_modify_cq(a.cq, &attr);
}

int main(void)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	channel = ibv_create_comp_channel(context);
	CHECK(pd && channel);
	a = make_side(pd, channel);
	b = make_side(pd, NULL);
	to_rts(a.qp, b.qp->qp_num);
	to_rts(b.qp, a.qp->qp_num);

	struct ibv_device_attr_ex device;
	CHECK(!ibv_query_device_ex(context, NULL, &device));
	CHECK(device.cq_mod_caps.max_cq_count >= COUNT && device.cq_mod_caps.max_cq_period >= PERIOD_US);
	struct ibv_modify_cq_attr unknown = { .attr_mask = 1 << 9 }, nothing = { 0 };
	CHECK(ibv_modify_cq(a.cq, &unknown) == EOPNOTSUPP && ibv_modify_cq(a.cq, &nothing) == EINVAL);
	if (device.cq_mod_caps.max_cq_period < UINT16_MAX)
		CHECK(moderate(COUNT, device.cq_mod_caps.max_cq_period + 1) == EINVAL);

	/* Less than COUNT completions within the period: no event. On a busy machine the period may be over; try again. */
	CHECK(!moderate(COUNT, PERIOD_US));
	for (int quiet = 0; !quiet;) {
		CHECK(!ibv_req_notify_cq(a.cq, 0));
		uint64_t start = now_ns();
		for (int i = 0; i < COUNT - 1; i++)
			complete_one();
		int event = event_waits();
		quiet = now_ns() - start < PERIOD_US * 1000ull;
		CHECK(!quiet || !event);
		complete_one();
		take_event(); /* the last of COUNT fires, if the period has not */
		CHECK(!event_waits());
	}

	/* A single completion: its event comes at the end of the period, while the program sleeps. */
	CHECK(!ibv_req_notify_cq(a.cq, 0));
	uint64_t start = now_ns();
	complete_one();
	take_event();
	CHECK(now_ns() - start >= PERIOD_US * 1000ull);
	/* Not armed, no event. */
	for (int i = 0; i < COUNT; i++)
		complete_one();
	CHECK(!event_waits());

	/* Either limit 0 turns it off, also for completions that wait for their event. */
	CHECK(!ibv_req_notify_cq(a.cq, 0));
	complete_one();
	CHECK(!moderate(0, 0));
	take_event();
	CHECK(!moderate(COUNT, 0));
	CHECK(!ibv_req_notify_cq(a.cq, 0));
	complete_one();
	take_event();
	/* A queue may be destroyed while its event is still to come. */
	CHECK(!moderate(COUNT, PERIOD_US) && !ibv_req_notify_cq(a.cq, 0));
	complete_one();

	destroy_side(&a);
	destroy_side(&b);
	CHECK(!ibv_destroy_comp_channel(channel) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("cq_moderation: ok");
	return 0;
}
