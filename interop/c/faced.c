/* What Linux runs while stand_in.c is its peer.
 *
 *     faced client PORT GID-INDEX HOST nak     a SEND of eight packets, retry_cnt 6
 *     faced client PORT GID-INDEX HOST deaf    a short SEND to nobody, retry_cnt 7, for two seconds
 *     faced late PORT HOST      connects, and does not look what came for a second
 *     faced accept PORT [leave] accepts a connection; disconnects it, or waits until it is disconnected
 */
#include "peer.h"

#include <rdma/rdma_cma.h>

enum { LENGTH = 8192 };

static void connection(int argc, char **argv, int deaf)
{
    struct end end = open_end(argc, argv, LENGTH, ALL_MR_ACCESS);
    retry_cnt = deaf ? 7 : 6;
    join(&end, ALL_QP_ACCESS, end.mr->rkey, 7);
    if (!deaf) {
        say("status %d", transfer(&end, IBV_WR_SEND, 0, 0, LENGTH));
        return;
    }
    struct ibv_sge sge = {.addr = (uintptr_t)end.memory, .length = 8, .lkey = end.mr->lkey};
    post(&end, (struct ibv_send_wr){.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND});
    sleep(2);
    say("completions: %d", ibv_poll_cq(end.cq, 1, &(struct ibv_wc){0}));
}

static struct rdma_cm_id *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type wanted)
{
    struct rdma_cm_event *event;
    EXPECT(!rdma_get_cm_event(channel, &event));
    say("%s", rdma_event_str(event->event));
    EXPECT(event->event == wanted);
    struct rdma_cm_id *id = event->id;
    EXPECT(!rdma_ack_cm_event(event));
    return id;
}

int main(int argc, char **argv)
{
    if (argc == 6 && !strcmp(argv[1], "client")) {
        connection(argc, argv, !strcmp(argv[5], "deaf"));
        return 0;
    }
    EXPECT(argc >= 3);
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id;
    EXPECT(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
    /* No queue pair: this number is nobody's. */
    struct rdma_conn_param param = {
        .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7, .qp_num = 0x999};
    if (!strcmp(argv[1], "late")) {
        EXPECT(argc == 4 && inet_pton(AF_INET, argv[3], &address.sin_addr) == 1);
        EXPECT(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 5000));
        expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
        EXPECT(!rdma_resolve_route(id, 5000));
        expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
        EXPECT(!rdma_connect(id, &param));
        sleep(1);
        /* Without a queue pair in the id it is the program that answers the REP. */
        expect(channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
        EXPECT(!rdma_establish(id));
        sleep(1);
        return 0;
    }
    EXPECT(!rdma_bind_addr(id, (struct sockaddr *)&address) && !rdma_listen(id, 1));
    id = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT(!rdma_accept(id, &param));
    expect(channel, RDMA_CM_EVENT_ESTABLISHED);
    if (argc > 3) {
        EXPECT(!rdma_disconnect(id));
        sleep(10);
    } else {
        expect(channel, RDMA_CM_EVENT_DISCONNECTED);
    }
    return 0;
}
