/* What the programs about UD share: a queue pair, and sending from it. */
#ifndef DATAGRAM_H
#define DATAGRAM_H

#include "check.h"

enum { QKEY = 0x11111111, GRH = 40 };

struct datagrams {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char *buffer;
};

/* A UD queue pair in RTS with a completion queue and memory of its own. */
static inline struct datagrams make_datagrams(struct ibv_pd *pd, uint32_t qkey)
{
	struct datagrams side = { .cq = ibv_create_cq(pd->context, 2 * DEPTH, NULL, NULL, 0) };
	CHECK(side.cq);
	struct ibv_qp_init_attr_ex init = { .send_cq = side.cq, .recv_cq = side.cq, .qp_type = IBV_QPT_UD,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 2, .max_recv_sge = 2,
			.max_inline_data = 64 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM };
	side.qp = ibv_create_qp_ex(pd->context, &init);
	CHECK(side.qp && side.qp->qp_type == IBV_QPT_UD);
	side.buffer = calloc(1, BUFFER);
	side.mr = ibv_reg_mr(pd, side.buffer, BUFFER, IBV_ACCESS_LOCAL_WRITE);
	CHECK(side.mr);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = qkey };
	/* A datagram queue pair has no remote access to grant, but a queue key. */
	CHECK(ibv_modify_qp(side.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == EINVAL);
	CHECK(!ibv_modify_qp(side.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(side.qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = 7;
	CHECK(!ibv_modify_qp(side.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	return side;
}

static inline void destroy_datagrams(struct datagrams *side)
{
	CHECK(!ibv_destroy_qp(side->qp));
	CHECK(!ibv_destroy_cq(side->cq));
	CHECK(!ibv_dereg_mr(side->mr));
	free(side->buffer);
}

/* An address handle for a GID, out of the GID of 127.0.0.1. */
static inline struct ibv_ah *make_ah(struct ibv_pd *pd, const union ibv_gid *to)
{
	union ibv_gid own;
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };
	attr.grh.sgid_index = loopback_gid(pd->context, &own);
	attr.grh.dgid = to ? *to : own;
	return ibv_create_ah(pd, &attr);
}

/* Receives `length` bytes and the GRH in front of them, at `offset` of the buffer. */
static inline void expect_datagram(struct datagrams *side, uint64_t wr_id, uint32_t offset, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)side->buffer + offset, GRH + length, side->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(!ibv_post_recv(side->qp, &wr, &bad));
}

/* Sends `length` bytes from the start of the buffer. */
static inline int send_datagram(struct datagrams *side, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)side->buffer, length, side->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1000 + length, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED, .wr.ud = { ah, qpn, qkey } }, *bad;
	return ibv_post_send(side->qp, &wr, &bad);
}

#endif
