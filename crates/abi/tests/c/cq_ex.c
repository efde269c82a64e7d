/* The extended completion queue: every field, time stamps of the moment when the completion arose, plain polling of the
 * same queue, and what a device of this kind refuses. */
#include <arpa/inet.h>
#include <time.h>
#include "check.h"

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq_ex *ex;

static uint64_t device_clock(void)
{
	struct ibv_values_ex now = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	CHECK(!ibv_query_rt_values_ex(context, &now) && now.comp_mask == IBV_VALUES_MASK_RAW_CLOCK);
	return now.raw_clock.tv_sec * 1000000000ull + now.raw_clock.tv_nsec;
}

static uint64_t wallclock(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static struct ibv_cq_ex *create(uint64_t wc_flags, uint32_t flags)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 100, .wc_flags = wc_flags,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, .flags = flags };
	return ibv_create_cq_ex(context, &attr);
}

static void start_poll(void)
{
	struct ibv_poll_cq_attr attr = { 0 };
	int status;
	do
		status = ibv_start_poll(ex, &attr);
	while (status == ENOENT);
	CHECK(!status);
}

/* A queue pair of this queue, flushed: `count` completions arise at once, numbered from `first`. */
static struct ibv_qp *flushed(uint64_t first, int count)
{
	struct ibv_cq *cq = ibv_cq_ex_to_cq(ex);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	to_init(qp);
	for (int i = 0; i < count; i++) {
		struct ibv_recv_wr wr = { .wr_id = first + i }, *bad;
		CHECK(!ibv_post_recv(qp, &wr, &bad));
	}
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	CHECK(!ibv_modify_qp(qp, &error, IBV_QP_STATE));
	return qp;
}

static void refusals(void)
{
	const uint64_t absent[] = { IBV_WC_EX_WITH_CVLAN, IBV_WC_EX_WITH_FLOW_TAG, IBV_WC_EX_WITH_TM_INFO, 1ull << 40 };
	for (int i = 0; i < 4; i++)
		CHECK(!create(absent[i], 0) && errno == EOPNOTSUPP);
	CHECK(!create(0, 1 << 8) && (errno == EOPNOTSUPP || errno == EINVAL));
	struct ibv_cq_init_attr_ex attr = { .cqe = 8, .comp_mask = 1 << 20 };
	CHECK(!ibv_create_cq_ex(context, &attr) && (errno == EOPNOTSUPP || errno == EINVAL));
	attr = (struct ibv_cq_init_attr_ex){ .cqe = 8, .comp_vector = context->num_comp_vectors };
	CHECK(!ibv_create_cq_ex(context, &attr) && errno == EINVAL);
	attr = (struct ibv_cq_init_attr_ex){ .cqe = 0 };
	CHECK(!ibv_create_cq_ex(context, &attr) && errno == EINVAL);
	struct ibv_values_ex unknown = { .comp_mask = 1 << 5 };
	CHECK(ibv_query_rt_values_ex(context, &unknown) == EOPNOTSUPP);
}

/* Every reader on a received message with immediate data. */
static void all_fields(struct side *peer)
{
	struct ibv_cq *cq = ibv_cq_ex_to_cq(ex);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	to_init(qp);
	to_rts(qp, peer->qp->qp_num);
	to_rts(peer->qp, qp->qp_num);
	struct ibv_sge sge = { (uintptr_t)peer->buffer, 100, peer->mr->lkey };
	struct ibv_recv_wr recv = { .wr_id = 50, .sg_list = &sge, .num_sge = 1 }, *bad_recv;
	CHECK(!ibv_post_recv(qp, &recv, &bad_recv));
	struct ibv_sge from = { (uintptr_t)peer->buffer + 200, 60, peer->mr->lkey };
	struct ibv_send_wr send = { .wr_id = 51, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED, .imm_data = htonl(0x01020304) }, *bad;
	uint64_t before = device_clock(), wall_before = wallclock();
	CHECK(!ibv_post_send(peer->qp, &send, &bad));
	expect_success(peer->cq, 51, IBV_WC_SEND);
	/* It has arisen, but is not read before this instant. */
	uint64_t after = device_clock(), wall_after = wallclock();
	start_poll();
	CHECK(ex->wr_id == 50 && ex->status == IBV_WC_SUCCESS && ibv_wc_read_opcode(ex) == IBV_WC_RECV);
	CHECK(ibv_wc_read_byte_len(ex) == 60 && ibv_wc_read_imm_data(ex) == htonl(0x01020304));
	CHECK(ibv_wc_read_qp_num(ex) == qp->qp_num && ibv_wc_read_src_qp(ex) == peer->qp->qp_num);
	CHECK(ibv_wc_read_wc_flags(ex) == IBV_WC_WITH_IMM && ibv_wc_read_vendor_err(ex) == 0);
	CHECK(ibv_wc_read_slid(ex) == 0 && ibv_wc_read_sl(ex) == 0 && ibv_wc_read_dlid_path_bits(ex) == 0);
	uint64_t stamp = ibv_wc_read_completion_ts(ex), wall = ibv_wc_read_completion_wallclock_ns(ex);
	CHECK(before <= stamp && stamp <= after);
	CHECK(wall_before <= wall && wall <= wall_after);
	CHECK(ibv_next_poll(ex) == ENOENT);
	ibv_end_poll(ex);
	CHECK(!ibv_destroy_qp(qp));
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	CHECK(!ibv_modify_qp(peer->qp, &reset, IBV_QP_STATE));
	to_init(peer->qp);
}

