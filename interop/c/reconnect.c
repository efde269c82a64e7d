/* The same two programs connect again and again: refused because nobody listens (at the next port), disconnected by the
 * client, by the server, refused by the server. Private data goes both ways, and a message that is checked.
 *
 *     reconnect PORT          the server
 *     reconnect PORT HOST     the client
 */
#include "rc.h"

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

enum { ROUNDS = 9, LENGTH = 3000 };

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        if (call)                                                                                                      \
            die("%s:%d: %s", __FILE__, __LINE__, #call);                                                               \
    } while (0)

static struct rdma_event_channel *channel;
static uint8_t *memory;

static struct rdma_cm_event *next_event(enum rdma_cm_event_type wanted)
{
    struct rdma_cm_event *event;
    TRY(rdma_get_cm_event(channel, &event));
    if (event->event != wanted)
        die("%s, status %d in place of %s", rdma_event_str(event->event), event->status, rdma_event_str(wanted));
    return event;
}

static void expect(enum rdma_cm_event_type wanted)
{
    TRY(rdma_ack_cm_event(next_event(wanted)));
}

/* The peer's private data is this. What is behind it is padding. */
static void check_said(const struct rdma_cm_event *event, const char *text)
{
    const struct rdma_conn_param *conn = &event->param.conn;
    if (conn->private_data_len < strlen(text) || memcmp(conn->private_data, text, strlen(text)))
        die("%s: other private data than \"%s\"", rdma_event_str(event->event), text);
}

static struct ibv_mr *make_qp_and_receive(struct rdma_cm_id *id)
{
    struct ibv_qp_init_attr attr = {
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
        .cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1},
    };
    TRY(rdma_create_qp(id, NULL, &attr));
    struct ibv_mr *mr = rdma_reg_msgs(id, memory, 2 * LENGTH);
    if (!mr)
        die("rdma_reg_msgs");
    TRY(rdma_post_recv(id, NULL, memory + LENGTH, LENGTH, mr));
    return mr;
}

static struct ibv_wc completion(int (*get)(struct rdma_cm_id *, struct ibv_wc *), struct rdma_cm_id *id)
{
    struct ibv_wc wc;
    if (get(id, &wc) != 1)
        die("no completion");
    if (wc.status != IBV_WC_SUCCESS)
        die("%s", ibv_wc_status_str(wc.status));
    return wc;
}

static void send_one(struct rdma_cm_id *id, struct ibv_mr *mr, int generation)
{
    fill(memory, LENGTH, generation);
    TRY(rdma_post_send(id, NULL, memory, LENGTH, mr, 0));
    completion(rdma_get_send_comp, id);
}

static void receive_one(struct rdma_cm_id *id, int generation)
{
    if (completion(rdma_get_recv_comp, id).byte_len != LENGTH || differs(memory + LENGTH, LENGTH, generation) >= 0)
        die("the message of round %d is another", generation);
}

static void leave(struct rdma_cm_id *id, struct ibv_mr *mr, int first)
{
    if (first)
        TRY(rdma_disconnect(id));
    expect(RDMA_CM_EVENT_DISCONNECTED);
    if (!first)
        TRY(rdma_disconnect(id));
    rdma_destroy_qp(id);
    TRY(rdma_dereg_mr(mr));
    TRY(rdma_destroy_id(id));
}

static struct rdma_conn_param saying(const char *text)
{
    return (struct rdma_conn_param){.private_data = text,
                                    .private_data_len = strlen(text) + 1,
                                    .responder_resources = 1,
                                    .initiator_depth = 1,
                                    .retry_count = 7,
                                    .rnr_retry_count = 7};
}

