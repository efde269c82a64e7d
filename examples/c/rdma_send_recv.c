/*
 * Two-sided RDMA: a client and a server exchange a message with send and receive.
 *
 *     rdma_send_recv [-p PORT]            the server: waits for one client
 *     rdma_send_recv [-p PORT] HOST       the client
 *
 * A connection takes the same steps in every RDMA program:
 *
 *     client                                            server
 *     create an id                                      create an id, bind it, listen
 *     resolve the address: which device?                        .
 *     resolve the route: how there?                             .
 *     create PD, CQ, QP; register memory                        .
 *     post a receive                                            .
 *     connect               --- request -->             event CONNECT_REQUEST, which brings a new id
 *         .                                             create PD, CQ, QP; register memory; post a receive
 *         .                 <-- response ---            accept
 *     event ESTABLISHED     --- ready to use -->        event ESTABLISHED
 *     send a message        === data ===>               its completion: a message has come
 *     its completion: the answer has come   <=== data ===   send the answer
 *     disconnect            --- request -->             event DISCONNECTED
 *
 * "Two-sided" means that both applications take part: each message that is sent uses up one receive that the other side has
 * posted before, and a message that finds no receive is refused (the sender's NIC tries again for a while).
 */
#include <getopt.h>

#include "common.h"

enum {
	MESSAGE = 256, /* bytes of each buffer */
};

/* What a side has of a connection. */
struct side {
	struct rdma_cm_id *id; /* the connection; id->qp is its queue pair */
	struct ibv_comp_channel *completions; /* to sleep until there is a completion */
	struct ibv_cq *cq;
	struct ibv_pd *pd;
	struct ibv_mr *mr; /* both buffers, registered */
	struct {
		char to_send[MESSAGE];
		char received[MESSAGE];
	} *memory;
};

/* Once the id knows its device (id->verbs), everything that the device has to give us. */
static struct side make_side(struct rdma_cm_id *id)
{
	struct side side = { .id = id };

	/* Objects of one protection domain may be used with each other, and with nothing else. */
	TRY_POINTER(side.pd = ibv_alloc_pd(id->verbs));

	/* Work that is done is reported in a completion queue. One queue serves both sends and receives here. */
	TRY_POINTER(side.completions = ibv_create_comp_channel(id->verbs));
	TRY_POINTER(side.cq = ibv_create_cq(id->verbs, 4, NULL, side.completions, 0));

	/* A queue pair has a send queue and a receive queue. RC: reliable, in order, between two peers. The connection manager
	 * takes it through its states (INIT, RTR, RTS) as the connection is made. */
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.send_cq = side.cq,
		.recv_cq = side.cq,
		.cap = { .max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1, /* a completion for every send, too */
	};
	TRY(rdma_create_qp(id, side.pd, &attr));

	/* The NIC reads and writes the application's memory by itself, so it has to be told which. What is received is written
	 * by our own NIC on our own behalf: that is LOCAL_WRITE. Nobody else may touch it. */
	TRY_POINTER(side.memory = calloc(1, sizeof *side.memory));
	TRY_POINTER(side.mr = ibv_reg_mr(side.pd, side.memory, sizeof *side.memory, IBV_ACCESS_LOCAL_WRITE));
	return side;
}

/* Makes room for one message. Always before the peer may send it. */
static void post_receive(struct side *side)
{
	struct ibv_sge where = { (uintptr_t)side->memory->received, MESSAGE, side->mr->lkey };
	struct ibv_recv_wr request = { .wr_id = 1, .sg_list = &where, .num_sge = 1 }, *failed;
	TRY(ibv_post_recv(side->id->qp, &request, &failed));
}

/* Hands a message to the NIC. The buffer is the NIC's until the completion of the send has come. */
static void post_send(struct side *side, const char *text)
{
	snprintf(side->memory->to_send, MESSAGE, "%s", text);
	struct ibv_sge where = { (uintptr_t)side->memory->to_send, strlen(text) + 1, side->mr->lkey };
	struct ibv_send_wr request = { .wr_id = 2, .sg_list = &where, .num_sge = 1, .opcode = IBV_WR_SEND }, *failed;
	TRY(ibv_post_send(side->id->qp, &request, &failed));
}

