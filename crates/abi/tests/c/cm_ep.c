/* Endpoints: ids that know their addresses, and have a queue pair, from the start. The server's says no at first, by the reason
 * for options of a vendor that it cannot do with. */
#include "cm.h"

static struct rdma_cm_id *endpoint(const char *port, int flags)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP }, *found;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct rdma_cm_id *id;
	CHECK(!rdma_getaddrinfo("127.0.0.1", port, &hints, &found));
	CHECK(!rdma_create_ep(&id, found, NULL, &init) && id && !id->qp == !!(flags & RAI_PASSIVE));
	rdma_freeaddrinfo(found);
	return id;
}

static void *connects(void *id)
{
	return rdma_connect(id, NULL) ? (void *)(intptr_t)errno : NULL;
}

static void *disconnects(void *id)
{
	return rdma_disconnect(id) ? (void *)(intptr_t)errno : NULL;
}

/* While a client of another thread waits for the answer. */
static struct rdma_cm_id *request(struct rdma_cm_id *listener, struct rdma_cm_id *client, pthread_t *thread)
{
	struct rdma_cm_id *id;
	CHECK(!pthread_create(thread, NULL, connects, client));
	CHECK(!rdma_get_request(listener, &id) && id->qp);
	return id;
}

int main(void)
{
	struct rdma_cm_id *listener = endpoint("0", RAI_PASSIVE);
	CHECK(!rdma_listen(listener, 2));
	char port[8];
	snprintf(port, sizeof port, "%d", ntohs(rdma_get_src_port(listener)));
	pthread_t thread;
	void *failed;

	struct rdma_cm_id *client = endpoint(port, 0), *server = request(listener, client, &thread);
	CHECK(!rdma_reject_ece(server, NULL, 0));
	CHECK(!pthread_join(thread, &failed) && (intptr_t)failed == ECONNREFUSED);
	CHECK(client->event->event == RDMA_CM_EVENT_REJECTED && client->event->status == 35);
	rdma_destroy_ep(server);
	rdma_destroy_ep(client);

	client = endpoint(port, 0);
	server = request(listener, client, &thread);
	CHECK(!rdma_accept(server, NULL));
	CHECK(!pthread_join(thread, &failed) && !failed);
	char hello[6] = "hello", heard[6];
	struct ibv_mr *out = rdma_reg_msgs(client, hello, sizeof hello), *in = rdma_reg_msgs(server, heard, sizeof heard);
	struct ibv_wc wc;
	CHECK(out && in && !rdma_post_recv(server, NULL, heard, sizeof heard, in));
	CHECK(!rdma_post_send(client, NULL, hello, sizeof hello, out, 0));
	CHECK(rdma_get_recv_comp(server, &wc) == 1 && !wc.status && !strcmp(heard, "hello"));
	CHECK(rdma_get_send_comp(client, &wc) == 1 && !wc.status);
	/* Each waits for the other. */
	CHECK(!pthread_create(&thread, NULL, disconnects, server));
	CHECK(!rdma_disconnect(client) && client->event->event == RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!pthread_join(thread, &failed) && !failed);
	CHECK(!rdma_dereg_mr(out) && !rdma_dereg_mr(in));
	rdma_destroy_ep(server);
	rdma_destroy_ep(client);
	rdma_destroy_ep(listener);

	/* The same queue pair by the extended structure. */
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	CHECK(!resolve_to(id, 9));
	expect(channel, id, RDMA_CM_EVENT_ADDR_RESOLVED);
	struct ibv_qp_init_attr_ex extended = { .qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = id->pd,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	CHECK(!rdma_create_qp_ex(id, &extended) && id->qp && id->qp->state == IBV_QPS_INIT);
	rdma_destroy_qp(id);
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
	puts("cm_ep: ok");
	return 0;
}
