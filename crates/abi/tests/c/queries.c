/* Questions about device, port, GIDs, P_Keys and queue pairs, in the sizes of older and newer headers. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <net/if.h>
#include "check.h"

/* Exported, but in no header of programs. */
const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

static struct ibv_context *context;

/* Calls the operation behind ibv_query_port with a structure of `size` bytes and looks at the byte behind it. */
static struct ibv_port_attr port_of_size(size_t size)
{
	struct verbs_context *verbs = verbs_get_ctx_op(context, query_port);
	CHECK(verbs);
	unsigned char room[200];
	memset(room, 0xaa, sizeof(room));
	CHECK(!verbs->query_port(context, 1, (struct ibv_port_attr *)room, size));
	for (size_t i = size; i < sizeof(room); i++)
		CHECK(room[i] == 0xaa);
	for (size_t i = 56; i < size; i++)
		CHECK(room[i] == 0); /* a future field that this library does not know */
	struct ibv_port_attr attr = { 0 };
	memcpy(&attr, room, size < sizeof(attr) ? size : sizeof(attr));
	return attr;
}

static void port(void)
{
	struct ibv_port_attr attr = port_of_size(sizeof(attr));
	CHECK(attr.state == IBV_PORT_ACTIVE && attr.link_layer == IBV_LINK_LAYER_ETHERNET);
	CHECK(attr.flags & IBV_QPF_GRH_REQUIRED && attr.gid_tbl_len >= 1);
	const size_t sizes[] = { 48, 52, 56, 64, 150 };
	for (int i = 0; i < 5; i++) {
		struct ibv_port_attr other = port_of_size(sizes[i]);
		CHECK(!memcmp(&other, &attr, 48));
	}
	/* The symbol of old programs writes no more than their structure has. */
	int (*old)(struct ibv_context *, uint8_t, void *) = dlvsym(RTLD_DEFAULT, "ibv_query_port", "IBVERBS_1.1");
	CHECK(old);
	unsigned char room[64];
	memset(room, 0xaa, sizeof(room));
	CHECK(!old(context, 1, room) && !memcmp(room, &attr, 48) && room[48] == 0xaa);
	CHECK(ibv_query_port(context, 0, &attr) == EINVAL && ibv_query_port(context, 2, &attr) == EINVAL);

	/* Since rdma-core 62: in units of 100 Mbit/s. */
	int (*port_speed)(struct ibv_context *, uint32_t, uint64_t *) =
		dlvsym(RTLD_DEFAULT, "ibv_query_port_speed", "IBVERBS_1.16");
	uint64_t speed;
	CHECK(port_speed && !port_speed(context, 1, &speed) && speed == 1000);
	CHECK(port_speed(context, 257, &speed) == EINVAL);
}

static void device(void)
{
	struct verbs_context *verbs = verbs_get_ctx_op(context, query_device_ex);
	CHECK(verbs);
	struct ibv_device_attr plain;
	struct ibv_device_attr_ex whole;
	CHECK(!ibv_query_device(context, &plain) && !ibv_query_device_ex(context, NULL, &whole));
	CHECK(!memcmp(&plain, &whole.orig_attr, sizeof(plain)) && whole.phys_port_cnt_ex == 1);
	CHECK(plain.phys_port_cnt == 1 && plain.atomic_cap == IBV_ATOMIC_HCA && plain.node_guid == ibv_get_device_guid(context->device));
	for (size_t size = sizeof(plain); size < sizeof(whole) + 40; size += 8) {
		unsigned char room[600];
		memset(room, 0xaa, sizeof(room));
		CHECK(!verbs->query_device_ex(context, NULL, (struct ibv_device_attr_ex *)room, size));
		CHECK(!memcmp(room, &whole, size < sizeof(whole) ? size : sizeof(whole)));
		for (size_t i = sizeof(whole); i < size; i++)
			CHECK(!room[i]);
		for (size_t i = size; i < sizeof(room); i++)
			CHECK(room[i] == 0xaa);
	}
	CHECK(verbs->query_device_ex(context, NULL, &whole, sizeof(plain) - 1) == EINVAL);
	struct ibv_query_device_ex_input unknown = { .comp_mask = 1 };
	CHECK(ibv_query_device_ex(context, &unknown, &whole) == EINVAL);
}

static void gids(void)
{
	struct ibv_gid_entry table[64];
	ssize_t count = ibv_query_gid_table(context, table, 64, 0);
	CHECK(count >= 1 && count <= 64);
	CHECK(ibv_query_gid_table(context, table, count, 0) == count);
	CHECK(ibv_query_gid_table(context, table, count - 1, 0) == -EINVAL); /* no room for all */
	CHECK(ibv_query_gid_table(context, table, 64, 1) == -EINVAL);
	struct ibv_port_attr attr;
	CHECK(!ibv_query_port(context, 1, &attr));
	for (int i = 0; i < attr.gid_tbl_len; i++) {
		struct ibv_gid_entry entry;
		union ibv_gid gid;
		CHECK(!ibv_query_gid(context, 1, i, &gid));
		int error = ibv_query_gid_ex(context, 1, i, &entry, 0);
		if (error) { /* an empty row */
			static const union ibv_gid zero;
			CHECK(error == ENODATA && !memcmp(&gid, &zero, sizeof(gid)));
			continue;
		}
		CHECK(entry.gid_index == (uint32_t)i && entry.port_num == 1 && entry.gid_type == IBV_GID_TYPE_ROCE_V2);
		char name[IF_NAMESIZE];
		CHECK(if_indextoname(entry.ndev_ifindex, name) && !memcmp(&entry.gid, &gid, sizeof(gid)));
	}
	struct ibv_gid_entry entry;
	union ibv_gid gid;
	CHECK(ibv_query_gid_ex(context, 1, attr.gid_tbl_len, &entry, 0) == EINVAL);
	CHECK(ibv_query_gid_ex(context, 2, 0, &entry, 0) == EINVAL && ibv_query_gid_ex(context, 1, 0, &entry, 1) == EINVAL);
	CHECK(ibv_query_gid(context, 1, attr.gid_tbl_len, &gid) == -1 && errno == EINVAL);
	CHECK(ibv_query_gid(context, 1, -1, &gid) == -1);
}

