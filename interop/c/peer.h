/* What the interop programs share: the two ends of a connection on two hosts.
 *
 * PROGRAM server PORT GID-INDEX
 * PROGRAM client PORT GID-INDEX HOST
 *
 * RC_DEVICE names the device. Every trial has queue pairs of its own, since a refused request ends them.
 */
#ifndef PEER_H
#define PEER_H

#include "rc.h"
#include "tcp.h"

struct end {
    int client, fd, gid_index;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    uint8_t *memory;
    struct ibv_mr *mr;
    struct ibv_qp *qp;
    struct endpoint peer;
};

/* Meets the other end; memory of `length` bytes is registered with `access`. */
static struct end open_end(int argc, char **argv, size_t length, int access)
{
    struct end end = {.client = argc >= 5 && !strcmp(argv[1], "client")};
    if (!end.client && (argc < 4 || strcmp(argv[1], "server")))
        die("usage: %s server PORT GID-INDEX | client PORT GID-INDEX HOST", argv[0]);
    end.gid_index = atoi(argv[3]);
    end.context = open_device();
    end.pd = ibv_alloc_pd(end.context);
    end.cq = ibv_create_cq(end.context, 256, NULL, NULL, 0);
    if (!end.pd || !end.cq || posix_memalign((void **)&end.memory, 4096, length))
        die("set up");
    memset(end.memory, 0, length);
    end.mr = ibv_reg_mr(end.pd, end.memory, length, access);
    if (!end.mr)
        die("ibv_reg_mr");
    end.fd = end.client ? connect_to(argv[4], atoi(argv[2])) : listen_and_accept(atoi(argv[2]));
    return end;
}

/* A new pair of connected queue pairs instead of the old. The peer learns `rkey`, and where our memory is. */
static void __attribute__((unused)) join(struct end *end, int access, uint32_t rkey, int rnr_retry)
{
    if (end->qp && (errno = ibv_destroy_qp(end->qp)))
        die("ibv_destroy_qp");
    end->qp = make_qp(end->pd, end->cq, access);
    struct endpoint own = {
        .qpn = end->qp->qp_num, .psn = 0xfffffe, .address = (uintptr_t)end->memory, .rkey = rkey};
    if (ibv_query_gid(end->context, 1, end->gid_index, &own.gid))
        die("ibv_query_gid");
    put(end->fd, &own, sizeof own);
    if (!get(end->fd, &end->peer, sizeof end->peer))
        die("the peer is gone");
    connect_qp(end->qp, end->gid_index, own.psn, &end->peer, rnr_retry);
    meet(end->fd);
}

static void __attribute__((unused)) receive(struct end *end, uint64_t wr_id, size_t offset, uint32_t length)
{
    struct ibv_sge sge = {.addr = (uintptr_t)end->memory + offset, .length = length, .lkey = end->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;
    if ((errno = ibv_post_recv(end->qp, &wr, &bad)))
        die("ibv_post_recv");
}

static void __attribute__((unused)) post(struct end *end, struct ibv_send_wr wr)
{
    struct ibv_send_wr *bad;
    wr.send_flags |= IBV_SEND_SIGNALED;
    if ((errno = ibv_post_send(end->qp, &wr, &bad)))
        die("ibv_post_send");
}

/* A READ, WRITE or SEND of our memory's first bytes; its completion's status. */
static enum ibv_wc_status __attribute__((unused))
transfer(struct end *end, enum ibv_wr_opcode opcode, uint64_t remote, uint32_t rkey, uint32_t length)
{
    struct ibv_sge sge = {.addr = (uintptr_t)end->memory, .length = length, .lkey = end->mr->lkey};
    struct ibv_send_wr wr = {.opcode = opcode, .sg_list = &sge, .num_sge = 1};
    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = rkey;
    post(end, wr);
    return next_completion(end->cq).status;
}

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            die("%s:%d: not so: %s", __FILE__, __LINE__, #condition);                                                  \
    } while (0)

#endif
