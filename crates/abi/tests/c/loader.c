/* The way NCCL and its like find the verbs: nothing linked, every symbol by dlvsym under its exact version, and the hot
 * calls through the operations of the context. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include "check.h"

static void *library;

static void *symbol(const char *name, const char *version)
{
	void *found = dlvsym(library, name, version);
	if (!found)
		fprintf(stderr, "%s@%s: %s\n", name, version, dlerror());
	return found;
}

/* A function pointer named as the verb, with the verb's type. */
#define VERB(name, version)                                                \
	__typeof__(name) *loaded_##name = symbol(#name, version);               \
	CHECK(loaded_##name)
#define CALL(name) (*loaded_##name)

/* Only with these may a program take the operations for granted (verbs_get_ctx). */
static struct verbs_context *extended(struct ibv_context *context)
{
	CHECK(context->abi_compat == __VERBS_ABI_IS_EXTENDED);
	struct verbs_context *verbs = (void *)((char *)context - offsetof(struct verbs_context, context));
	CHECK(verbs->sz >= sizeof(*verbs));
	return verbs;
}

int main(void)
{
	library = dlopen("libibverbs.so", RTLD_NOW);
	if (!library)
		library = dlopen("libibverbs.so.1", RTLD_NOW);
	CHECK(library);
	VERB(ibv_get_device_list, "IBVERBS_1.1");
	VERB(ibv_free_device_list, "IBVERBS_1.1");
	VERB(ibv_get_device_name, "IBVERBS_1.1");
	VERB(ibv_open_device, "IBVERBS_1.1");
	VERB(ibv_close_device, "IBVERBS_1.1");
	VERB(ibv_get_async_event, "IBVERBS_1.1");
	VERB(ibv_ack_async_event, "IBVERBS_1.1");
	VERB(ibv_query_device, "IBVERBS_1.1");
	VERB(ibv_query_gid, "IBVERBS_1.1");
	VERB(ibv_query_qp, "IBVERBS_1.1");
	VERB(ibv_alloc_pd, "IBVERBS_1.1");
	VERB(ibv_dealloc_pd, "IBVERBS_1.1");
	VERB(ibv_reg_mr_iova2, "IBVERBS_1.8");
	VERB(ibv_reg_dmabuf_mr, "IBVERBS_1.12");
	VERB(ibv_dereg_mr, "IBVERBS_1.1");
	VERB(ibv_create_cq, "IBVERBS_1.1");
	VERB(ibv_destroy_cq, "IBVERBS_1.1");
	VERB(ibv_create_qp, "IBVERBS_1.1");
	VERB(ibv_modify_qp, "IBVERBS_1.1");
	VERB(ibv_destroy_qp, "IBVERBS_1.1");
	VERB(ibv_fork_init, "IBVERBS_1.1");
	VERB(ibv_event_type_str, "IBVERBS_1.1");
	VERB(ibv_query_ece, "IBVERBS_1.10");
	VERB(ibv_set_ece, "IBVERBS_1.10");
	CHECK(symbol("ibv_reg_mr", "IBVERBS_1.1") && symbol("ibv_query_port", "IBVERBS_1.1"));
	CHECK(symbol("ibv_create_comp_channel", "IBVERBS_1.0"));
	CHECK(!dlvsym(library, "ibv_query_ece", "IBVERBS_1.1")); /* exact means exact */
	(void)loaded_ibv_get_async_event, (void)loaded_ibv_ack_async_event, (void)loaded_ibv_reg_dmabuf_mr;

	CHECK(!CALL(ibv_fork_init)());
	int count;
	struct ibv_device **list = CALL(ibv_get_device_list)(&count);
	CHECK(list && count == 1 && CALL(ibv_get_device_name)(list[0]));
	struct ibv_context *context = CALL(ibv_open_device)(list[0]);
	CHECK(context);
	CALL(ibv_free_device_list)(list);
	struct verbs_context *verbs = extended(context);
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	memset(&port, 0xff, sizeof(port));
	CHECK(!CALL(ibv_query_device)(context, &device) && device.phys_port_cnt == 1);
	CHECK(!verbs->query_port(context, 1, &port, sizeof(port)) && port.state == IBV_PORT_ACTIVE);
	int index = -1;
	union ibv_gid gid;
	for (int i = 0; index < 0 && i < port.gid_tbl_len; i++) {
		CHECK(!CALL(ibv_query_gid)(context, 1, i, &gid));
		if (gid.raw[10] == 0xff && gid.raw[12] == 127)
			index = i;
	}
	CHECK(index >= 0);

	/* A queue pair connected to itself. */
	struct ibv_pd *pd = CALL(ibv_alloc_pd)(context);
	struct ibv_cq *cq = CALL(ibv_create_cq)(context, 10, NULL, NULL, 0);
	CHECK(pd && cq);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = CALL(ibv_create_qp)(pd, &init);
	CHECK(qp);
	struct ibv_ece ece = { .vendor_id = 1 };
	CHECK(CALL(ibv_query_ece)(qp, &ece) == EOPNOTSUPP);
	CHECK(CALL(ibv_set_ece)(qp, &ece) == EOPNOTSUPP);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	CHECK(!CALL(ibv_modify_qp)(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = index, .hop_limit = 255 } } };
	CHECK(!CALL(ibv_modify_qp)(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7,
		.max_rd_atomic = 1 };
	CHECK(!CALL(ibv_modify_qp)(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
	struct ibv_qp_init_attr now;
	CHECK(!CALL(ibv_query_qp)(qp, &attr, IBV_QP_STATE, &now) && attr.qp_state == IBV_QPS_RTS);

	/* A message: post_send, post_recv and poll_cq are operations, no symbols. */
	char buffer[2][64] = { "through the table", "" };
	struct ibv_mr *mr = CALL(ibv_reg_mr_iova2)(pd, buffer, sizeof(buffer), (uintptr_t)buffer,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
	CHECK(mr);
	struct ibv_sge to = { (uintptr_t)buffer[1], 64, mr->lkey }, from = { (uintptr_t)buffer[0], 64, mr->lkey };
	struct ibv_recv_wr recv = { .wr_id = 1, .sg_list = &to, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .wr_id = 2, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED }, *bad;
	CHECK(!context->ops.post_recv(qp, &recv, &bad_recv) && !context->ops.post_send(qp, &send, &bad));
	for (int done = 0; done < 2;) {
		struct ibv_wc wc[4];
		int polled = context->ops.poll_cq(cq, 4, wc);
		CHECK(polled >= 0);
		for (int i = 0; i < polled; i++)
			CHECK(wc[i].status == IBV_WC_SUCCESS);
		done += polled;
	}
	CHECK(!strcmp(buffer[1], "through the table"));
	CHECK(!strcmp(CALL(ibv_event_type_str)(IBV_EVENT_CQ_ERR), "CQ error"));
	CHECK(!CALL(ibv_dereg_mr)(mr) && !CALL(ibv_destroy_qp)(qp) && !CALL(ibv_destroy_cq)(cq) && !CALL(ibv_dealloc_pd)(pd));
	CHECK(!CALL(ibv_close_device)(context));
	puts("loader: ok");
	return 0;
}
