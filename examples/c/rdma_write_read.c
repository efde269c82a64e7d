/*
 * One-sided RDMA: a client writes into the server's memory and reads from it, without the server's doing.
 *
 *     rdma_write_read [-p PORT]                 the server: offers a buffer to one client
 *     rdma_write_read [-p PORT] [-r | -w] HOST  the client: writes the buffer, then reads it (-r: only reads, -w: only writes)
 *
 * Who wants to access the memory of another has to know three things of it: its address, its length, and its key (the
 * rkey, which the NIC gave out when the memory was registered). RDMA has no way of its own to ask for them, so the server
 * tells them in a message, by send and receive:
 *
 *     client                                            server
 *     connect (as in rdma_send_recv.c)                  accept
 *     receive               <=== address, length, rkey  send
 *     RDMA write            === data ===>               (its application does not notice)
 *     RDMA read             <=== data ===               (nor this)
 *     send                  === "done" ===>             receive: now it may look
 *     disconnect                                        event DISCONNECTED
 *
 * The last message is needed because nothing tells the server's application that its memory has changed. (Other ways:
 * RDMA write with immediate data, which uses up a receive, or a byte of the buffer that the server looks at again and again.)
 */
#include <getopt.h>

#include "common.h"

enum {
	REGION = 4096,
};

/* The offer, as it goes over the network. Both sides have to agree on its form: fixed widths, big-endian. */
struct offer {
	uint64_t address;
	uint32_t length;
	uint32_t rkey;
};

/* What a side has of a connection. */
struct side {
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct ibv_pd *pd;
	struct ibv_mr *message_mr;
	struct offer *message; /* sent or received; "done" is an empty message */
	struct ibv_mr *region_mr;
	char *region; /* the server's: what it offers. The client's: what it writes from and reads into */
};

static struct side make_side(struct rdma_cm_id *id, int region_rights)
{
	struct side side = { .id = id };
	TRY_POINTER(side.pd = ibv_alloc_pd(id->verbs));
	/* Without a completion channel: this program asks again and again (it "polls"), the fastest way to learn of something. */
	TRY_POINTER(side.cq = ibv_create_cq(id->verbs, 4, NULL, NULL, 0));
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.send_cq = side.cq,
		.recv_cq = side.cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};
	TRY(rdma_create_qp(id, side.pd, &attr));

	TRY_POINTER(side.message = calloc(1, sizeof *side.message));
	TRY_POINTER(side.message_mr = ibv_reg_mr(side.pd, side.message, sizeof *side.message, IBV_ACCESS_LOCAL_WRITE));
	/* Page by page, so that nothing else lies in the pages that a peer may write. */
	TRY_POINTER(side.region = aligned_alloc(4096, REGION));
	memset(side.region, 0, REGION);
	TRY_POINTER(side.region_mr = ibv_reg_mr(side.pd, side.region, REGION, region_rights));
	return side;
}

static void destroy_side(struct side *side)
{
	rdma_destroy_qp(side->id);
	TRY(ibv_dereg_mr(side->region_mr));
	free(side->region);
	TRY(ibv_dereg_mr(side->message_mr));
	free(side->message);
	TRY(ibv_destroy_cq(side->cq));
	TRY(ibv_dealloc_pd(side->pd));
	TRY(rdma_destroy_id(side->id));
}

static void post_receive(struct side *side)
{
	struct ibv_sge where = { (uintptr_t)side->message, sizeof *side->message, side->message_mr->lkey };
	struct ibv_recv_wr request = { .sg_list = &where, .num_sge = 1 }, *failed;
	TRY(ibv_post_recv(side->id->qp, &request, &failed));
}

static void post_send(struct side *side, uint32_t length)
{
	struct ibv_sge where = { (uintptr_t)side->message, length, side->message_mr->lkey };
	struct ibv_send_wr request = { .sg_list = &where, .num_sge = length ? 1 : 0, .opcode = IBV_WR_SEND }, *failed;
	TRY(ibv_post_send(side->id->qp, &request, &failed));
}

/* An RDMA write or read: `length` bytes between the start of our region and the start of the offered one. */
static void post_rdma(struct side *side, enum ibv_wr_opcode opcode, const struct offer *offer, uint32_t length)
{
	struct ibv_sge local = { (uintptr_t)side->region, length, side->region_mr->lkey };
	struct ibv_send_wr request = {
		.sg_list = &local,
		.num_sge = 1,
		.opcode = opcode,
		.wr.rdma = { .remote_addr = offer->address, .rkey = offer->rkey },
	}, *failed;
	TRY(ibv_post_send(side->id->qp, &request, &failed));
}

