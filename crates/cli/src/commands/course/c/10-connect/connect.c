/* Exercise 10: a client of the connection manager. See README.md. */
#include "course.h"

#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 256, RESOLVE_MS = 2000 };

/* Ends the function with the error, and says which call failed. */
#define TRY(call)                                                                \
	do {                                                                     \
		errno = 0;                                                       \
		int result = (call);                                             \
		if (result) {                                                    \
			fprintf(stderr, "%s: %s\n", #call, strerror(errno ? errno : result)); \
			return result;                                           \
		}                                                                \
	} while (0)

/* Waits for the next event, which has to be this one. */
static int expect(struct rdma_event_channel *channel, enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event;
	TRY(rdma_get_cm_event(channel, &event));
	enum rdma_cm_event_type came = event->event;
	rdma_ack_cm_event(event);
	if (came != wanted)
		fprintf(stderr, "%s instead of %s\n", rdma_event_str(came), rdma_event_str(wanted));
	return came == wanted ? 0 : -1;
}

/* Waits for a completion. Its status, 0 if it is a success. */
static int complete(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;
	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	return n < 0 ? n : (int)wc.status;
}

/* Connects with the server, sends it the question (with the zero at its end), takes its answer, and
 * disconnects. 0 when all of it is done. */
int ask(const char *host, const char *port, const char *question, char *answer, size_t room)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *address;
	TRY(rdma_getaddrinfo((char *)host, (char *)port, &hints, &address));

	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	TRY(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	TRY(rdma_resolve_addr(id, NULL, address->ai_dst_addr, RESOLVE_MS));
	TRY(expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED));
	rdma_freeaddrinfo(address);

	struct ibv_pd *pd = ibv_alloc_pd(id->verbs);
	struct ibv_cq *cq = ibv_create_cq(id->verbs, 8, NULL, NULL, 0);
	char *memory = calloc(2, ROOM);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, 2 * ROOM, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	TRY(rdma_create_qp(id, pd, &attr));

	/* The answer goes into the second half. */
	struct ibv_sge into = { (uintptr_t)memory + ROOM, ROOM, mr->lkey };
	struct ibv_recv_wr receive = { .wr_id = 1, .sg_list = &into, .num_sge = 1 }, *bad_receive;
	TRY(ibv_post_recv(id->qp, &receive, &bad_receive));

	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	TRY(rdma_connect(id, &param));

	size_t length = strlen(question) + 1;
	memcpy(memory, question, length);
	struct ibv_sge from = { (uintptr_t)memory, length, mr->lkey };
	struct ibv_send_wr send = {
		.wr_id = 2,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = &from,
		.num_sge = 1,
	};
	struct ibv_send_wr *bad_send;
	TRY(ibv_post_send(id->qp, &send, &bad_send));

	/* Both requests end, in whichever order. */
	TRY(complete(cq));
	TRY(complete(cq));
	snprintf(answer, room, "%s", memory + ROOM);
	return 0;
}
