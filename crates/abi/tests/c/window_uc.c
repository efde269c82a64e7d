/* Memory windows on UC: bound and closed in the order of the send queue; what comes through a closed one is dropped. */
#include "check.h"

enum { WRITE = IBV_ACCESS_REMOTE_WRITE };

static struct side make_uc(struct ibv_pd *pd)
{
	struct side side = { .cq = ibv_create_cq(pd->context, 2 * DEPTH, NULL, NULL, 0) };
	struct ibv_qp_init_attr init = { .send_cq = side.cq, .recv_cq = side.cq, .qp_type = IBV_QPT_UC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 } };
	side.qp = ibv_create_qp(pd, &init);
	side.buffer = aligned_alloc(4096, BUFFER);
	CHECK(side.cq && side.qp && side.buffer);
	memset(side.buffer, 0, BUFFER);
	side.mr = ibv_reg_mr(pd, side.buffer, BUFFER, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	CHECK(side.mr);
	to_init(side.qp);
	return side;
}

static void connect_uc(struct side *side, uint32_t peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .rq_psn = 5,
		.ah_attr = { .is_global = 1, .port_num = 1 } };
	attr.ah_attr.grh.sgid_index = loopback_gid(side->qp->context, &attr.ah_attr.grh.dgid);
	CHECK(!ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .sq_psn = 5 };
	CHECK(!ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

static void post(struct side *side, struct ibv_send_wr wr)
{
	struct ibv_send_wr *bad;
	wr.send_flags = IBV_SEND_SIGNALED;
	CHECK(!ibv_post_send(side->qp, &wr, &bad));
}

/* `from` writes 64 bytes through a key and sends a message behind; when that has come, the write has or never will. */
static void write_and_tell(struct side *from, struct side *to, uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)from->buffer, 64, from->mr->lkey };
	CHECK(!post_recv(to, 1, 8192, 64));
	post(from, (struct ibv_send_wr){ .wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { (uintptr_t)to->buffer, rkey } });
	post(from, (struct ibv_send_wr){ .wr_id = 3, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND });
	expect_success(from->cq, 2, IBV_WC_RDMA_WRITE);
	expect_success(from->cq, 3, IBV_WC_SEND);
	expect_success(to->cq, 1, IBV_WC_RECV);
}

int main(void)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd);
	struct side near = make_uc(pd), far = make_uc(pd);
	connect_uc(&near, far.qp->qp_num);
	connect_uc(&far, near.qp->qp_num);
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	CHECK(mw);
	uint32_t key = ibv_inc_rkey(mw->rkey);
	memset(near.buffer, 0x5a, 64);

	struct ibv_send_wr bind = { .wr_id = 7, .opcode = IBV_WR_BIND_MW,
		.bind_mw = { mw, key, { far.mr, (uintptr_t)far.buffer, 64, WRITE } } };
	post(&far, bind);
	expect_success(far.cq, 7, IBV_WC_BIND_MW);
	write_and_tell(&near, &far, key);
	CHECK(far.buffer[0] == 0x5a && far.buffer[63] == 0x5a && far.buffer[64] == 0);

	post(&far, (struct ibv_send_wr){ .wr_id = 8, .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = key });
	expect_success(far.cq, 8, IBV_WC_LOCAL_INV);
	memset(far.buffer, 0, 64);
	write_and_tell(&near, &far, key);
	CHECK(far.buffer[0] == 0 && far.buffer[63] == 0);

	/* Refused when executed: a second invalidate. On UC an error of the send queue is that queue's alone: SQE. */
	post(&far, (struct ibv_send_wr){ .wr_id = 9, .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = key });
	struct ibv_wc wc = wait_wc(far.cq);
	CHECK(wc.status == IBV_WC_MW_BIND_ERR && wc.wr_id == 9);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(!ibv_query_qp(far.qp, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_SQE);

	CHECK(!ibv_dealloc_mw(mw));
	destroy_side(&near);
	destroy_side(&far);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("window_uc: ok");
	return 0;
}
