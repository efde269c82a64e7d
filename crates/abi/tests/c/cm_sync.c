/* Client and server whose calls wait (no event channel), and move data by the functions of rdma_verbs.h. */
#include <pthread.h>
#include "cm.h"

static struct rdma_cm_id *sync_id(void)
{
	struct rdma_cm_id *id = NULL;
	CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	CHECK(id->channel && id->channel->fd >= 0 && !id->event);
	return id;
}

static struct rdma_cm_id *resolved(uint16_t port)
{
	struct rdma_cm_id *id = sync_id();
	CHECK(!resolve_to(id, port));
	CHECK(id->event && id->event->event == RDMA_CM_EVENT_ADDR_RESOLVED && id->verbs);
	CHECK(!rdma_resolve_route(id, TIMEOUT_MS) && id->event->event == RDMA_CM_EVENT_ROUTE_RESOLVED);
	return id;
}

static char remote[4096];

/* Serves one client, and refuses the next. */
static void *serve(void *context)
{
	struct rdma_cm_id *listener = context, *id;
	CHECK(!rdma_get_request(listener, &id));
	CHECK(id->event && id->event->event == RDMA_CM_EVENT_CONNECT_REQUEST && id->event->listen_id == listener);
	CHECK(id->channel != listener->channel);
	make_qp(id);
	struct ibv_mr *mr = rdma_reg_write(id, remote, sizeof remote);
	CHECK(mr);
	uint64_t where[2] = { (uintptr_t)remote, mr->rkey };
	struct rdma_conn_param param = { .private_data = where, .private_data_len = sizeof where,
		.responder_resources = 1, .initiator_depth = 1, .rnr_retry_count = 7 };
	char message[16];
	struct ibv_mr *messages = rdma_reg_msgs(id, message, sizeof message);
	CHECK(messages && !rdma_post_recv(id, NULL, message, sizeof message, messages));
	CHECK(!rdma_accept(id, &param) && id->event->event == RDMA_CM_EVENT_ESTABLISHED);
	struct ibv_wc wc;
	CHECK(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS && !memcmp(message, "done", 5));
	CHECK(!memcmp(remote, "written", 8));
	CHECK(!rdma_disconnect(id) && id->event->event == RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_dereg_mr(mr) && !rdma_dereg_mr(messages));
	drop_id(id);

	CHECK(!rdma_get_request(listener, &id));
	CHECK(!rdma_reject(id, "no", 3));
	CHECK(!rdma_destroy_id(id));
	return NULL;
}

int main(void)
{
	struct rdma_cm_id *listener = sync_id(), *id;
	CHECK(!bind_to(listener, 0) && !rdma_listen(listener, 1));
	uint16_t port = ntohs(rdma_get_src_port(listener));
	pthread_t server;
	CHECK(!pthread_create(&server, NULL, serve, listener));

	struct rdma_cm_id *client = resolved(port);
	make_qp(client);
	CHECK(!rdma_connect(client, NULL) && client->event->event == RDMA_CM_EVENT_ESTABLISHED);
	uint64_t where[2];
	memcpy(where, client->event->param.conn.private_data, sizeof where);
	char message[16] = "written";
	struct ibv_mr *mr = rdma_reg_msgs(client, message, sizeof message);
	struct ibv_wc wc;
	CHECK(mr && !rdma_post_write(client, NULL, message, 8, mr, 0, where[0], where[1]));
	CHECK(rdma_get_send_comp(client, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_WRITE);
	strcpy(message, "done");
	CHECK(!rdma_post_send(client, NULL, message, 5, mr, 0));
	CHECK(rdma_get_send_comp(client, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(!rdma_disconnect(client) && client->event->event == RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_dereg_mr(mr));
	drop_id(client);

	client = resolved(port);
	make_qp(client);
	CHECK(rdma_connect(client, NULL) == -1 && errno == ECONNREFUSED);
	CHECK(client->event->event == RDMA_CM_EVENT_REJECTED && client->event->status == 28);
	CHECK(!memcmp(client->event->param.conn.private_data, "no", 3));
	drop_id(client);
	CHECK(!pthread_join(server, NULL));

	/* What synchronous ids are for is not for others, and a channel of its own cannot be had twice. */
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *other = make_listener(channel, RDMA_PS_TCP);
	CHECK(rdma_get_request(other, &id) == -1 && errno == EINVAL);
	CHECK(rdma_migrate_id(listener, NULL) == -1 && errno == EINVAL);
	CHECK(!rdma_destroy_id(other) && !rdma_destroy_id(listener));
	rdma_destroy_event_channel(channel);
	puts("cm_sync: ok");
	return 0;
}
