/* What docs/symbols.md says is refused, is, and in that way: a line for each, `name@version ERRNO`, which abi/tests/symbols.rs
 * compares with the table. Symbols are asked for by name and version, so that headers of any age will do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <rdma/rdma_cma.h>
#include "check.h"

static struct ibv_context *context;

static void *symbol(const char *name, const char *version)
{
	void *found = dlvsym(RTLD_DEFAULT, name, version);
	if (!found)
		fprintf(stderr, "%s@%s: %s\n", name, version, dlerror());
	CHECK(found);
	return found;
}

static const char *named(int number)
{
	switch (number) {
	case EOPNOTSUPP:
		return "EOPNOTSUPP";
	case ENOSYS:
		return "ENOSYS";
	case ENODATA:
		return "ENODATA";
	default:
		return strerror(number);
	}
}

/* How a function reports failure: NULL, the errno, or -1; always errno too. */
enum how { POINTER, STATUS, NUMBER };

static void refused(const char *name, const char *version, enum how how, intptr_t result)
{
	int number = errno;
	CHECK(how == POINTER ? !result : how == STATUS ? (int)result == number : (int)result == -1);
	printf("%s%s%s %s\n", name, *version ? "@" : "", version, named(number));
}

typedef intptr_t any(void *, void *, void *, void *, void *, void *);

/* Of kinds of objects that cannot be made, so that there are none to call these with; and of 2007. */
static const struct {
	const char *name, *version;
	enum how how;
} without_objects[] = {
	{ "ibv_resolve_eth_l2_from_gid", "IBVERBS_1.1", NUMBER },
	{ "ibv_alloc_dmah", "IBVERBS_1.15", POINTER },
	{ "ibv_dealloc_dmah", "IBVERBS_1.15", STATUS },
	{ "ibv_dm_export_dmabuf_fd", "IBVERBS_1.16", NUMBER },
	{ "_ibv_query_comp_cntr_caps", "IBVERBS_1.18", STATUS },
	{ "ibv_create_comp_cntr", "IBVERBS_1.18", POINTER },
	{ "ibv_destroy_comp_cntr", "IBVERBS_1.18", STATUS },
	{ "ibv_inc_comp_cntr", "IBVERBS_1.18", STATUS },
	{ "ibv_inc_err_comp_cntr", "IBVERBS_1.18", STATUS },
	{ "ibv_qp_attach_comp_cntr", "IBVERBS_1.18", STATUS },
	{ "ibv_read_comp_cntr", "IBVERBS_1.18", STATUS },
	{ "ibv_read_err_comp_cntr", "IBVERBS_1.18", STATUS },
	{ "ibv_set_comp_cntr", "IBVERBS_1.18", STATUS },
	{ "ibv_set_err_comp_cntr", "IBVERBS_1.18", STATUS },
	{ "ibv_alloc_pd", "IBVERBS_1.0", POINTER },
	{ "ibv_attach_mcast", "IBVERBS_1.0", STATUS },
	{ "ibv_close_device", "IBVERBS_1.0", STATUS },
	{ "ibv_create_ah", "IBVERBS_1.0", POINTER },
	{ "ibv_create_cq", "IBVERBS_1.0", POINTER },
	{ "ibv_create_qp", "IBVERBS_1.0", POINTER },
	{ "ibv_create_srq", "IBVERBS_1.0", POINTER },
	{ "ibv_dealloc_pd", "IBVERBS_1.0", STATUS },
	{ "ibv_dereg_mr", "IBVERBS_1.0", STATUS },
	{ "ibv_destroy_ah", "IBVERBS_1.0", STATUS },
	{ "ibv_destroy_cq", "IBVERBS_1.0", STATUS },
	{ "ibv_destroy_qp", "IBVERBS_1.0", STATUS },
	{ "ibv_destroy_srq", "IBVERBS_1.0", STATUS },
	{ "ibv_detach_mcast", "IBVERBS_1.0", STATUS },
	{ "ibv_get_async_event", "IBVERBS_1.0", NUMBER },
	{ "ibv_get_cq_event", "IBVERBS_1.0", NUMBER },
	{ "ibv_get_device_name", "IBVERBS_1.0", POINTER },
	{ "ibv_modify_qp", "IBVERBS_1.0", STATUS },
	{ "ibv_modify_srq", "IBVERBS_1.0", STATUS },
	{ "ibv_open_device", "IBVERBS_1.0", POINTER },
	{ "ibv_query_device", "IBVERBS_1.0", STATUS },
	{ "ibv_query_gid", "IBVERBS_1.0", NUMBER },
	{ "ibv_query_pkey", "IBVERBS_1.0", NUMBER },
	{ "ibv_query_port", "IBVERBS_1.0", STATUS },
	{ "ibv_query_qp", "IBVERBS_1.0", STATUS },
	{ "ibv_query_srq", "IBVERBS_1.0", STATUS },
	{ "ibv_reg_mr", "IBVERBS_1.0", POINTER },
	{ "ibv_resize_cq", "IBVERBS_1.0", STATUS },
};

