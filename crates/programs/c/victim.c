/* A process with registered memory that everybody may shoot at.
 *
 * victim GID-INDEX QPS SECRET-FILE
 *
 * Registers memory with all remote rights and connects QPS queue pairs to peers that do not exist, at its own address.
 * Posts no receive. SECRET-FILE gets "ADDRESS LENGTH RKEY", then "QPN PSN" of each queue pair. Prints "ready".
 * Polls, and puts queue pairs that fell into the error state back to work, until its standard input ends. Then checks
 * every byte of the memory, lets a new connection with itself write, read and send, and prints "unchanged, repaired N,
 * works".
 */
#include "rc.h"

enum { GUARD = 1 << 16, LENGTH = 1 << 20, WHOLE = LENGTH + 2 * GUARD, TEST = 5000 };

static void reset_and_connect(struct ibv_qp *qp, int gid_index, const struct endpoint *peer)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    if ((errno = ibv_modify_qp(qp, &attr, IBV_QP_STATE)))
        die("ibv_modify_qp to RESET");
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL_QP_ACCESS};
    if ((errno = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)))
        die("ibv_modify_qp to INIT");
    /* Under fire it may be in the error state again before it gets to RTS; the caller finds it there. */
    errno = try_connect_qp(qp, gid_index, 0x1000, peer, 7);
    if (errno && state_of(qp) != IBV_QPS_ERR)
        die("ibv_modify_qp to RTR and RTS");
}

static void run(struct ibv_qp *qp, struct ibv_cq *cq, enum ibv_wr_opcode opcode, struct ibv_mr *from, struct ibv_mr *to)
{
    struct ibv_sge sge = {.addr = (uintptr_t)from->addr, .length = TEST, .lkey = from->lkey};
    struct ibv_send_wr wr = {
        .wr_id = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1}, *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)to->addr;
    wr.wr.rdma.rkey = to->rkey;
    if ((errno = ibv_post_send(qp, &wr, &bad)))
        die("ibv_post_send");
    for (int i = 0; i < (opcode == IBV_WR_SEND ? 2 : 1); i++) {
        struct ibv_wc wc = next_completion(cq);
        if (wc.status != IBV_WC_SUCCESS)
            die("afterwards: opcode %d gives status %d", opcode, wc.status);
    }
}

/* A connection of this process with itself. */
static void still_works(struct ibv_pd *pd, struct ibv_context *context, int gid_index)
{
    static uint8_t here[TEST], there[TEST];
    struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
    struct ibv_mr *near = ibv_reg_mr(pd, here, TEST, ALL_MR_ACCESS), *far = ibv_reg_mr(pd, there, TEST, ALL_MR_ACCESS);
    if (!cq || !near || !far)
        die("afterwards: set up");
    struct ibv_qp *one = make_qp(pd, cq, ALL_QP_ACCESS), *two = make_qp(pd, cq, ALL_QP_ACCESS);
    struct endpoint of_one = {.qpn = one->qp_num, .psn = 1}, of_two = {.qpn = two->qp_num, .psn = 2};
    if (ibv_query_gid(context, 1, gid_index, &of_one.gid))
        die("ibv_query_gid");
    of_two.gid = of_one.gid;
    connect_qp(one, gid_index, of_one.psn, &of_two, 7);
    connect_qp(two, gid_index, of_two.psn, &of_one, 7);
    fill(here, TEST, 1);
    run(one, cq, IBV_WR_RDMA_WRITE, near, far);
    if (differs(there, TEST, 1) >= 0)
        die("afterwards: the write is not there");
    fill(there, TEST, 2);
    run(one, cq, IBV_WR_RDMA_READ, near, far);
    if (differs(here, TEST, 2) >= 0)
        die("afterwards: the read is wrong");
    struct ibv_sge sge = {.addr = (uintptr_t)there, .length = TEST, .lkey = far->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    if ((errno = ibv_post_recv(two, &wr, &bad)))
        die("ibv_post_recv");
    fill(here, TEST, 3);
    run(one, cq, IBV_WR_SEND, near, far);
    if (differs(there, TEST, 3) >= 0)
        die("afterwards: the send is wrong");
    if (ibv_destroy_qp(one) || ibv_destroy_qp(two) || ibv_dereg_mr(near) || ibv_dereg_mr(far) || ibv_destroy_cq(cq))
        die("afterwards: tear down");
}

int main(int argc, char **argv)
{
    if (argc != 4)
        die("usage: victim GID-INDEX QPS SECRET-FILE");
    int gid_index = atoi(argv[1]), count = atoi(argv[2]);
    struct ibv_context *context = open_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 1024, NULL, NULL, 0);
    uint8_t *memory;
    if (!pd || !cq || count < 1 || posix_memalign((void **)&memory, 4096, WHOLE))
        die("set up");
    fill(memory, WHOLE, 9);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory + GUARD, LENGTH, ALL_MR_ACCESS);
    if (!mr)
        die("ibv_reg_mr");

    /* Left out of the memory that must not change, so that the file is not written through it. */
    FILE *secret = fopen(argv[3], "w");
    if (!secret)
        die("%s", argv[3]);
    fprintf(secret, "%llu %d %u\n", (unsigned long long)(uintptr_t)mr->addr, LENGTH, mr->rkey);
    struct ibv_qp *qps[count];
    struct endpoint peers[count];
    for (int i = 0; i < count; i++) {
        qps[i] = make_qp(pd, cq, ALL_QP_ACCESS);
        /* The peer's number is one that nobody has: QPN 2 to 15 are never given out. */
        peers[i] = (struct endpoint){.qpn = 2 + i % 14, .psn = (0xfffff0 + 7919 * i) & 0xffffff};
        if (ibv_query_gid(context, 1, gid_index, &peers[i].gid))
            die("ibv_query_gid");
        connect_qp(qps[i], gid_index, 0x1000, &peers[i], 7);
        fprintf(secret, "%u %u\n", qps[i]->qp_num, peers[i].psn);
    }
    if (fclose(secret))
        die("%s", argv[3]);
    say("ready");

    unsigned long repaired = 0;
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN}, events = {.fd = context->async_fd, .events = POLLIN};
    while (poll(&input, 1, 0) == 0) {
        struct ibv_wc wc;
        for (int i = 0; i < 1000; i++)
            if (ibv_poll_cq(cq, 1, &wc) != 0)
                die("a completion, though nothing was posted: status %d", wc.status);
        while (poll(&events, 1, 0) == 1) {
            struct ibv_async_event event;
            if (ibv_get_async_event(context, &event))
                die("ibv_get_async_event");
            ibv_ack_async_event(&event);
        }
        for (int i = 0; i < count; i++)
            if (state_of(qps[i]) == IBV_QPS_ERR) {
                reset_and_connect(qps[i], gid_index, &peers[i]);
                repaired++;
            }
    }

    long at = differs(memory, WHOLE, 9);
    if (at >= 0)
        die("byte %ld of the region has CHANGED", at - GUARD);
    still_works(pd, context, gid_index);
    say("unchanged, repaired %lu, works", repaired);
    for (int i = 0; i < count; i++)
        if (ibv_destroy_qp(qps[i]))
            die("ibv_destroy_qp");
    if (ibv_dereg_mr(mr) || ibv_destroy_cq(cq) || ibv_dealloc_pd(pd) || ibv_close_device(context))
        die("something is still in use");
    return 0;
}
