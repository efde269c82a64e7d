/* The data path takes no memory that it has not taken before: when every allocation of the process fails, what was made goes
 * on working, and can be destroyed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include "pair.h"
#include "shortage.h"

enum { ROUNDS = 300, SIZE = 512, ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	IBV_ACCESS_REMOTE_ATOMIC, GRH = 40 };

struct end {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char *memory;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_srq *srq;

static struct end make_end(enum ibv_qp_type type, struct ibv_srq *shared)
{
	struct end end = { .cq = ibv_create_cq(context, 64, NULL, channel, 0), .memory = aligned_alloc(4096, BUFFER) };
	CHECK(end.cq && end.memory);
	struct ibv_qp_init_attr init = { .send_cq = end.cq, .recv_cq = end.cq, .srq = shared, .qp_type = type,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 8, .max_recv_sge = 8,
			.max_inline_data = 256 } };
	end.qp = ibv_create_qp(pd, &init);
	end.mr = ibv_reg_mr(pd, end.memory, BUFFER, ALL);
	CHECK(end.qp && end.mr);
	memset(end.memory, 0, BUFFER);
	return end;
}

static void end_end(struct end *end)
{
	CHECK(!ibv_destroy_qp(end->qp) && !ibv_destroy_cq(end->cq) && !ibv_dereg_mr(end->mr));
	free(end->memory);
}

static void connect_to(struct end *end, uint32_t peer)
{
	enum ibv_qp_type type = end->qp->qp_type;
	if (type == IBV_QPT_RC) {
		to_init(end->qp);
		to_rts(end->qp, peer);
		return;
	}
	int ud = type == IBV_QPT_UD;
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 7, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	CHECK(!ibv_modify_qp(end->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		(ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
	struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .rq_psn = 3 };
	rtr.ah_attr.is_global = rtr.ah_attr.port_num = 1;
	rtr.ah_attr.grh.sgid_index = loopback_gid(context, &rtr.ah_attr.grh.dgid);
	rtr.ah_attr.grh.hop_limit = 64;
	CHECK(!ibv_modify_qp(end->qp, &rtr, ud ? IBV_QP_STATE :
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN));
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .sq_psn = 3 };
	CHECK(!ibv_modify_qp(end->qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

/* Waits asleep where that is asked for, as programs do that have a channel. */
static void finish(struct end *end, uint64_t wr_id, int asleep)
{
	struct ibv_wc wc;
	int count;
	while (!(count = ibv_poll_cq(end->cq, 1, &wc)))
		if (asleep) {
			CHECK(!ibv_req_notify_cq(end->cq, 0));
			if ((count = ibv_poll_cq(end->cq, 1, &wc)))
				break;
			struct ibv_cq *cq;
			void *it;
			CHECK(!ibv_get_cq_event(channel, &cq, &it));
			ibv_ack_cq_events(cq, 1);
		}
	if (count == 1 && wc.status)
		fprintf(stderr, "wr %llu: %s\n", (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status));
	CHECK(count == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == wr_id);
}

/* A list of `pieces` elements that lie one behind the other. */
static struct ibv_sge *list_of(struct end *end, size_t from, uint32_t length, int pieces)
{
	static struct ibv_sge list[8];
	for (int i = 0; i < pieces; i++)
		list[i] = (struct ibv_sge){ (uintptr_t)end->memory + from + i * (length / pieces), length / pieces, end->mr->lkey };
	return list;
}

static void post(struct end *end, enum ibv_wr_opcode opcode, uint32_t length, int pieces, unsigned flags, uint64_t to,
	uint32_t rkey, struct ibv_ah *ah, uint32_t qpn)
{
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = list_of(end, 0, length, pieces), .num_sge = pieces, .opcode = opcode,
		.send_flags = flags | IBV_SEND_SIGNALED }, *bad;
	if (ah) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = qpn;
		wr.wr.ud.remote_qkey = 7;
	} else if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = to;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = to;
		wr.wr.rdma.rkey = rkey;
	}
	CHECK(!ibv_post_send(end->qp, &wr, &bad));
}

static void receive(struct end *end, uint32_t length, int pieces)
{
	struct ibv_recv_wr wr = { .wr_id = 2, .sg_list = list_of(end, 0, length, pieces), .num_sge = pieces }, *bad;
	CHECK(!(end->qp->srq ? ibv_post_srq_recv(end->qp->srq, &wr, &bad) : ibv_post_recv(end->qp, &wr, &bad)));
}

/* SENDs from one end to the other: short and long, in one piece and in several, inline or not. */
static void messages(struct end *from, struct end *to, struct ibv_ah *ah)
{
	static const struct { uint32_t length; int pieces; unsigned flags; } shapes[] = { { 8, 1, 0 }, { 32, 1, IBV_SEND_INLINE },
		{ 240, 8, IBV_SEND_INLINE }, { SIZE, 2, 0 }, { SIZE, 8, 0 }, { BUFFER / 2, 1, 0 }, { BUFFER / 2, 4, 0 } };
	for (int round = 0; round < ROUNDS; round++) {
		unsigned shape = round % (sizeof shapes / sizeof *shapes);
		uint32_t length = shapes[shape].length;
		if (ah && length > SIZE)
			length = SIZE;
		int pieces = shapes[shape].pieces, asleep = round % 5 == 0, prefix = ah ? GRH : 0;
		memset(from->memory, round + 1, length);
		receive(to, (ah ? 1024 : length) / pieces * pieces, pieces);
		post(from, IBV_WR_SEND, length, pieces, shapes[shape].flags, 0, 0, ah, to->qp->qp_num);
		finish(to, 2, asleep);
		finish(from, 1, 0);
		CHECK(to->memory[prefix] == (char)(round + 1) && to->memory[prefix + length - 1] == (char)(round + 1));
	}
}

