/* Calls for connections that are refused, each for a reason of its own; then those whose failure is no mistake. */
#include <sys/socket.h>
#include "cm.h"

#define REFUSED(call) CHECK((call) == -1)

int main(void)
{
	static const char data[255];
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = NULL, *other;
	REFUSED(rdma_create_id(channel, &id, NULL, 1));
	id = make_id(channel, RDMA_PS_TCP);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 1, .max_recv_wr = 1 } };
	struct sockaddr_in addr = loopback(1);
	struct sockaddr local = { .sa_family = AF_UNIX };
	REFUSED(rdma_create_qp(id, NULL, &init));
	REFUSED(rdma_disconnect(id));
	REFUSED(rdma_accept(id, NULL));
	REFUSED(rdma_get_request(id, &other));
	REFUSED(rdma_bind_addr(id, &local));
	REFUSED(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, (void *)data, 3));
	REFUSED(rdma_leave_multicast(id, (struct sockaddr *)&addr));
	REFUSED(rdma_notify(id, 3));
	CHECK(!rdma_destroy_id(id));

	struct rdma_cm_id *listener = make_listener(channel, RDMA_PS_TCP);
	uint16_t port = ntohs(rdma_get_src_port(listener));
	id = make_client(channel, RDMA_PS_TCP, port);
	make_qp(id);
	REFUSED(rdma_create_qp(id, NULL, &init));
	REFUSED(rdma_establish(id));
	struct rdma_conn_param param = { .private_data = data, .private_data_len = 57 };
	REFUSED(rdma_connect(id, &param));
	param = (struct rdma_conn_param){ .initiator_depth = 250 };
	REFUSED(rdma_connect(id, &param));

	/* An option that other systems may have. */
	REFUSED(rdma_set_option(id, 0, 4711, (void *)data, 4));
	drop_id(id);
	CHECK(!rdma_destroy_id(listener));
	/* Nobody listens there any more. */
	CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	CHECK(!resolve_to(id, port) && !rdma_resolve_route(id, TIMEOUT_MS));
	make_qp(id);
	param = (struct rdma_conn_param){ .retry_count = 7 };
	CHECK(rdma_connect(id, &param) == -1 && errno == ECONNREFUSED);
	drop_id(id);
	/* What follows from something that failed before. */
	REFUSED(rdma_destroy_id(NULL));
	rdma_destroy_event_channel(channel);
	puts("cm_words: ok");
	return 0;
}