/* Waits, asleep, for `count` completions of any kind. */
static void wait_for_completions(struct side *side, int count)
{
	while (count > 0) {
		/* Ask for an event first and look second: what completes in between is then not missed. */
		TRY(ibv_req_notify_cq(side->cq, 0));
		struct ibv_wc wc;
		int found;
		while (count > 0 && (found = ibv_poll_cq(side->cq, 1, &wc)) > 0) {
			if (wc.status != IBV_WC_SUCCESS) {
				fprintf(stderr, "work request %llu failed: %s\n", (unsigned long long)wc.wr_id,
					ibv_wc_status_str(wc.status));
				exit(1);
			}
			if (wc.opcode == IBV_WC_RECV)
				printf("received %u bytes: \"%s\"\n", wc.byte_len, side->memory->received);
			else
				printf("sent\n");
			count--;
		}
		if (count > 0) {
			struct ibv_cq *cq;
			void *context;
			TRY(ibv_get_cq_event(side->completions, &cq, &context));
			ibv_ack_cq_events(cq, 1);
		}
	}
}

/* In the opposite order of making: nothing may go while something else uses it. */
static void destroy_side(struct side *side)
{
	rdma_destroy_qp(side->id);
	TRY(ibv_dereg_mr(side->mr));
	free(side->memory);
	TRY(ibv_destroy_cq(side->cq));
	TRY(ibv_destroy_comp_channel(side->completions));
	TRY(ibv_dealloc_pd(side->pd));
	TRY(rdma_destroy_id(side->id));
}

static void serve(struct rdma_event_channel *channel, const char *port)
{
	struct sockaddr_storage any = address_of(NULL, port);
	struct rdma_cm_id *listener;
	TRY(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
	TRY(rdma_bind_addr(listener, (struct sockaddr *)&any));
	TRY(rdma_listen(listener, 1));
	printf("listening on port %d\n", ntohs(rdma_get_src_port(listener)));
	fflush(stdout);

	/* The request brings an id of its own for the connection; the listener goes on listening. */
	struct rdma_cm_event *request = next_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct side side = make_side(request->id);
	TRY(rdma_ack_cm_event(request));

	post_receive(&side);
	struct rdma_conn_param param = { .rnr_retry_count = 7 };
	TRY(rdma_accept(side.id, &param));
	expect_event(channel, RDMA_CM_EVENT_ESTABLISHED);
	printf("connected\n");

	wait_for_completions(&side, 1);
	post_send(&side, "hello from the server");
	wait_for_completions(&side, 1);

	expect_event(channel, RDMA_CM_EVENT_DISCONNECTED);
	printf("the client has disconnected\n");
	destroy_side(&side);
	TRY(rdma_destroy_id(listener));
}

static void connect_to(struct rdma_event_channel *channel, const char *host, const char *port)
{
	struct sockaddr_storage server = address_of(host, port);
	struct rdma_cm_id *id;
	TRY(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));

	/* Each of these steps is asynchronous: its outcome is an event. */
	TRY(rdma_resolve_addr(id, NULL, (struct sockaddr *)&server, RESOLVE_MS));
	expect_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	TRY(rdma_resolve_route(id, RESOLVE_MS));
	expect_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);

	struct side side = make_side(id);
	post_receive(&side); /* before the server can answer */
	/* How often to try again when the network loses packets (retry) and when the peer has no receive (7: for ever). */
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	TRY(rdma_connect(id, &param));
	expect_event(channel, RDMA_CM_EVENT_ESTABLISHED);
	printf("connected\n");

	post_send(&side, "hello from the client");
	wait_for_completions(&side, 2); /* of the send, and of the receive */

	TRY(rdma_disconnect(id));
	expect_event(channel, RDMA_CM_EVENT_DISCONNECTED);
	destroy_side(&side);
}

int main(int argc, char **argv)
{
	const char *port = "18600";
	int option;
	while ((option = getopt(argc, argv, "p:")) != -1) {
		if (option != 'p') {
			fprintf(stderr, "usage: %s [-p PORT] [HOST]\n", argv[0]);
			return 2;
		}
		port = optarg;
	}

	/* Events of the connection manager come over a channel; its descriptor may be given to poll(2). */
	struct rdma_event_channel *channel;
	TRY_POINTER(channel = rdma_create_event_channel());
	if (optind < argc)
		connect_to(channel, argv[optind], port);
	else
		serve(channel, port);
	rdma_destroy_event_channel(channel);
	return 0;
}