static void serve(struct rdma_addrinfo *info)
{
    struct rdma_cm_id *listener;
    TRY(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
    TRY(rdma_bind_addr(listener, info->ai_src_addr));
    TRY(rdma_listen(listener, 1));
    for (int round = 0; round < ROUNDS; round++) {
        char theirs[32], ours[32];
        snprintf(theirs, sizeof theirs, "hello %d", round);
        snprintf(ours, sizeof ours, "answer %d", round);
        struct rdma_cm_event *request = next_event(RDMA_CM_EVENT_CONNECT_REQUEST);
        struct rdma_cm_id *id = request->id;
        check_said(request, theirs);
        TRY(rdma_ack_cm_event(request));
        if (round % 3 == 2) {
            TRY(rdma_reject(id, ours, strlen(ours) + 1));
            TRY(rdma_destroy_id(id));
            continue;
        }
        struct ibv_mr *mr = make_qp_and_receive(id);
        struct rdma_conn_param param = saying(ours);
        TRY(rdma_accept(id, &param));
        expect(RDMA_CM_EVENT_ESTABLISHED);
        receive_one(id, round);
        send_one(id, mr, round + 100);
        leave(id, mr, round % 3 == 1);
    }
    TRY(rdma_destroy_id(listener));
}

/* A connection to HOST that is asked for. */
static struct rdma_cm_id *ask(struct rdma_addrinfo *info, const char *text, struct ibv_mr **mr)
{
    struct rdma_cm_id *id;
    TRY(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    TRY(rdma_resolve_addr(id, NULL, info->ai_dst_addr, 5000));
    expect(RDMA_CM_EVENT_ADDR_RESOLVED);
    TRY(rdma_resolve_route(id, 5000));
    expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
    *mr = make_qp_and_receive(id);
    struct rdma_conn_param param = saying(text);
    TRY(rdma_connect(id, &param));
    return id;
}

/* The status of a refusal is the reason in the REJ: 28 is the application, 8 that nobody listens. */
static void refused(struct rdma_cm_id *id, struct ibv_mr *mr, int reason, const char *text)
{
    struct rdma_cm_event *event = next_event(RDMA_CM_EVENT_REJECTED);
    if (event->status != reason)
        die("refused for reason %d, not %d", event->status, reason);
    if (text)
        check_said(event, text);
    TRY(rdma_ack_cm_event(event));
    rdma_destroy_qp(id);
    TRY(rdma_dereg_mr(mr));
    TRY(rdma_destroy_id(id));
}

static void connect_again(struct rdma_addrinfo *info)
{
    struct ibv_mr *mr;
    /* The port lies at the same place in both families' addresses. */
    struct sockaddr_in *server = (struct sockaddr_in *)info->ai_dst_addr;
    in_port_t port = server->sin_port;
    server->sin_port = htons(ntohs(port) + 1);
    struct rdma_cm_id *nobody = ask(info, "nobody", &mr);
    refused(nobody, mr, 8, NULL);
    server->sin_port = port;
    for (int round = 0; round < ROUNDS; round++) {
        char theirs[32], ours[32];
        snprintf(theirs, sizeof theirs, "answer %d", round);
        snprintf(ours, sizeof ours, "hello %d", round);
        struct rdma_cm_id *id = ask(info, ours, &mr);
        if (round % 3 == 2) {
            refused(id, mr, 28, theirs);
            continue;
        }
        struct rdma_cm_event *event = next_event(RDMA_CM_EVENT_ESTABLISHED);
        check_said(event, theirs);
        TRY(rdma_ack_cm_event(event));
        send_one(id, mr, round);
        receive_one(id, round + 100);
        leave(id, mr, round % 3 == 0);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP,
                                  .ai_flags = argc > 2 ? 0 : RAI_PASSIVE,
                                  .ai_family = argc > 2 ? AF_UNSPEC : AF_INET6 /* and IPv4 */},
                         *info;
    TRY(!(channel = rdma_create_event_channel()));
    TRY(!(memory = calloc(2, LENGTH)));
    TRY(rdma_getaddrinfo(argc > 2 ? argv[2] : NULL, argv[1], &hints, &info));
    argc > 2 ? connect_again(info) : serve(info);
    say("verified");
    return 0;
}