static void pkeys(void)
{
	/* RNIC_PKEYS=0xffff,0x8001,0x7ffe of the second run. */
	static const uint16_t table[] = { 0xffff, 0x8001, 0x7ffe };
	int rows = getenv("RNIC_PKEYS") ? 3 : 1;
	struct ibv_port_attr port;
	struct ibv_device_attr device;
	CHECK(!ibv_query_port(context, 1, &port) && port.pkey_tbl_len == rows && port.bad_pkey_cntr == 0);
	CHECK(!ibv_query_device(context, &device) && device.max_pkeys == rows);
	uint16_t pkey;
	for (int i = 0; i < 3; i++) {
		char name[64], text[64], line[64];
		snprintf(name, sizeof(name), "ports/1/pkeys/%d", i);
		snprintf(line, sizeof(line), "%#06x", table[i]);
		int there = i < rows;
		CHECK(ibv_query_pkey(context, 1, i, &pkey) == (there ? 0 : -1) && (!there || ntohs(pkey) == table[i]));
		CHECK(ibv_get_pkey_index(context, 1, htons(table[i])) == (there ? i : -1));
		int length = ibv_read_sysfs_file(context->device->ibdev_path, name, text, sizeof(text));
		CHECK(there ? length > 0 && !strcmp(text, line) : length == -1);
	}
	CHECK(ibv_query_pkey(context, 1, rows, &pkey) == -1 && ibv_query_pkey(context, 1, -1, &pkey) == -1);
	CHECK(ibv_query_pkey(context, 2, 0, &pkey) == -1 && ibv_get_pkey_index(context, 2, htons(0xffff)) == -1);
	/* The membership counts. */
	CHECK(ibv_get_pkey_index(context, 1, htons(0x1234)) == -1 && ibv_get_pkey_index(context, 1, htons(0x7fff)) == -1);
}

static void pkey_of_a_queue_pair(void)
{
	int rows = getenv("RNIC_PKEYS") ? 3 : 1;
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd);
	struct side side = make_side(pd, NULL);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	CHECK(!ibv_modify_qp(side.qp, &attr, IBV_QP_STATE));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .pkey_index = rows, .port_num = 1 };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	CHECK(ibv_modify_qp(side.qp, &attr, mask) == EINVAL);
	attr.pkey_index = rows - 1;
	CHECK(!ibv_modify_qp(side.qp, &attr, mask));
	struct ibv_qp_init_attr init;
	CHECK(!ibv_query_qp(side.qp, &attr, IBV_QP_PKEY_INDEX, &init) && attr.pkey_index == rows - 1);
	destroy_side(&side);
	CHECK(!ibv_dealloc_pd(pd));
}

static void queue_pair(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd);
	struct side side = make_side(pd, NULL);
	/* As a device without options of its vendor: who asks is told so, and need not pass zeros on. */
	struct ibv_ece ece = { .vendor_id = 9, .options = 9 };
	errno = 0;
	CHECK(ibv_query_ece(side.qp, &ece) == EOPNOTSUPP && errno == EOPNOTSUPP && ece.vendor_id == 9);
	CHECK(ibv_set_ece(side.qp, &ece) == EOPNOTSUPP);
	ece.vendor_id = 0;
	CHECK(ibv_set_ece(side.qp, &ece) == EOPNOTSUPP);
	/* The copy of a packet promises no order within it, whatever the operation. */
	for (int op = 0; op < 12; op++)
		CHECK(ibv_query_qp_data_in_order(side.qp, op, 0) == 0 && ibv_query_qp_data_in_order(side.qp, op, 1) == 0);
	destroy_side(&side);
	CHECK(!ibv_dealloc_pd(pd));
}

int main(void)
{
	CHECK(!ibv_fork_init() && ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
	context = open_device();
	CHECK(context->num_comp_vectors >= 1 && ibv_get_device_index(context->device) == 0);
	port();
	device();
	gids();
	pkeys();
	pkey_of_a_queue_pair();
	queue_pair();
	char text[64];
	CHECK(!strcmp(ibv_get_sysfs_path(), "/sys"));
	CHECK(ibv_read_sysfs_file(context->device->ibdev_path, "node_type", text, sizeof(text)) > 0 && !strcmp(text, "1: CA"));
	CHECK(ibv_read_sysfs_file(context->device->ibdev_path, "nothing", text, sizeof(text)) == -1);
	CHECK(!ibv_close_device(context));
	puts("queries: ok");
	return 0;
}
