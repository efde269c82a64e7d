/* What the library refuses, and how: NULL, values out of range, objects in use, kinds of object it does not have. */
#include "check.h"

int main(void)
{
	/* NULL where an object is wanted. */
	CHECK(!ibv_open_device(NULL) && errno == EINVAL);
	CHECK(ibv_close_device(NULL) == EINVAL);
	CHECK(!ibv_alloc_pd(NULL) && errno == EINVAL);
	CHECK(ibv_dealloc_pd(NULL) == EINVAL);
	CHECK(ibv_dereg_mr(NULL) == EINVAL);
	CHECK(ibv_destroy_cq(NULL) == EINVAL);
	CHECK(ibv_destroy_qp(NULL) == EINVAL);
	CHECK(ibv_destroy_comp_channel(NULL) == EINVAL);
	CHECK(ibv_query_device(NULL, NULL) == EINVAL);
	ibv_ack_cq_events(NULL, 1);
	ibv_ack_async_event(NULL);
	ibv_free_device_list(NULL);
	CHECK(!ibv_qp_to_qp_ex(NULL));

	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd);

	/* Ports, GIDs, P_Keys. */
	struct ibv_port_attr port;
	CHECK(!ibv_query_port(context, 1, &port));
	CHECK(port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_ETHERNET && port.gid_tbl_len > 0);
	CHECK(ibv_query_port(context, 0, &port) == EINVAL && ibv_query_port(context, 2, &port) == EINVAL);
	union ibv_gid gid, zero = { .raw = { 0 } };
	CHECK(ibv_query_gid(context, 1, -1, &gid) == -1);
	CHECK(ibv_query_gid(context, 1, port.gid_tbl_len, &gid) == -1);
	CHECK(ibv_query_gid(context, 2, 0, &gid) == -1);
	int empty = port.gid_tbl_len - 1;
	struct ibv_gid_entry entry;
	if (!ibv_query_gid(context, 1, empty, &gid) && !memcmp(&gid, &zero, 16))
		CHECK(ibv_query_gid_ex(context, 1, empty, &entry, 0) == ENODATA);
	CHECK(ibv_query_gid_ex(context, 1, port.gid_tbl_len, &entry, 0) == EINVAL);
	CHECK(ibv_query_gid_ex(context, 1, 0, &entry, 1) == EINVAL);
	CHECK(!ibv_query_gid_ex(context, 1, 0, &entry, 0) && entry.gid_type == IBV_GID_TYPE_ROCE_V2);
	CHECK(ibv_query_gid_table(context, &entry, 0, 0) == -EINVAL);
	__be16 pkey;
	CHECK(!ibv_query_pkey(context, 1, 0, &pkey) && pkey == 0xffff);
	CHECK(ibv_query_pkey(context, 1, 1, &pkey) == -1 && ibv_query_pkey(context, 1, -1, &pkey) == -1);
	CHECK(ibv_get_pkey_index(context, 1, 0xffff) == 0 && ibv_get_pkey_index(context, 1, 0x1234) == -1);

	/* Memory regions. */
	static char memory[8192] __attribute__((aligned(4096)));
	CHECK(!ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL);
	CHECK(!ibv_reg_mr(pd, memory, (size_t)-1, IBV_ACCESS_LOCAL_WRITE));
	CHECK(!ibv_reg_mr(pd, (void *)4096, 4096, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT);
	CHECK(!ibv_reg_mr_iova2(pd, memory, 64, 0, 1 << 15));
	struct ibv_mr *mr = ibv_reg_mr_iova2(pd, memory, 4096, 0x1000, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
	CHECK(mr);
	CHECK(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory, 8192, 0) && mr->length == 8192);
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) && mr->length == 8192 && mr->addr == memory);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);

	/* Completion queues. */
	CHECK(!ibv_create_cq(context, 0, NULL, NULL, 0) && errno == EINVAL);
	CHECK(!ibv_create_cq(context, -1, NULL, NULL, 0) && errno == EINVAL);
	CHECK(!ibv_create_cq(context, 1 << 30, NULL, NULL, 0) && errno == EINVAL);
	CHECK(!ibv_create_cq(context, 16, NULL, NULL, context->num_comp_vectors) && errno == EINVAL);
	CHECK(!ibv_create_cq(context, 16, NULL, NULL, -1) && errno == EINVAL);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_wc wc;
	CHECK(cq && ibv_poll_cq(cq, 0, NULL) == 0 && ibv_poll_cq(cq, 1, &wc) == 0);
	CHECK(ibv_poll_cq(cq, -1, &wc) < 0 && ibv_poll_cq(cq, 1, NULL) < 0);
	CHECK(!ibv_resize_cq(cq, 100) && cq->cqe >= 100 && ibv_resize_cq(cq, -5) == EINVAL);

	/* Queue pairs. */
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 16 } };
	struct ibv_qp_init_attr bad_init = init;
	bad_init.cap.max_send_wr = 1 << 30;
	CHECK(!ibv_create_qp(pd, &bad_init) && errno == EINVAL);
	bad_init = init;
	bad_init.send_cq = NULL;
	CHECK(!ibv_create_qp(pd, &bad_init) && errno == EINVAL);
	bad_init = init;
	bad_init.qp_type = 77;
	CHECK(!ibv_create_qp(pd, &bad_init) && errno == EINVAL);
	CHECK(!ibv_create_qp(pd, NULL) && errno == EINVAL);
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp && qp->state == IBV_QPS_RESET && !ibv_qp_to_qp_ex(qp));
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == EINVAL && qp->state == IBV_QPS_RESET);
	attr.qp_state = 99;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == EINVAL);
	CHECK(ibv_modify_qp(qp, NULL, IBV_QP_STATE) == EINVAL);
	CHECK(ibv_modify_qp(qp, &attr, -1) == EINVAL);

	/* Posting: which of the list was refused. */
	struct ibv_sge sge = { (uintptr_t)memory, 64, mr->lkey };
	struct ibv_send_wr send[3] = {
		{ .wr_id = 1, .next = &send[1], .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND },
		{ .wr_id = 2, .next = &send[2], .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND },
		{ .wr_id = 3, .sg_list = &sge, .num_sge = 9, .opcode = IBV_WR_SEND },
	}, *bad_send = NULL;
	CHECK(ibv_post_send(qp, send, &bad_send) == EINVAL && bad_send == &send[0]);
	struct ibv_recv_wr recv[3] = {
		{ .wr_id = 1, .next = &recv[1], .sg_list = &sge, .num_sge = 1 },
		{ .wr_id = 2, .next = &recv[2], .sg_list = &sge, .num_sge = -1 },
		{ .wr_id = 3, .sg_list = &sge, .num_sge = 1 },
	}, *bad_recv = NULL;
	CHECK(ibv_post_recv(qp, recv, &bad_recv) == EINVAL && bad_recv == &recv[0]);
	to_init(qp);
	CHECK(ibv_post_recv(qp, recv, &bad_recv) == EINVAL && bad_recv == &recv[1]);
	to_rts(qp, qp->qp_num);
	CHECK(ibv_post_send(qp, send, &bad_send) == ENOMEM && bad_send == &send[2]);
	struct ibv_send_wr one = { .sg_list = NULL, .num_sge = 1, .opcode = IBV_WR_SEND };
	CHECK(ibv_post_send(qp, &one, &bad_send) == EINVAL && bad_send == &one);
	one = (struct ibv_send_wr){ .sg_list = &sge, .num_sge = 1, .opcode = 4711 };
	CHECK(ibv_post_send(qp, &one, &bad_send) == EINVAL);
	one.opcode = IBV_WR_TSO;
	CHECK(ibv_post_send(qp, &one, &bad_send) == EOPNOTSUPP);
	one.opcode = IBV_WR_SEND;
	one.send_flags = IBV_SEND_INLINE;
	sge.length = 1 << 20;
	CHECK(ibv_post_send(qp, &one, &bad_send) == ENOMEM);
	sge.length = 64;
	/* The queue takes as many as it said, then is full. */
	struct ibv_recv_wr *unused;
	int accepted = 0;
	while (!ibv_post_recv(qp, &recv[2], &unused))
		accepted++;
	CHECK(errno == ENOMEM && accepted >= 3);

	struct ibv_ah_attr ah = { .port_num = 1 };
	/* Without a GID there is no address over Ethernet. */
	CHECK(!ibv_create_ah(pd, &ah) && errno == EINVAL);

	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
	CHECK(!ibv_close_device(context));
	puts("refusals: ok");
	return 0;
}