/* ibv_next_poll leaves the completion whose event waits in the channel: who waits for an event finds something. Here that is the
 * last one before the queue was armed, which has its event at once. */
static void batches_and_events(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq_init_attr_ex attr = { .cqe = 10, .channel = channel };
	ex = ibv_create_cq_ex(context, &attr);
	CHECK(channel && ex);
	struct ibv_cq *cq = ibv_cq_ex_to_cq(ex), *fired;
	struct ibv_qp *before = flushed(1, 2);
	CHECK(!ibv_req_notify_cq(cq, 0));
	struct ibv_qp *after = flushed(3, 2);
	start_poll();
	CHECK(ex->wr_id == 1 && ibv_next_poll(ex) == ENOENT);
	ibv_end_poll(ex);
	void *cq_context;
	CHECK(!ibv_get_cq_event(channel, &fired, &cq_context) && fired == cq);
	ibv_ack_cq_events(cq, 1);
	start_poll();
	CHECK(ex->wr_id == 2 && !ibv_next_poll(ex) && ex->wr_id == 3);
	CHECK(!ibv_next_poll(ex) && ex->wr_id == 4 && ibv_next_poll(ex) == ENOENT);
	ibv_end_poll(ex);
	CHECK(!ibv_destroy_qp(before) && !ibv_destroy_qp(after) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel));
}

int main(void)
{
	context = open_device();
	pd = ibv_alloc_pd(context);
	CHECK(pd);
	struct side peer = make_side(pd, NULL);
	refusals();

	/* Nanoseconds: the clock of the stamps runs at hca_core_clock kHz. */
	struct ibv_device_attr_ex device;
	CHECK(!ibv_query_device_ex(context, NULL, &device));
	CHECK(device.completion_timestamp_mask == UINT64_MAX && device.hca_core_clock == 1000000);

	for (int single = 0; single < 2; single++) {
		ex = create(IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, single ? IBV_CREATE_CQ_ATTR_SINGLE_THREADED : 0);
		CHECK(ex);
		struct ibv_poll_cq_attr attr = { 0 }, unknown = { .comp_mask = 1 };
		CHECK(ibv_start_poll(ex, &attr) == ENOENT && ibv_start_poll(ex, &unknown) == EINVAL);
		all_fields(&peer);

		/* Plain and extended polling take turns; each completion keeps its own stamp, also when those of a destroyed
		 * queue pair vanish from between. */
		uint64_t t[4];
		t[0] = device_clock();
		struct ibv_qp *first = flushed(0, 3);
		t[1] = device_clock();
		struct ibv_qp *gone = flushed(100, 3);
		t[2] = device_clock();
		struct ibv_qp *last = flushed(10, 2);
		t[3] = device_clock();
		CHECK(!ibv_destroy_qp(gone));
		struct ibv_wc wc;
		CHECK(ibv_poll_cq(ibv_cq_ex_to_cq(ex), 1, &wc) == 1 && wc.wr_id == 0 && wc.status == IBV_WC_WR_FLUSH_ERR);
		const uint64_t ids[] = { 1, 2, 10, 11 };
		uint64_t latest = 0;
		for (int i = 0; i < 4; i++) {
			CHECK(!(i ? ibv_next_poll(ex) : ibv_start_poll(ex, &attr)));
			CHECK(ex->wr_id == ids[i] && ex->status == IBV_WC_WR_FLUSH_ERR && ibv_wc_read_vendor_err(ex));
			uint64_t stamp = ibv_wc_read_completion_ts(ex);
			CHECK(stamp >= latest && t[i & 2] <= stamp && stamp <= t[(i & 2) + 1]);
			latest = stamp;
		}
		CHECK(ibv_next_poll(ex) == ENOENT);
		ibv_end_poll(ex);
		CHECK(!ibv_poll_cq(ibv_cq_ex_to_cq(ex), 1, &wc));
		CHECK(!ibv_destroy_qp(first) && !ibv_destroy_qp(last) && !ibv_destroy_cq(ibv_cq_ex_to_cq(ex)));
	}

	batches_and_events();
	destroy_side(&peer);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("cq_ex: ok");
	return 0;
}
