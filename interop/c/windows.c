/* Memory windows of the server, used by a client of another make: type 1, type 2, closed by either side.
 *
 * Prints "closed by the peer, wc_flags N", and "verified" at the end. */
#include "peer.h"

enum { LENGTH = 8192, FIRST = 1000, WINDOW = 5000, BINDABLE = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND };

static struct ibv_mw *alloc(struct end *end, enum ibv_mw_type type)
{
    struct ibv_mw *mw = ibv_alloc_mw(end->pd, type);
    if (!mw)
        die("ibv_alloc_mw");
    return mw;
}

/* The window over FIRST..+WINDOW, for writing; its key, for type 2 another one each time: Linux refuses the last one. */
static uint32_t open_window(struct end *end, struct ibv_mw *mw)
{
    uint32_t key = ibv_inc_rkey(mw->rkey);
    struct ibv_mw_bind_info info = {end->mr, (uintptr_t)end->memory + FIRST, WINDOW, IBV_ACCESS_REMOTE_WRITE};
    if (mw->type == IBV_MW_TYPE_1) {
        struct ibv_mw_bind bind = {.wr_id = 1, .send_flags = IBV_SEND_SIGNALED, .bind_info = info};
        if ((errno = ibv_bind_mw(end->qp, mw, &bind)))
            die("ibv_bind_mw");
    } else {
        post(end, (struct ibv_send_wr){.opcode = IBV_WR_BIND_MW, .bind_mw = {mw, key, info}});
    }
    struct ibv_wc wc = next_completion(end->cq);
    EXPECT(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_BIND_MW);
    if (mw->type == IBV_MW_TYPE_2)
        mw->rkey = key;
    return mw->rkey;
}

static void check_written(struct end *end)
{
    EXPECT(end->memory[FIRST - 1] == 0 && end->memory[FIRST + WINDOW] == 0);
    EXPECT(differs(end->memory + FIRST, WINDOW, 7) < 0);
    memset(end->memory, 0, LENGTH);
}

static void server(struct end *end)
{
    struct ibv_mw *type1 = alloc(end, IBV_MW_TYPE_1), *type2 = alloc(end, IBV_MW_TYPE_2);
    struct ibv_mw *windows[] = {type1, type2, type2};
    for (int i = 0; i < 3; i++) {
        join(end, ALL_QP_ACCESS, 0, 7);
        receive(end, 1, 0, 64);
        uint32_t key = open_window(end, windows[i]);
        put(end->fd, &key, sizeof key);
        meet(end->fd);
        check_written(end);
        if (i == 1) {
            /* The client's SEND closes it. */
            struct ibv_wc wc = next_completion(end->cq);
            EXPECT(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.byte_len == 16);
            EXPECT(wc.invalidated_rkey == key);
            say("closed by the peer, wc_flags %d", wc.wc_flags);
        } else if (i == 2) {
            post(end, (struct ibv_send_wr){.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = key});
            struct ibv_wc wc = next_completion(end->cq);
            EXPECT(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_LOCAL_INV);
        }
        memset(end->memory, 0, LENGTH);
        meet(end->fd);
        /* What the client tries now is refused. */
        meet(end->fd);
        EXPECT(end->memory[FIRST] == 0 && end->memory[FIRST + WINDOW - 1] == 0);
        while (ibv_poll_cq(end->cq, 1, &(struct ibv_wc){0}) > 0)
            ;
    }
    EXPECT(!ibv_destroy_qp(end->qp) && !ibv_dealloc_mw(type1) && !ibv_dealloc_mw(type2) && !ibv_dereg_mr(end->mr));
}

static void client(struct end *end)
{
    for (int i = 0; i < 3; i++) {
        join(end, ALL_QP_ACCESS, 0, 7);
        uint32_t key;
        EXPECT(get(end->fd, &key, sizeof key));
        uint64_t window = end->peer.address + FIRST;
        fill(end->memory, WINDOW, 7);
        EXPECT(transfer(end, IBV_WR_RDMA_WRITE, window, key, WINDOW) == IBV_WC_SUCCESS);
        meet(end->fd);
        if (i == 1) {
            struct ibv_sge sge = {.addr = (uintptr_t)end->memory, .length = 16, .lkey = end->mr->lkey};
            post(end, (struct ibv_send_wr){
                          .opcode = IBV_WR_SEND_WITH_INV, .sg_list = &sge, .num_sge = 1, .invalidate_rkey = key});
            EXPECT(next_completion(end->cq).status == IBV_WC_SUCCESS);
        }
        meet(end->fd);
        /* The window of type 1 is open still, but not for reading; those of type 2 are closed. */
        enum ibv_wr_opcode opcode = i == 0 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
        EXPECT(transfer(end, opcode, window, key, WINDOW) == IBV_WC_REM_ACCESS_ERR);
        EXPECT(state_of(end->qp) == IBV_QPS_ERR);
        meet(end->fd);
    }
}

int main(int argc, char **argv)
{
    struct end end = open_end(argc, argv, LENGTH, BINDABLE);
    end.client ? client(&end) : server(&end);
    say("verified");
    return 0;
}