/* Those that are there for others to bind, and do nothing. */
static const struct {
	const char *name, *version;
} without_effect[] = {
	{ "ibv_register_driver", "IBVERBS_1.1" },
	{ "ibv_copy_ah_attr_from_kern", "IBVERBS_1.1" },
	{ "ibv_copy_path_rec_from_kern", "IBVERBS_1.0" },
	{ "ibv_copy_path_rec_to_kern", "IBVERBS_1.0" },
	{ "ibv_copy_qp_attr_from_kern", "IBVERBS_1.0" },
	{ "ibv_ack_async_event", "IBVERBS_1.0" },
	{ "ibv_ack_cq_events", "IBVERBS_1.0" },
	{ "ibv_get_device_guid", "IBVERBS_1.0" },
};

static void by_name(struct ibv_pd *pd)
{
	for (size_t i = 0; i < sizeof without_objects / sizeof *without_objects; i++) {
		const char *name = without_objects[i].name, *version = without_objects[i].version;
		any *call = (any *)symbol(name, version);
		errno = 0;
		refused(name, version, without_objects[i].how, call(context, NULL, NULL, NULL, NULL, NULL));
	}
	for (size_t i = 0; i < sizeof without_effect / sizeof *without_effect; i++) {
		char memory[512], before[512];
		memset(memory, 0x33, sizeof memory);
		memcpy(before, memory, sizeof memory);
		any *call = (any *)symbol(without_effect[i].name, without_effect[i].version);
		call(memory, memory, memory, memory, memory, memory);
		CHECK(!memcmp(memory, before, sizeof memory));
		printf("%s@%s nothing\n", without_effect[i].name, without_effect[i].version);
	}
	/* A program of 2007 learns that there is no device, and goes no further. */
	int count = 7;
	struct ibv_device **list = ((struct ibv_device * *(*)(int *)) symbol("ibv_get_device_list", "IBVERBS_1.0"))(&count);
	CHECK(list && !count && !list[0]);
	((void (*)(struct ibv_device **))symbol("ibv_free_device_list", "IBVERBS_1.0"))(list);

	/* Buffers of the library are ordinary memory, no dmabufs. */
	void *buf, *memory = (void *)((any *)symbol("ibv_alloc_buf", "IBVERBS_1.17"))(pd, (void *)64, &buf, NULL, NULL, NULL);
	CHECK(memory);
	errno = 0;
	refused("ibv_export_buf_dmabuf_fd", "IBVERBS_1.18", NUMBER,
		((any *)symbol("ibv_export_buf_dmabuf_fd", "IBVERBS_1.18"))(buf, NULL, NULL, NULL, NULL, NULL));
	((any *)symbol("ibv_free_buf", "IBVERBS_1.17"))(buf, NULL, NULL, NULL, NULL, NULL);

	/* No page has to be kept from a child: they say yes to any range. */
	CHECK(!((int (*)(void *, size_t))symbol("ibv_dontfork_range", "IBVERBS_1.1"))(memory, 64));
	CHECK(!((int (*)(void *, size_t))symbol("ibv_dofork_range", "IBVERBS_1.1"))(memory, 64));
}

