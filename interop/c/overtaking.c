/* A READ of a window, and right behind it a SEND that closes the window: without a fence, when the SEND may be executed before
 * the READ has been answered to its end, and with one.
 *
 * The client prints "unfenced READ-STATUS SEND-STATUS" and "fenced ...". */
#include "peer.h"

enum { LENGTH = 16384, SMALL = 16, BINDABLE = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND };

static void server(struct end *end)
{
    struct ibv_mw *mw = ibv_alloc_mw(end->pd, IBV_MW_TYPE_2);
    if (!mw)
        die("ibv_alloc_mw");
    for (int fenced = 0; fenced <= 1; fenced++) {
        join(end, ALL_QP_ACCESS, 0, 7);
        fill(end->memory, LENGTH, fenced);
        receive(end, 1, LENGTH, SMALL);
        struct ibv_mw_bind_info info = {end->mr, (uintptr_t)end->memory, LENGTH, IBV_ACCESS_REMOTE_READ};
        uint32_t key = ibv_inc_rkey(mw->rkey);
        post(end, (struct ibv_send_wr){.opcode = IBV_WR_BIND_MW, .bind_mw = {mw, key, info}});
        EXPECT(next_completion(end->cq).status == IBV_WC_SUCCESS);
        mw->rkey = key;
        put(end->fd, &key, sizeof key);
        struct ibv_wc wc = next_completion(end->cq);
        EXPECT(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.invalidated_rkey == key);
        meet(end->fd);
    }
}

static void client(struct end *end)
{
    for (int fenced = 0; fenced <= 1; fenced++) {
        join(end, ALL_QP_ACCESS, 0, 7);
        uint32_t key;
        EXPECT(get(end->fd, &key, sizeof key));
        /* One alone first: with it rnic finds out what the path can do. */
        EXPECT(transfer(end, IBV_WR_RDMA_READ, end->peer.address, key, SMALL) == IBV_WC_SUCCESS);
        struct ibv_sge whole = {.addr = (uintptr_t)end->memory, .length = LENGTH, .lkey = end->mr->lkey};
        struct ibv_sge little = {.addr = (uintptr_t)end->memory + LENGTH, .length = SMALL, .lkey = end->mr->lkey};
        struct ibv_send_wr send = {.sg_list = &little,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_SEND_WITH_INV,
                                   .send_flags = IBV_SEND_SIGNALED | (fenced ? IBV_SEND_FENCE : 0),
                                   .invalidate_rkey = key};
        struct ibv_send_wr read = {.next = &send,
                                   .sg_list = &whole,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_RDMA_READ,
                                   .wr.rdma = {.remote_addr = end->peer.address, .rkey = key}};
        post(end, read);
        enum ibv_wc_status status = next_completion(end->cq).status;
        say("%s %d %d", fenced ? "fenced" : "unfenced", status, next_completion(end->cq).status);
        EXPECT(status != IBV_WC_SUCCESS || differs(end->memory, LENGTH, fenced) < 0);
        meet(end->fd);
    }
}

int main(int argc, char **argv)
{
    struct end end = open_end(argc, argv, LENGTH + SMALL, BINDABLE);
    end.client ? client(&end) : server(&end);
    return 0;
}
