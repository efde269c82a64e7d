/* A connection on which nothing is said: both sides print "connected", then whatever event comes next, and how it ended.
 *
 *     connected PORT          waits for one client
 *     connected PORT HOST     connects
 *     connected PORT HOST leave    the same, and disconnects when a line comes on standard input
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY(call)                                                                     \
	do {                                                                              \
		if (call) {                                                                   \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, strerror(errno)); \
			exit(1);                                                                  \
		}                                                                             \
	} while (0)

static struct rdma_event_channel *channel;

static struct rdma_cm_event *event(enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event;
	TRY(rdma_get_cm_event(channel, &event));
	if (event->event != wanted) {
		fprintf(stderr, "%s, status %d\n", rdma_event_str(event->event), event->status);
		exit(1);
	}
	return event;
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1 } };
	TRY(rdma_create_qp(id, NULL, &attr));
	/* Something that the end of the connection has to flush. */
	TRY(rdma_post_recvv(id, NULL, NULL, 0));
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = argc > 2 ? 0 : RAI_PASSIVE,
		.ai_family = argc > 2 ? AF_UNSPEC : AF_INET6 /* and IPv4 */ }, *info;
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	struct rdma_cm_id *id;
	TRY(!(channel = rdma_create_event_channel()));
	TRY(rdma_getaddrinfo(argc > 2 ? argv[2] : NULL, argv[1], &hints, &info));
	TRY(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	if (argc > 2) {
		TRY(rdma_resolve_addr(id, NULL, info->ai_dst_addr, 2000));
		TRY(rdma_ack_cm_event(event(RDMA_CM_EVENT_ADDR_RESOLVED)));
		TRY(rdma_resolve_route(id, 2000));
		TRY(rdma_ack_cm_event(event(RDMA_CM_EVENT_ROUTE_RESOLVED)));
		make_qp(id);
		TRY(rdma_connect(id, &param));
	} else {
		TRY(rdma_bind_addr(id, info->ai_src_addr));
		TRY(rdma_listen(id, 1));
		struct rdma_cm_event *request = event(RDMA_CM_EVENT_CONNECT_REQUEST);
		id = request->id;
		make_qp(id);
		TRY(rdma_accept(id, &param));
		TRY(rdma_ack_cm_event(request));
	}
	TRY(rdma_ack_cm_event(event(RDMA_CM_EVENT_ESTABLISHED)));
	puts("connected");
	fflush(stdout);

	if (argc > 3) {
		getchar();
		TRY(rdma_disconnect(id));
	}
	struct rdma_cm_event *end;
	TRY(rdma_get_cm_event(channel, &end));
	printf("%s\n", rdma_event_str(end->event));
	fflush(stdout);
	int disconnected = end->event == RDMA_CM_EVENT_DISCONNECTED;
	TRY(rdma_ack_cm_event(end));
	if (argc <= 3)
		TRY(rdma_disconnect(id));
	struct ibv_wc wc;
	if (rdma_get_recv_comp(id, &wc) == 1)
		printf("the receive: %s\n", ibv_wc_status_str(wc.status));
	return !disconnected;
}