#define INLINE(how, name, ...)                                                 \
	do {                                                                   \
		errno = 0;                                                     \
		intptr_t result = (intptr_t)name(__VA_ARGS__);                 \
		if (how == STATUS)                                             \
			errno = (int)result;                                   \
		refused(#name, "", how, result);                               \
	} while (0)

/* What verbs.h does by itself, through operations of the context. */
static void by_operation(struct ibv_qp *qp)
{
	struct ibv_flow_attr flow_attr = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof flow_attr, .port = 1 };
	struct ibv_flow_action_esp_attr esp = { 0 };
	struct ibv_wq_init_attr wq_attr = { .wq_type = IBV_WQT_RQ, .max_wr = 1, .max_sge = 1 };
	struct ibv_rwq_ind_table_init_attr table_attr = { 0 };
	struct ibv_counters_init_attr counters_attr = { 0 };
	struct ibv_counter_attach_attr attach = { 0 };
	struct ibv_qp_rate_limit_attr rate = { .rate_limit = 1 };
	/* No such objects can be had; of these the context alone is looked at. */
	struct ibv_flow flow = { .context = context };
	struct ibv_flow_action action = { .context = context };
	struct ibv_wq wq = { .context = context };
	struct ibv_wq_attr wq_change = { 0 };
	struct ibv_rwq_ind_table table = { .context = context };
	struct ibv_counters counters = { .context = context };
	struct ibv_srq srq = { .context = context };
	struct ibv_ops_wr op = { 0 }, *bad_op;
	uint64_t value;
	INLINE(POINTER, ibv_create_flow, qp, &flow_attr);
	INLINE(STATUS, ibv_destroy_flow, &flow);
	INLINE(POINTER, ibv_create_flow_action_esp, context, &esp);
	INLINE(STATUS, ibv_modify_flow_action_esp, &action, &esp);
	INLINE(STATUS, ibv_destroy_flow_action, &action);
	INLINE(STATUS, ibv_post_srq_ops, &srq, &op, &bad_op);
	INLINE(POINTER, ibv_create_wq, context, &wq_attr);
	INLINE(STATUS, ibv_modify_wq, &wq, &wq_change);
	INLINE(STATUS, ibv_destroy_wq, &wq);
	INLINE(POINTER, ibv_create_rwq_ind_table, context, &table_attr);
	INLINE(STATUS, ibv_destroy_rwq_ind_table, &table);
	INLINE(POINTER, ibv_create_counters, context, &counters_attr);
	INLINE(STATUS, ibv_destroy_counters, &counters);
	INLINE(STATUS, ibv_attach_counters_point_flow, &counters, &attach, &flow);
	INLINE(STATUS, ibv_read_counters, &counters, &value, 1, 0);
	INLINE(STATUS, ibv_modify_qp_rate_limit, qp, &rate);
}

int main(void)
{
	context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct side side = make_side(pd, NULL);
	struct ibv_ece ece = { .vendor_id = 0x15b3 };
	errno = 0;
	refused("ibv_query_ece", "IBVERBS_1.10", STATUS, ibv_query_ece(side.qp, &ece));
	errno = 0;
	refused("ibv_set_ece", "IBVERBS_1.10", STATUS, ibv_set_ece(side.qp, &ece));
	by_name(pd);
	by_operation(side.qp);
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	CHECK(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	errno = 0;
	refused("rdma_set_local_ece", "RDMACM_1.3", NUMBER, rdma_set_local_ece(id, &ece));
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
	destroy_side(&side);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("symbols: ok");
	return 0;
}
