/* Binds and invalidates through ibv_wr_*: one batch opens a window, writes, and closes another. */
#include "pair.h"

int main(void)
{
	struct pair pair = make_pair();
	struct ibv_qp_init_attr_ex init = { .send_cq = pair.far.cq, .recv_cq = pair.far.cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .pd = pair.pd,
		.send_ops_flags = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND };
	CHECK(!ibv_destroy_qp(pair.far.qp));
	pair.far.qp = ibv_create_qp_ex(pair.context, &init);
	CHECK(pair.far.qp);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(pair.far.qp);
	CHECK(qp);
	to_init(pair.far.qp);
	mend_pair(&pair);

	char *memory = aligned_alloc(4096, 4096);
	CHECK(memory);
	memset(memory, 0, 4096);
	memset(pair.near.buffer, 0x5a, 4096);
	struct ibv_mr *mr = ibv_reg_mr(pair.pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_mw *first = ibv_alloc_mw(pair.pd, IBV_MW_TYPE_2), *second = ibv_alloc_mw(pair.pd, IBV_MW_TYPE_2);
	CHECK(mr && first && second);
	uint32_t key = ibv_inc_rkey(first->rkey), other = ibv_inc_rkey(second->rkey);
	struct ibv_mw_bind_info low = { mr, (uintptr_t)memory, 64, IBV_ACCESS_REMOTE_WRITE };
	struct ibv_mw_bind_info high = { mr, (uintptr_t)memory + 64, 64, IBV_ACCESS_REMOTE_WRITE };

	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_bind_mw(qp, first, key, &low);
	CHECK(!ibv_wr_complete(qp));
	expect_success(pair.far.cq, 1, IBV_WC_BIND_MW);
	EXPECT_REACHED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory, 64, key);

	/* Closes one and opens the other; only the last is signaled. */
	ibv_wr_start(qp);
	qp->wr_id = 2;
	qp->wr_flags = 0;
	ibv_wr_local_inv(qp, key);
	qp->wr_id = 3;
	qp->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
	ibv_wr_bind_mw(qp, second, other, &high);
	CHECK(!ibv_wr_complete(qp));
	expect_success(pair.far.cq, 3, IBV_WC_BIND_MW);
	memset(memory, 0, 4096);
	EXPECT_REACHED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory + 64, 64, other);
	CHECK(memory[63] == 0 && memory[64] == 0x5a && memory[127] == 0x5a && memory[128] == 0);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory, 8, key);

	/* A batch with a bind that cannot be posts nothing of itself. */
	ibv_wr_start(qp);
	qp->wr_id = 4;
	ibv_wr_bind_mw(qp, second, other, &high);
	ibv_wr_bind_mw(qp, NULL, other, &high);
	CHECK(ibv_wr_complete(qp) == EINVAL);
	ibv_wr_start(qp);
	ibv_wr_bind_mw(qp, second, other ^ 0x100, &high);
	CHECK(ibv_wr_complete(qp) == EINVAL);
	ibv_wr_start(qp);
	ibv_wr_bind_mw(qp, second, other, NULL);
	CHECK(ibv_wr_complete(qp) == EINVAL);
	EXPECT_REFUSED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)memory + 64, 8, other);
	CHECK(!ibv_dereg_mr(mr));

	/* What was not asked for at creation. */
	init.send_ops_flags = IBV_QP_EX_WITH_SEND;
	struct ibv_qp *plain = ibv_create_qp_ex(pair.context, &init);
	CHECK(plain);
	ibv_wr_start(ibv_qp_to_qp_ex(plain));
	ibv_wr_local_inv(ibv_qp_to_qp_ex(plain), key);
	CHECK(ibv_wr_complete(ibv_qp_to_qp_ex(plain)) == EOPNOTSUPP);

	CHECK(!ibv_destroy_qp(plain) && !ibv_dealloc_mw(first) && !ibv_dealloc_mw(second));
	destroy_pair(&pair);
	free(memory);
	puts("window_post: ok");
	return 0;
}
