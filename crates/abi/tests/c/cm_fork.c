/* A forked child has nothing to do with its parent's ids, and may have its own. */
#include <sys/wait.h>
#include <unistd.h>
#include "cm.h"

static void exchange_and_end(void)
{
	struct connection c = make_connection();
	send_message(c.client, c.server);
	CHECK(!rdma_disconnect(c.client));
	expect(c.passive, c.server, RDMA_CM_EVENT_DISCONNECTED);
	drop_connection(&c);
}

static int in_child(struct connection *parents, struct rdma_cm_event *taken)
{
	struct rdma_cm_event *event;
	CHECK(!rdma_ack_cm_event(taken));
	errno = 0;
	CHECK(rdma_get_cm_event(parents->passive, &event) == -1 && errno);
	CHECK(rdma_disconnect(parents->client) == -1 && errno);
	CHECK(rdma_listen(parents->listener, 1) == -1 && errno);
	/* Leaves them alone. */
	CHECK(!rdma_destroy_id(parents->client) && !rdma_destroy_id(parents->listener));
	rdma_destroy_event_channel(parents->active);
	exchange_and_end();
	return 0;
}

int main(void)
{
	struct connection c = make_connection();
	/* An event in the hands of both. */
	struct rdma_cm_id *asks = make_client(c.active, RDMA_PS_TCP, ntohs(rdma_get_src_port(c.listener)));
	make_qp(asks);
	CHECK(!rdma_connect(asks, &(struct rdma_conn_param){ .retry_count = 7 }));
	struct rdma_cm_event *request = next_event(c.passive, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *refused = request->id;
	for (int i = 0; i < 3; i++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0)
			exit(in_child(&c, request));
		send_message(c.client, c.server);
		int status;
		CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
		send_message(c.server, c.client);
	}
	CHECK(!rdma_ack_cm_event(request) && !rdma_destroy_id(refused));
	struct rdma_cm_event *refusal = next_event(c.active, asks, RDMA_CM_EVENT_REJECTED);
	CHECK(!rdma_ack_cm_event(refusal));
	drop_id(asks);
	CHECK(!rdma_disconnect(c.server));
	expect(c.active, c.client, RDMA_CM_EVENT_DISCONNECTED);
	drop_connection(&c);
	puts("cm_fork: ok");
	return 0;
}
