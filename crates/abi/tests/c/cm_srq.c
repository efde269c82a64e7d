/* Shared receive queues of ids, given and their own; the peer is told. */
#include "cm.h"

int main(void)
{
	struct rdma_event_channel *passive = rdma_create_event_channel(), *active = rdma_create_event_channel();
	struct rdma_cm_id *listener = make_listener(passive, RDMA_PS_TCP);
	struct rdma_cm_id *client = make_client(active, RDMA_PS_TCP, ntohs(rdma_get_src_port(listener)));

	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 4, .max_sge = 1 } };
	CHECK(!rdma_create_srq(client, NULL, &attr) && client->srq && client->srq->pd == client->pd);
	CHECK(attr.attr.max_wr >= 4);
	make_qp(client);
	CHECK(client->qp->srq == client->srq);
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	CHECK(!rdma_connect(client, &param));
	struct rdma_cm_event *event = next_event(passive, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(event->param.conn.srq == 1);
	struct rdma_cm_id *server = event->id;
	CHECK(!rdma_ack_cm_event(event));

	struct ibv_srq_init_attr_ex extended = { .attr = { .max_wr = 4, .max_sge = 1 } };
	CHECK(rdma_create_srq_ex(server, &extended) == -1 && errno == EINVAL);
	extended.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
	extended.srq_type = IBV_SRQT_BASIC;
	CHECK(!rdma_create_srq_ex(server, &extended) && server->srq && extended.pd == server->pd);
	make_qp(server);
	CHECK(!rdma_accept(server, &param));
	event = next_event(active, client, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(event->param.conn.srq == 1 && !rdma_ack_cm_event(event));
	expect(passive, server, RDMA_CM_EVENT_ESTABLISHED);

	/* rdma_post_recv posts to the shared queue. */
	send_message(client, server);
	send_message(server, client);

	struct rdma_cm_id *ids[] = { client, server };
	for (int i = 0; i < 2; i++) {
		rdma_destroy_qp(ids[i]);
		rdma_destroy_srq(ids[i]);
		CHECK(!ids[i]->srq);
	}
	struct connection all = { passive, active, listener, server, client };
	drop_connection(&all);
	puts("cm_srq: ok");
	return 0;
}