static void one_sided(struct end *from, struct end *to)
{
	static const uint32_t lengths[] = { 8, SIZE, BUFFER / 2 };
	uint64_t *counter = (uint64_t *)(to->memory + BUFFER - 8), before = *counter;
	for (int round = 0; round < ROUNDS; round++) {
		uint32_t length = lengths[round % 3];
		int pieces = 1 + round % 4;
		memset(from->memory, round + 1, length);
		post(from, IBV_WR_RDMA_WRITE, length / pieces * pieces, pieces, 0, (uintptr_t)to->memory, to->mr->rkey, NULL, 0);
		finish(from, 1, round % 5 == 0);
		memset(from->memory, 0, length);
		post(from, IBV_WR_RDMA_READ, length / pieces * pieces, pieces, 0, (uintptr_t)to->memory, to->mr->rkey, NULL, 0);
		finish(from, 1, 0);
		CHECK(from->memory[0] == (char)(round + 1));
		post(from, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 1, 0, (uintptr_t)counter, to->mr->rkey, NULL, 0);
		finish(from, 1, 0);
	}
	CHECK(*counter == before + ROUNDS);
}

/* As many as fit, posted at once. */
static void rows(struct end *from, struct end *to)
{
	for (int round = 0; round < ROUNDS / 10; round++) {
		for (int i = 0; i < DEPTH; i++)
			receive(to, SIZE, 4);
		for (int i = 0; i < DEPTH; i++)
			post(from, IBV_WR_SEND, SIZE, 4, 0, 0, 0, NULL, 0);
		for (int i = 0; i < DEPTH; i++) {
			finish(to, 2, 0);
			finish(from, 1, 0);
		}
	}
}

int main(void)
{
	real_create = dlsym(RTLD_NEXT, "pthread_create");
	context = open_device();
	pd = ibv_alloc_pd(context);
	channel = ibv_create_comp_channel(context);
	srq = ibv_create_srq(pd, &(struct ibv_srq_init_attr){ .attr = { .max_wr = DEPTH, .max_sge = 8 } });
	CHECK(pd && channel && srq);
	struct end rc[2] = { make_end(IBV_QPT_RC, NULL), make_end(IBV_QPT_RC, NULL) };
	struct end shared[2] = { make_end(IBV_QPT_RC, NULL), make_end(IBV_QPT_RC, srq) };
	struct end uc[2] = { make_end(IBV_QPT_UC, NULL), make_end(IBV_QPT_UC, NULL) };
	struct end ud[2] = { make_end(IBV_QPT_UD, NULL), make_end(IBV_QPT_UD, NULL) };
	for (int i = 0; i < 2; i++) {
		connect_to(&rc[i], rc[!i].qp->qp_num);
		connect_to(&shared[i], shared[!i].qp->qp_num);
		connect_to(&uc[i], uc[!i].qp->qp_num);
		connect_to(&ud[i], 0);
	}
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh.hop_limit = 64 };
	attr.grh.sgid_index = loopback_gid(context, &attr.grh.dgid);
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	CHECK(ah);

	atomic_store(&exhausted, 1);
	messages(&rc[0], &rc[1], NULL);
	one_sided(&rc[1], &rc[0]);
	rows(&rc[0], &rc[1]);
	messages(&shared[0], &shared[1], NULL);
	messages(&uc[0], &uc[1], NULL);
	messages(&ud[0], &ud[1], ah);
	errno = 0;
	CHECK(!ibv_create_cq(context, 10, NULL, NULL, 0) && errno == ENOMEM);
	errno = 0;
	CHECK(!ibv_alloc_pd(context) && errno == ENOMEM);
	/* A connection that fails says so. */
	struct ibv_sge sge = { (uintptr_t)rc[0].memory, 8, rc[0].mr->lkey };
	struct ibv_send_wr wild = { .wr_id = 9, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED, .wr.rdma = { 1, 1 } }, *bad;
	CHECK(!ibv_post_send(rc[0].qp, &wild, &bad));
	struct ibv_wc wc = wait_wc(rc[0].cq);
	CHECK(wc.wr_id == 9 && wc.status == IBV_WC_REM_ACCESS_ERR);
	for (int i = 0; i < 2; i++)
		end_end(&uc[i]);
	CHECK(!ibv_destroy_ah(ah));
	for (int i = 0; i < 2; i++)
		end_end(&ud[i]);
	atomic_store(&exhausted, 0);

	struct end again = make_end(IBV_QPT_RC, NULL);
	end_end(&again);
	for (int i = 0; i < 2; i++) {
		end_end(&rc[i]);
		end_end(&shared[i]);
	}
	CHECK(!ibv_destroy_srq(srq) && !ibv_destroy_comp_channel(channel) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("without_memory: ok");
	return 0;
}
