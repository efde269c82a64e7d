/* What the connection manager's programs share: events that have to come, and a client and a server in one process. */
#ifndef CM_H
#define CM_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include "check.h"

enum { TIMEOUT_MS = 60000 };

/* 127.0.0.1, which is an address of the device like any other. */
static inline struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

static inline int bind_to(struct rdma_cm_id *id, uint16_t port)
{
	struct sockaddr_in addr = loopback(port);
	return rdma_bind_addr(id, (struct sockaddr *)&addr);
}

static inline int resolve_to(struct rdma_cm_id *id, uint16_t port)
{
	struct sockaddr_in addr = loopback(port);
	return rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, TIMEOUT_MS);
}

/* The next event of a channel, which has to be this one, of this id unless that is NULL. */
static inline struct rdma_cm_event *next_event(struct rdma_event_channel *channel, struct rdma_cm_id *id,
	enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	CHECK(!rdma_get_cm_event(channel, &event));
	if (event->event != type)
		fprintf(stderr, "%s, status %d, instead of %s\n", rdma_event_str(event->event), event->status,
			rdma_event_str(type));
	CHECK(event->event == type && (!id || event->id == id));
	return event;
}

/* The same, of which only that it came matters. */
static inline void expect(struct rdma_event_channel *channel, struct rdma_cm_id *id, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = next_event(channel, id, type);
	CHECK(!event->status && !rdma_ack_cm_event(event));
}

static inline void expect_none(struct rdma_event_channel *channel)
{
	struct pollfd waits = { .fd = channel->fd, .events = POLLIN };
	CHECK(poll(&waits, 1, 0) == 0);
}

static inline struct rdma_cm_id *make_id(struct rdma_event_channel *channel, enum rdma_port_space ps)
{
	struct rdma_cm_id *id = NULL;
	CHECK(!rdma_create_id(channel, &id, &id, ps) && id);
	CHECK(id->channel == channel && id->context == &id && id->ps == ps && !id->verbs && !id->qp);
	return id;
}

static inline struct rdma_cm_id *make_listener(struct rdma_event_channel *channel, enum rdma_port_space ps)
{
	struct rdma_cm_id *id = make_id(channel, ps);
	CHECK(!bind_to(id, 0) && !rdma_listen(id, 8));
	return id;
}

/* An id that knows its route to the port; its channel has had the events. */
static inline struct rdma_cm_id *make_client(struct rdma_event_channel *channel, enum rdma_port_space ps, uint16_t port)
{
	struct rdma_cm_id *id = make_id(channel, ps);
	CHECK(!resolve_to(id, port));
	expect(channel, id, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_resolve_route(id, TIMEOUT_MS));
	expect(channel, id, RDMA_CM_EVENT_ROUTE_RESOLVED);
	return id;
}

static inline void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = { .qp_type = id->qp_type, .sq_sig_all = 1,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 } };
	CHECK(!rdma_create_qp(id, NULL, &init));
	CHECK(id->qp && id->qp->qp_type == id->qp_type && id->pd && id->qp->pd == id->pd);
	CHECK(id->send_cq && id->recv_cq && init.send_cq == id->send_cq && init.recv_cq == id->recv_cq);
	CHECK(id->send_cq_channel && id->recv_cq_channel && id->qp->send_cq == id->send_cq);
}

/* A connection in one process: the server's events come to one channel, the client's to another. */
struct connection {
	struct rdma_event_channel *passive, *active;
	struct rdma_cm_id *listener, *server, *client;
};

static inline struct connection make_connection(void)
{
	struct connection c = { .passive = rdma_create_event_channel(), .active = rdma_create_event_channel() };
	CHECK(c.passive && c.active);
	c.listener = make_listener(c.passive, RDMA_PS_TCP);
	c.client = make_client(c.active, RDMA_PS_TCP, ntohs(rdma_get_src_port(c.listener)));
	make_qp(c.client);
	struct rdma_conn_param param = { .responder_resources = 4, .initiator_depth = 4, .retry_count = 7,
		.rnr_retry_count = 7 };
	CHECK(!rdma_connect(c.client, &param));
	struct rdma_cm_event *request = next_event(c.passive, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(request->listen_id == c.listener && request->id != c.listener);
	c.server = request->id;
	make_qp(c.server);
	CHECK(!rdma_ack_cm_event(request));
	CHECK(!rdma_accept(c.server, &param));
	expect(c.active, c.client, RDMA_CM_EVENT_ESTABLISHED);
	expect(c.passive, c.server, RDMA_CM_EVENT_ESTABLISHED);
	return c;
}

/* A message from the first to the second, by the functions of rdma_verbs.h. */
static inline void send_message(struct rdma_cm_id *from, struct rdma_cm_id *to)
{
	static char sent[64], received[64];
	static char round;
	memset(sent, ++round, sizeof sent);
	struct ibv_mr *source = rdma_reg_msgs(from, sent, sizeof sent);
	struct ibv_mr *sink = rdma_reg_msgs(to, received, sizeof received);
	CHECK(source && sink);
	CHECK(!rdma_post_recv(to, received, received, sizeof received, sink));
	CHECK(!rdma_post_send(from, sent, sent, sizeof sent, source, 0));
	struct ibv_wc wc;
	CHECK(rdma_get_send_comp(from, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == (uintptr_t)sent);
	CHECK(rdma_get_recv_comp(to, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == (uintptr_t)received);
	CHECK(wc.byte_len == sizeof sent && !memcmp(sent, received, sizeof sent));
	CHECK(!rdma_dereg_mr(source) && !rdma_dereg_mr(sink));
}

static inline void drop_id(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	CHECK(!id->qp && !id->send_cq && !id->recv_cq && !id->send_cq_channel && !id->recv_cq_channel);
	CHECK(!rdma_destroy_id(id));
}

static inline void drop_connection(struct connection *c)
{
	drop_id(c->client);
	drop_id(c->server);
	CHECK(!rdma_destroy_id(c->listener));
	rdma_destroy_event_channel(c->active);
	rdma_destroy_event_channel(c->passive);
}

#endif
