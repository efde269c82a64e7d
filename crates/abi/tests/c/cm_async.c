/* A connection by events, from the address to the end of time-wait, on channels that are polled; and what the ids say of
 * themselves meanwhile. */
#include <unistd.h>
#include "cm.h"

static void wait_readable(struct rdma_event_channel *channel)
{
	struct pollfd waits = { .fd = channel->fd, .events = POLLIN };
	CHECK(poll(&waits, 1, TIMEOUT_MS) == 1 && (waits.revents & POLLIN));
}

/* Packets that the port has sent. */
static uint64_t sent(struct ibv_context *context)
{
	char path[5000], text[32] = "";
	snprintf(path, sizeof path, "%s/ports/1/counters/port_xmit_packets", context->device->ibdev_path);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && !close(fd));
	return strtoull(text, NULL, 10);
}

static void is_mapped_loopback(const union ibv_gid *gid)
{
	static const uint8_t mapped[16] = { [10] = 0xff, 0xff, 127, 0, 0, 1 };
	CHECK(!memcmp(gid->raw, mapped, 16));
}

/* Addresses, ports and path of both ends agree. */
static void look_at(struct rdma_cm_id *client, struct rdma_cm_id *server, struct rdma_cm_id *listener)
{
	struct rdma_cm_id *ids[] = { client, server };
	for (int i = 0; i < 2; i++) {
		CHECK(ids[i]->verbs && ids[i]->verbs == listener->verbs && ids[i]->pd == listener->pd);
		CHECK(ids[i]->port_num == 1 && ids[i]->route.num_paths == 1);
		is_mapped_loopback(&ids[i]->route.addr.addr.ibaddr.sgid);
		is_mapped_loopback(&ids[i]->route.addr.addr.ibaddr.dgid);
		CHECK(ids[i]->route.addr.addr.ibaddr.pkey == 0xffff);
		const struct ibv_sa_path_rec *path = ids[i]->route.path_rec;
		CHECK(path->pkey == 0xffff && path->numb_path == 1 && path->reversible && path->mtu >= IBV_MTU_1024);
		is_mapped_loopback(&path->dgid);
	}
	struct sockaddr_in *bound = &client->route.addr.src_sin;
	CHECK(bound->sin_family == AF_INET && bound->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
	CHECK(rdma_get_src_port(client) && rdma_get_src_port(client) == rdma_get_dst_port(server));
	CHECK(rdma_get_dst_port(client) == rdma_get_src_port(listener));
	CHECK(rdma_get_src_port(server) == rdma_get_src_port(listener));
}

int main(void)
{
	struct rdma_event_channel *passive = rdma_create_event_channel(), *active = rdma_create_event_channel();
	CHECK(passive && active && passive->fd != active->fd);
	struct rdma_cm_event *event = NULL;
	CHECK(!fcntl(active->fd, F_SETFL, O_NONBLOCK));
	errno = 0;
	CHECK(rdma_get_cm_event(active, &event) == -1 && errno == EAGAIN && !event);

	struct rdma_cm_id *listener = make_listener(passive, RDMA_PS_TCP);
	CHECK(rdma_get_src_port(listener) && listener->verbs && listener->pd && listener->port_num == 1);
	struct rdma_cm_id *client = make_id(active, RDMA_PS_TCP);
	CHECK(!resolve_to(client, ntohs(rdma_get_src_port(listener))));
	CHECK(rdma_get_dst_port(client) == rdma_get_src_port(listener));
	wait_readable(active);
	expect(active, client, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(client->verbs && client->pd && !client->route.num_paths);
	CHECK(!rdma_resolve_route(client, TIMEOUT_MS));
	wait_readable(active);
	expect(active, client, RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_qp(client);
	CHECK(client->qp->state == IBV_QPS_INIT);

	struct rdma_conn_param param = { .private_data = "hello", .private_data_len = 5, .responder_resources = 3,
		.initiator_depth = 5, .flow_control = 1, .retry_count = 6, .rnr_retry_count = 4 };
	uint64_t before = sent(client->verbs);
	CHECK(!rdma_connect(client, &param));
	wait_readable(passive);
	event = next_event(passive, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *server = event->id;
	CHECK(event->listen_id == listener && server != listener && server->channel == passive && !event->status);
	CHECK(server->context == listener->context && server->ps == RDMA_PS_TCP && server->qp_type == IBV_QPT_RC);
	/* The field of the message is longer than what was put in, and its rest is zero. */
	const struct rdma_conn_param *said = &event->param.conn;
	static const char request[56] = "hello";
	CHECK(said->private_data_len == 56 && !memcmp(said->private_data, request, 56));
	CHECK(said->responder_resources == 5 && said->initiator_depth == 3 && said->retry_count == 6);
	CHECK(said->rnr_retry_count == 4 && said->qp_num == client->qp->qp_num && !said->srq);
	make_qp(server);
	look_at(client, server, listener);
	CHECK(!rdma_ack_cm_event(event));

	struct rdma_conn_param answer = { .private_data = "welcome", .private_data_len = 7,
		.responder_resources = RDMA_MAX_RESP_RES, .initiator_depth = RDMA_MAX_INIT_DEPTH, .rnr_retry_count = 7 };
	CHECK(!rdma_accept(server, &answer));
	CHECK(server->qp->state == IBV_QPS_RTS);
	wait_readable(active);
	event = next_event(active, client, RDMA_CM_EVENT_ESTABLISHED);
	static const char response[196] = "welcome";
	said = &event->param.conn;
	CHECK(said->private_data_len == 196 && !memcmp(said->private_data, response, 196));
	CHECK(said->qp_num == server->qp->qp_num && said->responder_resources == 3 && said->initiator_depth == 5);
	CHECK(!rdma_ack_cm_event(event) && client->qp->state == IBV_QPS_RTS);
	wait_readable(passive);
	expect(passive, server, RDMA_CM_EVENT_ESTABLISHED);
	/* A request, a reply, "ready to use": one packet each, and room for repetitions on a slow machine. */
	before = sent(client->verbs) - before;
	CHECK(before >= 3 && before < 6);

	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(!ibv_query_qp(client->qp, &attr, 0, &init));
	CHECK(attr.max_rd_atomic == 5 && attr.max_dest_rd_atomic == 3 && attr.retry_cnt == 6);
	CHECK(!ibv_query_qp(server->qp, &attr, 0, &init));
	CHECK(attr.max_rd_atomic == 3 && attr.max_dest_rd_atomic == 5 && attr.rnr_retry == 4);

	send_message(client, server);
	send_message(server, client);
	expect_none(passive);

	CHECK(!rdma_disconnect(client) && client->qp->state == IBV_QPS_ERR);
	wait_readable(passive);
	expect(passive, server, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_disconnect(server));
	wait_readable(active);
	expect(active, client, RDMA_CM_EVENT_DISCONNECTED);

	/* The end of what was no connection any more. */
	CHECK(rdma_connect(client, &param) == -1 && errno == EINVAL);
	struct connection all = { passive, active, listener, server, client };
	drop_connection(&all);
	puts("cm_async: ok");
	return 0;
}
