/* Refusals: by the server, with a reason in private data; by nobody, as nobody listens; by a listener that goes away. */
#include "cm.h"

int main(void)
{
	struct rdma_event_channel *passive = rdma_create_event_channel(), *active = rdma_create_event_channel();
	struct rdma_cm_id *listener = make_listener(passive, RDMA_PS_TCP);
	uint16_t port = ntohs(rdma_get_src_port(listener));
	struct rdma_conn_param param = { .retry_count = 7 };

	struct rdma_cm_id *client = make_client(active, RDMA_PS_TCP, port);
	make_qp(client);
	CHECK(!rdma_connect(client, &param));
	struct rdma_cm_event *event = next_event(passive, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *server = event->id;
	CHECK(!rdma_ack_cm_event(event));
	char longest[148];
	memset(longest, 'x', sizeof longest);
	CHECK(rdma_reject(server, longest, sizeof longest + 1) == -1 && errno == EINVAL);
	CHECK(!rdma_reject(server, longest, sizeof longest));
	CHECK(!rdma_destroy_id(server));
	event = next_event(active, client, RDMA_CM_EVENT_REJECTED);
	CHECK(event->status == 28 && event->param.conn.private_data_len == 148);
	CHECK(!memcmp(event->param.conn.private_data, longest, 148));
	CHECK(client->qp->state == IBV_QPS_ERR);
	CHECK(!rdma_ack_cm_event(event));
	drop_id(client);

	/* Two that wait in the listener's queue when it ends: one whose event was taken, one whose was not. */
	struct rdma_cm_id *taken = make_client(active, RDMA_PS_TCP, port);
	make_qp(taken);
	CHECK(!rdma_connect(taken, &param));
	event = next_event(passive, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
	server = event->id;
	CHECK(!rdma_ack_cm_event(event));
	struct rdma_cm_id *waiting = make_client(active, RDMA_PS_TCP, port);
	make_qp(waiting);
	CHECK(!rdma_connect(waiting, &param));
	struct pollfd waits = { .fd = passive->fd, .events = POLLIN };
	CHECK(poll(&waits, 1, TIMEOUT_MS) == 1);
	CHECK(!rdma_destroy_id(listener));
	event = next_event(active, waiting, RDMA_CM_EVENT_REJECTED);
	CHECK(event->status == 28 && !rdma_ack_cm_event(event));
	CHECK(!rdma_destroy_id(server));
	event = next_event(active, taken, RDMA_CM_EVENT_REJECTED);
	CHECK(event->status == 28 && !rdma_ack_cm_event(event));
	drop_id(waiting);
	drop_id(taken);

	/* The port has no listener: invalid service id. */
	client = make_client(active, RDMA_PS_TCP, port);
	make_qp(client);
	CHECK(!rdma_connect(client, &param));
	event = next_event(active, client, RDMA_CM_EVENT_REJECTED);
	CHECK(event->status == 8 && !rdma_ack_cm_event(event));
	drop_id(client);
	rdma_destroy_event_channel(active);
	rdma_destroy_event_channel(passive);
	puts("cm_reject: ok");
	return 0;
}
