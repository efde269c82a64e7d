/* What the C programs of the tests share: a check that names itself when it fails, and a connected pair of RC queue
 * pairs in one process. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>

#define CHECK(condition)                                                                                    \
	do {                                                                                                    \
		if (!(condition)) {                                                                                 \
			fprintf(stderr, "%s:%d: %s (errno %d: %s)\n", __FILE__, __LINE__, #condition, errno, strerror(errno)); \
			exit(1);                                                                                        \
		}                                                                                                   \
	} while (0)

struct side {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char *buffer;
};

enum { BUFFER = 1 << 20, DEPTH = 16 };

static inline struct ibv_context *open_device(void)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list && count == 1 && list[0] && !list[1]);
	struct ibv_context *context = ibv_open_device(list[0]);
	CHECK(context);
	ibv_free_device_list(list);
	return context;
}

/* Index of the GID that stands for 127.0.0.1. */
static inline int loopback_gid(struct ibv_context *context, union ibv_gid *gid)
{
	struct ibv_gid_entry entries[64];
	ssize_t count = ibv_query_gid_table(context, entries, 64, 0);
	CHECK(count > 0);
	for (ssize_t i = 0; i < count; i++) {
		static const uint8_t want[16] = { [10] = 0xff, 0xff, 127, 0, 0, 1 };
		if (!memcmp(entries[i].gid.raw, want, 16)) {
			*gid = entries[i].gid;
			return entries[i].gid_index;
		}
	}
	CHECK(!"127.0.0.1 has no GID");
	return -1;
}

static inline void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	CHECK(qp->state == IBV_QPS_INIT);
}

static inline void to_rts(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
		.rq_psn = 100, .max_dest_rd_atomic = 4, .min_rnr_timer = 12 };
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.sgid_index = loopback_gid(qp->context, &attr.ah_attr.grh.dgid);
	attr.ah_attr.grh.hop_limit = 64;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .sq_psn = 100,
		.max_rd_atomic = 4 };
	CHECK(!ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
	CHECK(qp->state == IBV_QPS_RTS);
}

static inline struct side make_side(struct ibv_pd *pd, struct ibv_comp_channel *channel)
{
	struct side side;
	side.cq = ibv_create_cq(pd->context, 2 * DEPTH, &side, channel, 0);
	CHECK(side.cq && side.cq->cqe >= 2 * DEPTH);
	struct ibv_qp_init_attr init = { .send_cq = side.cq, .recv_cq = side.cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 2, .max_recv_sge = 2,
			.max_inline_data = 64 } };
	side.qp = ibv_create_qp(pd, &init);
	CHECK(side.qp && side.qp->qp_num && side.qp->qp_type == IBV_QPT_RC && side.qp->pd == pd);
	CHECK(init.cap.max_send_wr >= DEPTH && init.cap.max_send_sge >= 2 && init.cap.max_inline_data >= 64);
	side.buffer = aligned_alloc(4096, BUFFER);
	CHECK(side.buffer);
	memset(side.buffer, 0, BUFFER);
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	side.mr = ibv_reg_mr(pd, side.buffer, BUFFER, access);
	CHECK(side.mr && side.mr->addr == side.buffer && side.mr->length == BUFFER && side.mr->pd == pd);
	to_init(side.qp);
	return side;
}

static inline void destroy_side(struct side *side)
{
	CHECK(ibv_destroy_cq(side->cq) == EBUSY);
	CHECK(!ibv_destroy_qp(side->qp));
	CHECK(!ibv_destroy_cq(side->cq));
	CHECK(!ibv_dereg_mr(side->mr));
	free(side->buffer);
}

/* The next completion, whatever its status. */
static inline struct ibv_wc wait_wc(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int count;
	do
		count = ibv_poll_cq(cq, 1, &wc);
	while (count == 0);
	CHECK(count == 1);
	return wc;
}

static inline void expect_success(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc = wait_wc(cq);
	if (wc.status != IBV_WC_SUCCESS)
		fprintf(stderr, "wr %llu: %s\n", (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status));
	CHECK(wc.status == IBV_WC_SUCCESS);
	CHECK(wc.wr_id == wr_id && wc.opcode == opcode);
}

static inline int post_recv(struct side *side, uint64_t wr_id, uint32_t offset, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)side->buffer + offset, length, side->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;
	return ibv_post_recv(side->qp, &wr, &bad);
}

#endif