/* Spins until the next completion is there, which has to be a good one of this kind. */
static void wait_for(struct side *side, enum ibv_wc_opcode opcode, const char *what)
{
	struct ibv_wc wc;
	int found;
	do
		found = ibv_poll_cq(side->cq, 1, &wc);
	while (found == 0);
	if (found < 0 || wc.status != IBV_WC_SUCCESS || wc.opcode != opcode) {
		fprintf(stderr, "%s: %s\n", what, found < 0 ? "ibv_poll_cq failed" : ibv_wc_status_str(wc.status));
		exit(1);
	}
	printf("%s\n", what);
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

	struct rdma_cm_event *request = next_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	/* A right to write from afar is only to be had with the right to write at home. */
	struct side side = make_side(request->id, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	TRY(rdma_ack_cm_event(request));
	snprintf(side.region, REGION, "what the server wrote");

	post_receive(&side); /* for "done" */
	/* How many RDMA reads of the peer our NIC answers at a time: without it, none. */
	struct rdma_conn_param param = { .responder_resources = 1, .rnr_retry_count = 7 };
	TRY(rdma_accept(side.id, &param));
	expect_event(channel, RDMA_CM_EVENT_ESTABLISHED);
	printf("connected\n");

	side.message->address = htobe64((uintptr_t)side.region);
	side.message->length = htobe32(REGION);
	side.message->rkey = htobe32(side.region_mr->rkey);
	post_send(&side, sizeof *side.message);
	wait_for(&side, IBV_WC_SEND, "offered the region");
	wait_for(&side, IBV_WC_RECV, "the client is done");
	printf("the region now holds \"%s\"\n", side.region);

	expect_event(channel, RDMA_CM_EVENT_DISCONNECTED);
	destroy_side(&side);
	TRY(rdma_destroy_id(listener));
}

static void connect_to(struct rdma_event_channel *channel, const char *host, const char *port, int writes, int reads)
{
	struct sockaddr_storage server = address_of(host, port);
	struct rdma_cm_id *id;
	TRY(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	TRY(rdma_resolve_addr(id, NULL, (struct sockaddr *)&server, RESOLVE_MS));
	expect_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	TRY(rdma_resolve_route(id, RESOLVE_MS));
	expect_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);

	/* The client's region is not offered to anybody, but what it reads is written here. */
	struct side side = make_side(id, IBV_ACCESS_LOCAL_WRITE);
	post_receive(&side); /* for the offer */
	/* How many RDMA reads we want to have under way at a time. */
	struct rdma_conn_param param = { .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7 };
	TRY(rdma_connect(id, &param));
	expect_event(channel, RDMA_CM_EVENT_ESTABLISHED);
	printf("connected\n");

	wait_for(&side, IBV_WC_RECV, "received the offer");
	struct offer offer = {
		.address = be64toh(side.message->address),
		.length = be32toh(side.message->length),
		.rkey = be32toh(side.message->rkey),
	};
	printf("the server offers %u bytes at 0x%llx, rkey 0x%x\n", offer.length, (unsigned long long)offer.address, offer.rkey);
	uint32_t length = offer.length < REGION ? offer.length : REGION;

	if (writes) {
		snprintf(side.region, REGION, "what the client wrote");
		post_rdma(&side, IBV_WR_RDMA_WRITE, &offer, length);
		/* The completion says that the data lies in the server's memory (and that our buffer is ours again). */
		wait_for(&side, IBV_WC_RDMA_WRITE, "written");
	}
	if (reads) {
		memset(side.region, 0, REGION);
		post_rdma(&side, IBV_WR_RDMA_READ, &offer, length);
		wait_for(&side, IBV_WC_RDMA_READ, "read");
		printf("the server's region holds \"%.*s\"\n", REGION - 1, side.region);
	}

	post_send(&side, 0);
	wait_for(&side, IBV_WC_SEND, "told the server");
	TRY(rdma_disconnect(id));
	expect_event(channel, RDMA_CM_EVENT_DISCONNECTED);
	destroy_side(&side);
}

int main(int argc, char **argv)
{
	const char *port = "18601";
	int option, writes = 1, reads = 1;
	while ((option = getopt(argc, argv, "p:rw")) != -1) {
		switch (option) {
		case 'p':
			port = optarg;
			break;
		case 'r':
			writes = 0;
			break;
		case 'w':
			reads = 0;
			break;
		default:
			fprintf(stderr, "usage: %s [-p PORT] [-r | -w] [HOST]\n", argv[0]);
			return 2;
		}
	}

	struct rdma_event_channel *channel;
	TRY_POINTER(channel = rdma_create_event_channel());
	if (optind < argc)
		connect_to(channel, argv[optind], port, writes, reads);
	else
		serve(channel, port);
	rdma_destroy_event_channel(channel);
	return 0;
}
