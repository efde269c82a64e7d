/* Which completion fires which event: ibv_req_notify_cq with and without solicited_only. */
#include <poll.h>
#include "check.h"

static struct ibv_comp_channel *channel;
static struct side sender, receiver;

/* Sends one empty message and waits until both sides have completed. */
static void message(unsigned int flags)
{
	struct ibv_recv_wr recv = { .wr_id = 7 }, *bad_recv;
	CHECK(!ibv_post_recv(receiver.qp, &recv, &bad_recv));
	struct ibv_send_wr send = { .wr_id = 8, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED | flags }, *bad;
	CHECK(!ibv_post_send(sender.qp, &send, &bad));
	expect_success(receiver.cq, 7, IBV_WC_RECV);
	expect_success(sender.cq, 8, IBV_WC_SEND);
}

/* The queue whose event waits, or NULL. */
static struct ibv_cq *event(void)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	if (poll(&fd, 1, 0) != 1)
		return NULL;
	struct ibv_cq *cq;
	void *cq_context;
	CHECK(!ibv_get_cq_event(channel, &cq, &cq_context));
	ibv_ack_cq_events(cq, 1);
	return cq;
}

/* The queue whose event comes. An event may be a moment behind its completion. */
static struct ibv_cq *wait_event(void)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	CHECK(poll(&fd, 1, 60000) == 1);
	return event();
}

int main(void)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	channel = ibv_create_comp_channel(context);
	CHECK(pd && channel);
	sender = make_side(pd, channel);
	receiver = make_side(pd, channel);
	to_rts(sender.qp, receiver.qp->qp_num);
	to_rts(receiver.qp, sender.qp->qp_num);

	message(IBV_SEND_SOLICITED); /* nobody asked */
	CHECK(!event());

	CHECK(!ibv_req_notify_cq(receiver.cq, 1));
	message(0);
	CHECK(!event());
	message(IBV_SEND_SOLICITED);
	CHECK(wait_event() == receiver.cq);
	message(IBV_SEND_SOLICITED); /* an event needs to be asked for again */
	CHECK(!event());

	/* The sender's own completion is not a solicited one. */
	CHECK(!ibv_req_notify_cq(sender.cq, 1));
	message(IBV_SEND_SOLICITED);
	CHECK(!event());

	/* Asking for less after more takes nothing back; asking for more after less counts. */
	CHECK(!ibv_req_notify_cq(receiver.cq, 0) && !ibv_req_notify_cq(receiver.cq, 1));
	message(0);
	CHECK(wait_event() == receiver.cq);
	CHECK(!ibv_req_notify_cq(receiver.cq, 1) && !ibv_req_notify_cq(receiver.cq, 0));
	message(0);
	CHECK(wait_event() == receiver.cq);
	/* Asked twice, one event. */
	CHECK(!event());

	/* A write with immediate carries the solicited flag as well. */
	CHECK(!ibv_req_notify_cq(receiver.cq, 1));
	struct ibv_recv_wr recv = { .wr_id = 9 }, *bad_recv;
	CHECK(!ibv_post_recv(receiver.qp, &recv, &bad_recv));
	struct ibv_send_wr write = { .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .send_flags = IBV_SEND_SOLICITED,
		.wr.rdma = { (uintptr_t)receiver.buffer, receiver.mr->rkey } }, *bad;
	CHECK(!ibv_post_send(sender.qp, &write, &bad));
	CHECK(wait_event() == receiver.cq);
	expect_success(receiver.cq, 9, IBV_WC_RECV_RDMA_WITH_IMM);

	/* A completion in error counts as solicited; the sender's queue is still armed from above. */
	CHECK(!ibv_post_recv(receiver.qp, &recv, &bad_recv) && !ibv_req_notify_cq(receiver.cq, 1));
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	CHECK(!ibv_modify_qp(receiver.qp, &error, IBV_QP_STATE));
	CHECK(wait_event() == receiver.cq);
	CHECK(!ibv_modify_qp(sender.qp, &error, IBV_QP_STATE));
	struct ibv_send_wr flushed = { .opcode = IBV_WR_SEND };
	CHECK(!ibv_post_send(sender.qp, &flushed, &bad));
	CHECK(wait_event() == sender.cq);

	destroy_side(&sender);
	destroy_side(&receiver);
	CHECK(!ibv_destroy_comp_channel(channel) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("solicited: ok");
	return 0;
}
