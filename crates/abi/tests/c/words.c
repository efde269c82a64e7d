/* Calls that are refused, each for a reason of its own, and more than once; then those whose failure is no mistake. */
#include "check.h"

int main(void)
{
	struct ibv_context *context = open_device();
	struct ibv_port_attr port;
	struct ibv_gid_entry entry;
	union ibv_gid gid;
	__be16 pkey;
	CHECK(!ibv_query_port(context, 1, &port));
	for (int again = 0; again < 3; again++) {
		CHECK(ibv_query_gid(context, 1, 99, &gid) == -1 && errno == EINVAL);
		CHECK(ibv_query_gid_ex(context, 1, 77, &entry, 0) == EINVAL);
		CHECK(ibv_query_gid_ex(context, 1, 0, &entry, 1) == EINVAL);
	}
	CHECK(ibv_query_gid_table(context, NULL, 0, 0) == -EINVAL);
	CHECK(ibv_query_pkey(context, 1, 7, &pkey) == -1);
	CHECK(ibv_get_pkey_index(context, 1, 0x3412) == -1);
	CHECK(ibv_query_port(context, 5, &port) == EINVAL);
	CHECK(ibv_query_gid(context, 3, 0, &gid) == -1);

	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd && !ibv_create_cq(context, 16, NULL, NULL, -1));
	struct side side = make_side(pd, NULL);
	struct ibv_qp_init_attr init = { .send_cq = side.cq, .recv_cq = side.cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1 << 30, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	CHECK(!ibv_create_qp(pd, &init) && errno == EINVAL);
	init.cap.max_send_wr = 1;
	init.qp_type = 77;
	CHECK(!ibv_create_qp(pd, &init) && errno == EINVAL);
	struct ibv_qp_init_attr_ex extended = { .send_cq = side.cq, .recv_cq = side.cq, .qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS };
	CHECK(!ibv_create_qp_ex(context, &extended) && errno == EINVAL);
	struct ibv_qp_attr attr = { .qp_state = 99 };
	CHECK(ibv_modify_qp(side.qp, &attr, IBV_QP_STATE) == EINVAL);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = 9 };
	CHECK(ibv_modify_qp(side.qp, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU) == EINVAL);
	attr.qp_state = IBV_QPS_RESET;
	CHECK(!ibv_modify_qp(side.qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_INIT;
	CHECK(ibv_modify_qp(side.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX) == EINVAL);

	/* To the end of the tables, and on. */
	for (int row = 0; row < 100; row++) {
		int error = ibv_query_gid_ex(context, 1, row, &entry, 0);
		CHECK(row < port.gid_tbl_len ? !error || error == ENODATA : error == EINVAL);
	}
	for (int row = 0; !ibv_query_pkey(context, 1, row, &pkey); row++)
		CHECK(row < port.pkey_tbl_len);
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(side.cq, 1, &wc) == 0);
	char text[64];
	CHECK(context->device->ibdev_path[0]);
	FILE *nothing = fopen("/sys/class/infiniband/rnic0/nothing", "r");
	CHECK(!nothing && snprintf(text, sizeof(text), "%d", errno) > 0);
	/* What follows from something that failed before. */
	CHECK(ibv_modify_qp(NULL, &attr, IBV_QP_STATE) == EINVAL);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);

	CHECK(!ibv_destroy_qp(side.qp) && !ibv_destroy_cq(side.cq) && !ibv_dereg_mr(side.mr) && !ibv_dealloc_pd(pd));
	free(side.buffer);
	CHECK(!ibv_close_device(context));
	puts("words: ok");
	return 0;
}
