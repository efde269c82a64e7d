/* Datagrams: the connection manager finds the peer's queue pair, and what to send to. */
#include "cm.h"

enum { GRH = 40, SIZE = 64 };

int main(void)
{
	struct rdma_event_channel *passive = rdma_create_event_channel(), *active = rdma_create_event_channel();
	struct rdma_cm_id *listener = make_listener(passive, RDMA_PS_UDP);
	uint16_t port = ntohs(rdma_get_src_port(listener));
	struct rdma_cm_id *client = make_client(active, RDMA_PS_UDP, port);
	CHECK(client->qp_type == IBV_QPT_UD);
	make_qp(client);
	/* It has no peer to wait for. */
	CHECK(client->qp->state == IBV_QPS_RTS);

	char data[256] = "who are you?";
	struct rdma_conn_param param = { .private_data = data, .private_data_len = 181, .qp_num = client->qp->qp_num };
	CHECK(rdma_connect(client, &param) == -1 && errno == EINVAL);
	param.private_data_len = 180;
	CHECK(!rdma_connect(client, &param));
	struct rdma_cm_event *event = next_event(passive, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *server = event->id;
	CHECK(event->listen_id == listener && server->qp_type == IBV_QPT_UD && server->verbs);
	CHECK(event->param.ud.private_data_len == 180 && !memcmp(event->param.ud.private_data, data, 180));
	CHECK(!rdma_ack_cm_event(event));
	make_qp(server);
	struct rdma_conn_param answer = { .private_data = "me", .private_data_len = 3, .qp_num = server->qp->qp_num };
	CHECK(!rdma_accept(server, &answer));

	event = next_event(active, client, RDMA_CM_EVENT_ESTABLISHED);
	struct rdma_ud_param *found = &event->param.ud;
	CHECK(found->qp_num == server->qp->qp_num && found->qkey == RDMA_UDP_QKEY);
	CHECK(found->private_data_len == 136 && !memcmp(found->private_data, "me", 3));
	CHECK(found->ah_attr.is_global && found->ah_attr.port_num == 1);
	struct ibv_ah *ah = ibv_create_ah(client->pd, &found->ah_attr);
	CHECK(ah);

	static char sent[SIZE] = "a datagram", received[GRH + SIZE];
	struct ibv_mr *source = rdma_reg_msgs(client, sent, sizeof sent);
	struct ibv_mr *sink = rdma_reg_msgs(server, received, sizeof received);
	CHECK(source && sink && !rdma_post_recv(server, NULL, received, sizeof received, sink));
	CHECK(!rdma_post_ud_send(client, NULL, sent, sizeof sent, source, 0, ah, found->qp_num));
	struct ibv_wc wc;
	CHECK(rdma_get_send_comp(client, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(rdma_get_recv_comp(server, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.byte_len == sizeof received);
	CHECK(wc.src_qp == client->qp->qp_num && !memcmp(received + GRH, sent, sizeof sent));
	CHECK(!rdma_ack_cm_event(event));
	CHECK(!ibv_destroy_ah(ah) && !rdma_dereg_mr(source) && !rdma_dereg_mr(sink));
	expect_none(passive);
	drop_id(client);
	drop_id(server);

	/* The server refuses; over UD that is "unreachable", with the status of the answer. */
	client = make_client(active, RDMA_PS_UDP, port);
	make_qp(client);
	param.private_data_len = 0;
	CHECK(!rdma_connect(client, &param));
	event = next_event(passive, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
	server = event->id;
	CHECK(!rdma_ack_cm_event(event) && !rdma_reject(server, "no", 3) && !rdma_destroy_id(server));
	event = next_event(active, client, RDMA_CM_EVENT_UNREACHABLE);
	CHECK(event->status > 0 && !memcmp(event->param.ud.private_data, "no", 3) && !rdma_ack_cm_event(event));
	drop_id(client);
	CHECK(!rdma_destroy_id(listener));
	rdma_destroy_event_channel(active);
	rdma_destroy_event_channel(passive);
	puts("cm_ud: ok");
	return 0;
}
