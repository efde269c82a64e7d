/* A path record that the program brings (from a cache of its own, as ibacm's users do) stands for rdma_resolve_route. */
#include <infiniband/sa.h>
#include "cm.h"

static struct ibv_path_data as_data(const struct ibv_sa_path_rec *path)
{
	struct ibv_path_data data = { .flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL };
	data.path.dgid = path->dgid;
	data.path.sgid = path->sgid;
	data.path.pkey = path->pkey;
	data.path.flowlabel_hoplimit = htonl(ntohl(path->flow_label) << 8 | path->hop_limit);
	data.path.tclass = path->traffic_class;
	data.path.reversible_numpath = IBV_PATH_RECORD_REVERSIBLE | 1;
	data.path.mtu = 2 << 6 | IBV_MTU_512;
	data.path.rate = 2 << 6 | path->rate;
	data.path.packetlifetime = 2 << 6 | path->packet_life_time;
	return data;
}

static int set_path(struct rdma_cm_id *id, struct ibv_path_data *data, size_t length)
{
	return rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, data, length);
}

int main(void)
{
	struct rdma_event_channel *passive = rdma_create_event_channel(), *active = rdma_create_event_channel();
	struct rdma_cm_id *listener = make_listener(passive, RDMA_PS_TCP);
	uint16_t port = ntohs(rdma_get_src_port(listener));
	struct rdma_cm_id *known = make_client(active, RDMA_PS_TCP, port);
	struct ibv_path_data data = as_data(known->route.path_rec);
	CHECK(!rdma_destroy_id(known));

	struct rdma_cm_id *client = make_id(active, RDMA_PS_TCP);
	CHECK(set_path(client, &data, sizeof data) == -1 && errno == EINVAL);
	CHECK(!resolve_to(client, port));
	expect(active, client, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(set_path(client, &data, sizeof data - 1) == -1 && errno == EINVAL);
	CHECK(set_path(client, NULL, sizeof data) == -1 && errno == EFAULT);
	struct ibv_path_data one_way = data;
	one_way.flags = IBV_PATH_FLAG_OUTBOUND;
	CHECK(set_path(client, &one_way, sizeof one_way) == -1 && errno == EINVAL);
	/* Of several the first that is whole. */
	struct ibv_path_data several[2] = { one_way, data };
	CHECK(!set_path(client, several, sizeof several));
	expect(active, client, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(client->route.num_paths == 1 && client->route.path_rec->mtu == IBV_MTU_512);

	make_qp(client);
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	CHECK(!rdma_connect(client, &param));
	struct rdma_cm_event *event = next_event(passive, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *server = event->id;
	make_qp(server);
	CHECK(!rdma_ack_cm_event(event) && !rdma_accept(server, &param));
	expect(active, client, RDMA_CM_EVENT_ESTABLISHED);
	expect(passive, server, RDMA_CM_EVENT_ESTABLISHED);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(!ibv_query_qp(client->qp, &attr, 0, &init) && attr.path_mtu == IBV_MTU_512);
	CHECK(!ibv_query_qp(server->qp, &attr, 0, &init) && attr.path_mtu == IBV_MTU_512);
	send_message(client, server);
	struct connection all = { passive, active, listener, server, client };
	drop_connection(&all);
	puts("cm_path: ok");
	return 0;
}
