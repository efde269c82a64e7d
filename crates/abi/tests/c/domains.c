/* Protection domains, thread domains and parent domains: who keeps whom in use, and whose allocator is called. */
#include "pair.h"

enum { QP = 1, CQ = 2, SRQ = 3 };

/* What the allocator was asked for, by resource type; with `starve` it has nothing, with `shy` it leaves it to rnic. */
static int allocated[4], freed[4], starve, shy;
static struct ibv_pd *expected_pd;

static void *allocate(struct ibv_pd *pd, void *context, size_t size, size_t alignment, uint64_t type)
{
	CHECK(pd == expected_pd && context == &starve && size && type <= SRQ);
	if (starve)
		return NULL;
	if (shy)
		return IBV_ALLOCATOR_USE_DEFAULT;
	allocated[type]++;
	return aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

static void release(struct ibv_pd *pd, void *context, void *memory, uint64_t type)
{
	CHECK(pd == expected_pd && context == &starve && memory && type <= SRQ);
	freed[type]++;
	free(memory);
}

int main(void)
{
	struct pair pair = make_pair();
	struct ibv_context *context = pair.context;
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_td *td = ibv_alloc_td(context, &td_attr);
	CHECK(pd && td && td->context == context);
	td_attr.comp_mask = 1;
	CHECK(!ibv_alloc_td(context, &td_attr) && errno == EINVAL);

	/* Wrong attributes. */
	struct ibv_parent_domain_init_attr attr = { 0 };
	CHECK(!ibv_alloc_parent_domain(context, &attr) && errno == EINVAL);
	attr = (struct ibv_parent_domain_init_attr){ .pd = pd, .comp_mask = 8 };
	CHECK(!ibv_alloc_parent_domain(context, &attr) && errno == EINVAL);
	attr = (struct ibv_parent_domain_init_attr){ .pd = pd, .comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS };
	CHECK(!ibv_alloc_parent_domain(context, &attr) && errno == EINVAL);

	/* A parent domain keeps the domain and the thread domain in use, and is kept by its own objects. */
	attr = (struct ibv_parent_domain_init_attr){ .pd = pd, .td = td,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
		.alloc = allocate, .free = release, .pd_context = &starve };
	struct ibv_pd *parent = expected_pd = ibv_alloc_parent_domain(context, &attr);
	CHECK(parent && parent != pd && parent->context == context);
	CHECK(ibv_dealloc_pd(pd) == EBUSY && ibv_dealloc_td(td) == EBUSY);
	char memory[64];
	struct ibv_mr *mr = ibv_reg_mr(parent, memory, 64, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mw *mw = ibv_alloc_mw(parent, IBV_MW_TYPE_1);
	CHECK(mr && mr->pd == parent && mw && ibv_dealloc_pd(parent) == EBUSY);
	CHECK(!ibv_dealloc_mw(mw) && ibv_dealloc_pd(parent) == EBUSY && !ibv_dereg_mr(mr));

	/* Queues come from its allocator. */
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = pd };
	CHECK(!ibv_create_cq_ex(context, &cq_attr) && errno == EINVAL);
	cq_attr.parent_domain = parent;
	struct ibv_cq *cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(context, &cq_attr));
	CHECK(cq && allocated[CQ] == 1 && ibv_dealloc_pd(parent) == EBUSY);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(parent, &init);
	CHECK(qp && qp->pd == parent && allocated[QP] == 1);
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(parent, &srq_attr);
	CHECK(srq && srq->pd == parent && allocated[SRQ] == 1);

	/* They are of the same protection domain: regions of the one serve queue pairs of the other. */
	mr = ibv_reg_mr(pd, memory, 64, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	to_init(qp);
	to_rts(qp, qp->qp_num);
	memset(memory, 0x42, 32);
	struct ibv_sge from = { (uintptr_t)memory, 32, mr->lkey }, to = { (uintptr_t)memory + 32, 32, mr->lkey };
	struct ibv_recv_wr recv = { .wr_id = 1, .sg_list = &to, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .wr_id = 2, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad_send;
	CHECK(!ibv_post_recv(qp, &recv, &bad_recv) && !ibv_post_send(qp, &send, &bad_send));
	expect_success(cq, 1, IBV_WC_RECV);
	CHECK(memory[63] == 0x42);

	/* No memory: no object. A refused object gives its memory back. */
	starve = 1;
	CHECK(!ibv_create_qp(parent, &init) && errno == ENOMEM);
	CHECK(!ibv_create_srq(parent, &srq_attr) && errno == ENOMEM);
	CHECK(!ibv_create_cq_ex(context, &cq_attr) && errno == ENOMEM);
	starve = 0;
	init.cap.max_send_wr = 1 << 30;
	CHECK(!ibv_create_qp(parent, &init) && allocated[QP] == 2 && freed[QP] == 1);
	init.cap.max_send_wr = 4;
	shy = 1;
	struct ibv_qp *own = ibv_create_qp(parent, &init);
	CHECK(own && !ibv_destroy_qp(own) && allocated[QP] == 2 && freed[QP] == 1);

	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_srq(srq) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(mr));
	for (int type = QP; type <= SRQ; type++)
		CHECK(allocated[type] == freed[type]);
	CHECK(ibv_dealloc_pd(pd) == EBUSY && !ibv_dealloc_pd(parent));
	CHECK(!ibv_dealloc_td(td) && !ibv_dealloc_pd(pd));

	/* Each kind of object keeps its domain in use. */
	pd = ibv_alloc_pd(context);
	struct ibv_alloc_dm_attr dm_attr = { .length = 64 };
	struct ibv_dm *dm = ibv_alloc_dm(context, &dm_attr);
	CHECK(pd && dm);
	CHECK((mr = ibv_alloc_null_mr(pd)) && ibv_dealloc_pd(pd) == EBUSY && !ibv_dereg_mr(mr));
	CHECK((mr = ibv_reg_dm_mr(pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED)) && ibv_dealloc_pd(pd) == EBUSY && !ibv_dereg_mr(mr));
	CHECK((mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2)) && ibv_dealloc_pd(pd) == EBUSY && !ibv_dealloc_mw(mw));
	CHECK(!ibv_free_dm(dm) && !ibv_dealloc_pd(pd));

	destroy_pair(&pair);
	puts("domains: ok");
	return 0;
}
