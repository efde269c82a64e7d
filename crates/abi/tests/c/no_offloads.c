/* What only an Ethernet NIC can mean is refused as by a device that lacks it, and what means nothing is invalid. */
#include "check.h"

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

static struct ibv_qp_init_attr_ex init(uint32_t mask)
{
	return (struct ibv_qp_init_attr_ex){ .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | mask, .pd = pd };
}

/* The errno of creating a queue pair so; 0: it was created. */
static int create(struct ibv_qp_init_attr_ex attr)
{
	struct ibv_qp *qp = ibv_create_qp_ex(context, &attr);
	if (!qp)
		return errno;
	CHECK(attr.cap.max_send_wr >= 1 && attr.cap.max_recv_wr >= 1 && attr.cap.max_send_sge >= 1);
	CHECK(!ibv_destroy_qp(qp));
	return 0;
}

static void queue_pairs(void)
{
	CHECK(create(init(0)) == 0);
	CHECK(create(init(IBV_QP_INIT_ATTR_CREATE_FLAGS)) == 0); /* none of them set */
	const uint32_t masks[] = { IBV_QP_INIT_ATTR_MAX_TSO_HEADER, IBV_QP_INIT_ATTR_IND_TABLE, IBV_QP_INIT_ATTR_RX_HASH };
	for (int i = 0; i < 3; i++)
		CHECK(create(init(masks[i])) == EOPNOTSUPP);
	CHECK(create(init(1u << 30)) == EINVAL);
	const uint32_t flags[] = { IBV_QP_CREATE_SCATTER_FCS, IBV_QP_CREATE_CVLAN_STRIPPING, IBV_QP_CREATE_SOURCE_QPN,
		IBV_QP_CREATE_PCI_WRITE_END_PADDING };
	for (int i = 0; i < 4; i++) {
		struct ibv_qp_init_attr_ex attr = init(IBV_QP_INIT_ATTR_CREATE_FLAGS);
		attr.create_flags = flags[i];
		CHECK(create(attr) == EOPNOTSUPP);
	}
	struct ibv_qp_init_attr_ex attr = init(IBV_QP_INIT_ATTR_CREATE_FLAGS);
	attr.create_flags = 1u << 31;
	CHECK(create(attr) == EINVAL);
	attr = init(0);
	attr.comp_mask = 0; /* no protection domain */
	CHECK(create(attr) == EINVAL);
	attr = init(0);
	attr.qp_type = IBV_QPT_RAW_PACKET;
	CHECK(create(attr) == EOPNOTSUPP);
	attr.qp_type = IBV_QPT_DRIVER;
	CHECK(create(attr) == EOPNOTSUPP);
	attr.qp_type = 77;
	CHECK(create(attr) == EINVAL);
}

/* One limit exceeded at a time. */
static void limits(void)
{
	struct ibv_device_attr device;
	CHECK(!ibv_query_device(context, &device));
	const struct ibv_qp_cap too_large[] = {
		{ device.max_qp_wr + 1, 1, 1, 1, 0 }, { 1, device.max_qp_wr + 1, 1, 1, 0 },
		{ 1, 1, device.max_sge + 1, 1, 0 }, { 1, 1, 1, device.max_sge + 1, 0 }, { 1, 1, 1, 1, 1 << 20 },
		{ UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX },
	};
	for (int i = 0; i < 6; i++) {
		struct ibv_qp_init_attr_ex attr = init(0);
		attr.cap = too_large[i];
		int error = create(attr);
		CHECK(error == EINVAL || error == ENOMEM);
	}
	struct ibv_qp_init_attr_ex attr = init(0);
	attr.cap = (struct ibv_qp_cap){ device.max_qp_wr, device.max_qp_wr, device.max_sge, device.max_sge, 0 };
	CHECK(create(attr) == 0);
}

static void objects(void)
{
	struct ibv_wq_init_attr wq = { .wq_type = IBV_WQT_RQ, .max_wr = 1, .max_sge = 1, .pd = pd, .cq = cq };
	CHECK(!ibv_create_wq(context, &wq) && errno == EOPNOTSUPP);
	struct ibv_rwq_ind_table_init_attr table = { 0 };
	CHECK(!ibv_create_rwq_ind_table(context, &table) && errno == EOPNOTSUPP);
	struct ibv_counters_init_attr counters = { 0 };
	CHECK(!ibv_create_counters(context, &counters) && errno == EOPNOTSUPP);
	struct ibv_flow_attr flow = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(flow), .port = 1 };
	struct ibv_qp_init_attr_ex attr = init(0);
	struct ibv_qp *qp = ibv_create_qp_ex(context, &attr);
	CHECK(qp);
	CHECK(!ibv_create_flow(qp, &flow) && errno == EOPNOTSUPP);
	struct ibv_flow_action_esp_attr esp = { 0 };
	CHECK(!ibv_create_flow_action_esp(context, &esp) && errno == EOPNOTSUPP);
	struct ibv_qp_rate_limit_attr rate = { .rate_limit = 1000 };
	CHECK(ibv_modify_qp_rate_limit(qp, &rate) == EOPNOTSUPP);
	CHECK(!ibv_destroy_qp(qp));
	struct ibv_srq_init_attr_ex tags = { .attr = { 1, 1 }, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
		IBV_SRQ_INIT_ATTR_TM | IBV_SRQ_INIT_ATTR_CQ, .srq_type = IBV_SRQT_TM, .pd = pd, .cq = cq };
	CHECK(!ibv_create_srq_ex(context, &tags) && (errno == EOPNOTSUPP || errno == EINVAL));
}

int main(void)
{
	context = open_device();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	CHECK(pd && cq);
	queue_pairs();
	limits();
	objects();
	CHECK(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("no_offloads: ok");
	return 0;
}
