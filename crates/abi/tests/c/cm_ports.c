/* Ports belong to who bound them, in the port space of their id; what is shared has to be shared by all. */
#include <sys/socket.h>
#include <unistd.h>
#include "cm.h"

static struct rdma_event_channel *channel;

static struct rdma_cm_id *id_of(enum rdma_port_space ps)
{
	return make_id(channel, ps);
}

static struct rdma_cm_id *sharing_id(void)
{
	struct rdma_cm_id *id = id_of(RDMA_PS_TCP);
	int yes = 1;
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes));
	return id;
}

static int bind_wildcard(struct rdma_cm_id *id, uint16_t port)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(port) };
	return rdma_bind_addr(id, (struct sockaddr *)&any);
}

static int af_only(struct rdma_cm_id *id, int only)
{
	return rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof only);
}

/* An IPv6 wildcard takes IPv4 as well, or not: that may be said until it listens, also once it is bound. */
static void families(void)
{
	for (int only = 0; only < 2; only++) {
		struct rdma_cm_id *listener = id_of(RDMA_PS_TCP);
		struct sockaddr_in6 any = { .sin6_family = AF_INET6 };
		CHECK(!af_only(listener, 0) && !rdma_bind_addr(listener, (struct sockaddr *)&any));
		CHECK(!af_only(listener, only) && !rdma_listen(listener, 1));
		CHECK(af_only(listener, !only) == -1 && errno == EINVAL);
		struct rdma_event_channel *own = rdma_create_event_channel();
		struct rdma_cm_id *client = make_client(own, RDMA_PS_TCP, ntohs(rdma_get_src_port(listener)));
		make_qp(client);
		CHECK(!rdma_connect(client, NULL));
		if (only) {
			struct rdma_cm_event *refused = next_event(own, client, RDMA_CM_EVENT_REJECTED);
			CHECK(!rdma_ack_cm_event(refused));
		} else {
			struct rdma_cm_event *request = next_event(channel, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
			struct rdma_cm_id *id = request->id;
			CHECK(!rdma_ack_cm_event(request) && !rdma_destroy_id(id));
		}
		drop_id(client);
		CHECK(!rdma_destroy_id(listener));
		rdma_destroy_event_channel(own);
	}
}

/* A port is taken in one family, also by a wildcard: a peer of the other one cannot be reached from there. */
static void wildcards(void)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
	struct sockaddr *any[2] = { (struct sockaddr *)&v4, (struct sockaddr *)&v6 };
	struct sockaddr_in peer4 = { .sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 peer6 = { .sin6_family = AF_INET6, .sin6_port = htons(9), .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr *peers[2] = { (struct sockaddr *)&peer4, (struct sockaddr *)&peer6 };
	for (int family = 0; family < 2; family++) {
		struct rdma_cm_id *bound = id_of(RDMA_PS_TCP), *named = id_of(RDMA_PS_TCP);
		CHECK(!rdma_bind_addr(bound, any[family]));
		CHECK(rdma_resolve_addr(bound, NULL, peers[!family], 1000) == -1 && errno == EINVAL);
		CHECK(rdma_resolve_addr(named, any[family], peers[!family], 1000) == -1 && errno == EINVAL);
		CHECK(!rdma_resolve_addr(bound, NULL, peers[family], 1000));
		CHECK(!rdma_ack_cm_event(next_event(channel, bound, RDMA_CM_EVENT_ADDR_RESOLVED)));
		CHECK(!rdma_destroy_id(bound) && !rdma_destroy_id(named));
	}
}

int main(void)
{
	channel = rdma_create_event_channel();
	wildcards();
	struct rdma_cm_id *first = id_of(RDMA_PS_TCP), *second = id_of(RDMA_PS_TCP);
	CHECK(!bind_to(first, 0));
	uint16_t port = ntohs(rdma_get_src_port(first));
	CHECK(port >= 1024);
	CHECK(bind_to(second, port) == -1 && errno == EADDRINUSE);
	CHECK(bind_wildcard(second, port) == -1 && errno == EADDRNOTAVAIL);
	CHECK(bind_to(first, port) == -1 && errno == EINVAL);

	/* The same number in another port space, and TCP's own, are others. */
	struct rdma_cm_id *datagrams = id_of(RDMA_PS_UDP);
	CHECK(!bind_to(datagrams, port) && !rdma_listen(datagrams, 1));
	int tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in addr = loopback(port);
	CHECK(!bind(tcp, (struct sockaddr *)&addr, sizeof addr) && !listen(tcp, 1) && !close(tcp));

	/* Who ends frees the port at once, listening or not. */
	CHECK(!rdma_listen(first, 1) && !rdma_destroy_id(first));
	CHECK(!bind_wildcard(second, port) && !second->verbs && !rdma_listen(second, 1));
	CHECK(second->route.addr.src_sin.sin_addr.s_addr == htonl(INADDR_ANY));
	/* A port that a wildcard has: another errno than that of an address, as Linux. */
	first = id_of(RDMA_PS_TCP);
	CHECK(bind_to(first, port) == -1 && errno == EADDRNOTAVAIL);
	CHECK(bind_wildcard(first, port) == -1 && errno == EADDRNOTAVAIL);
	CHECK(!rdma_destroy_id(first));
	CHECK(!rdma_destroy_id(second) && !rdma_destroy_id(datagrams));

	/* Two that agree share it until one listens. */
	first = sharing_id();
	second = sharing_id();
	struct rdma_cm_id *third = id_of(RDMA_PS_TCP);
	CHECK(!bind_to(first, port) && !bind_to(second, port));
	CHECK(bind_to(third, port) == -1 && errno == EADDRINUSE);
	CHECK(rdma_listen(first, 1) == -1 && errno == EADDRINUSE);
	CHECK(!rdma_destroy_id(second) && !rdma_listen(first, 1));
	second = sharing_id();
	CHECK(bind_to(second, port) == -1 && errno == EADDRINUSE);
	CHECK(!rdma_destroy_id(first) && !rdma_destroy_id(second) && !rdma_destroy_id(third));

	/* Not bound before: any port of any address. */
	first = id_of(RDMA_PS_TCP);
	CHECK(!rdma_get_src_port(first) && !rdma_listen(first, 1) && rdma_get_src_port(first));
	CHECK(!rdma_destroy_id(first));
	families();
	rdma_destroy_event_channel(channel);
	puts("cm_ports: ok");
	return 0;
}
