/* A requester and a responder in one process, which tests of memory rights break and mend again. */
#ifndef PAIR_H
#define PAIR_H

#include "check.h"

struct pair {
	struct ibv_context *context;
	struct ibv_pd *pd;
	/* `near` posts, `far` is what it reaches. */
	struct side near, far;
};

static inline void connect_pair(struct pair *pair)
{
	to_rts(pair->near.qp, pair->far.qp->qp_num);
	to_rts(pair->far.qp, pair->near.qp->qp_num);
}

static inline struct pair make_pair(void)
{
	struct pair pair = { .context = open_device() };
	pair.pd = ibv_alloc_pd(pair.context);
	CHECK(pair.pd);
	pair.near = make_side(pair.pd, NULL);
	pair.far = make_side(pair.pd, NULL);
	connect_pair(&pair);
	return pair;
}

static inline void destroy_pair(struct pair *pair)
{
	destroy_side(&pair->near);
	destroy_side(&pair->far);
	CHECK(!ibv_dealloc_pd(pair->pd) && !ibv_close_device(pair->context));
}

/* Both queue pairs from whatever state to RTS again; what waits in their completion queues is thrown away. */
static inline void mend_pair(struct pair *pair)
{
	struct ibv_qp *qps[2] = { pair->near.qp, pair->far.qp };
	struct ibv_wc wc;
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
		CHECK(!ibv_modify_qp(qps[i], &reset, IBV_QP_STATE));
		while (ibv_poll_cq(qps[i]->send_cq, 1, &wc) > 0)
			;
		to_init(qps[i]);
	}
	connect_pair(pair);
}

static inline enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

/* One work request with one local piece; gives the status of its completion. */
static inline enum ibv_wc_status do_one(struct side *side, enum ibv_wr_opcode opcode, struct ibv_sge sge,
	uint64_t remote_addr, uint32_t rkey)
{
	struct ibv_send_wr wr = { .wr_id = 77, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED }, *bad;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = remote_addr;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = remote_addr;
		wr.wr.rdma.rkey = rkey;
	}
	CHECK(!ibv_post_send(side->qp, &wr, &bad));
	struct ibv_wc wc = wait_wc(side->cq);
	CHECK(wc.wr_id == 77);
	return wc.status;
}

static inline struct ibv_sge sge_of(struct side *side, uint32_t offset, uint32_t length)
{
	return (struct ibv_sge){ (uintptr_t)side->buffer + offset, length, side->mr->lkey };
}

/* `near` writes, reads or adds to what `far` owns, from and to the start of its buffer. */
static inline enum ibv_wc_status reach(struct pair *pair, enum ibv_wr_opcode opcode, uint64_t addr, uint32_t length,
	uint32_t rkey)
{
	return do_one(&pair->near, opcode, sge_of(&pair->near, 0, length), addr, rkey);
}

/* The same must be refused: remote access error at the requester, both queue pairs in ERR. Then mends the pair. */
#define EXPECT_REFUSED(pair, opcode, addr, length, rkey)                                   \
	do {                                                                                    \
		CHECK(reach(pair, opcode, addr, length, rkey) == IBV_WC_REM_ACCESS_ERR);             \
		CHECK(state_of((pair)->near.qp) == IBV_QPS_ERR && state_of((pair)->far.qp) == IBV_QPS_ERR); \
		mend_pair(pair);                                                                     \
	} while (0)

#define EXPECT_REACHED(pair, opcode, addr, length, rkey) \
	CHECK(reach(pair, opcode, addr, length, rkey) == IBV_WC_SUCCESS)

#endif
