/* Requests that a responder of another make has to refuse, one connection each.
 *
 * The client prints "NAME client STATUS", its completion's; the server "NAME server STATUS", that of its receive, or
 * "none" where it has no part. 0 is success; what a status means says `rnic explain STATUS`. "NAME not posted" is a client
 * whose own device refused.
 */
#include "peer.h"

enum { LENGTH = 8192, SMALL = 64, BIG = 3000 };

enum cause { RIGHT, KEY, BEYOND, MR_RIGHT, QP_RIGHT, MISALIGNED, TOO_LONG, NO_RECEIVE, NOT_A_WINDOW, OTHER_PD, DEREGISTERED, NONE_AGREED, RECEIVE_KEY, DEAF };

static const struct trial {
    const char *name;
    enum ibv_wr_opcode opcode;
    enum cause cause;
} TRIALS[] = {
    {"write", IBV_WR_RDMA_WRITE, RIGHT},
    {"write-key", IBV_WR_RDMA_WRITE, KEY},
    {"write-beyond", IBV_WR_RDMA_WRITE, BEYOND},
    {"write-mr-right", IBV_WR_RDMA_WRITE, MR_RIGHT},
    {"write-qp-right", IBV_WR_RDMA_WRITE, QP_RIGHT},
    {"read-key", IBV_WR_RDMA_READ, KEY},
    {"read-beyond", IBV_WR_RDMA_READ, BEYOND},
    {"read-mr-right", IBV_WR_RDMA_READ, MR_RIGHT},
    {"read-qp-right", IBV_WR_RDMA_READ, QP_RIGHT},
    {"atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, RIGHT},
    {"atomic-key", IBV_WR_ATOMIC_FETCH_AND_ADD, KEY},
    {"atomic-beyond", IBV_WR_ATOMIC_CMP_AND_SWP, BEYOND},
    {"atomic-mr-right", IBV_WR_ATOMIC_CMP_AND_SWP, MR_RIGHT},
    {"atomic-qp-right", IBV_WR_ATOMIC_FETCH_AND_ADD, QP_RIGHT},
    {"atomic-misaligned", IBV_WR_ATOMIC_FETCH_AND_ADD, MISALIGNED},
    {"send", IBV_WR_SEND, RIGHT},
    {"send-too-long", IBV_WR_SEND, TOO_LONG},
    {"send-no-receive", IBV_WR_SEND, NO_RECEIVE},
    {"write-imm-no-receive", IBV_WR_RDMA_WRITE_WITH_IMM, NO_RECEIVE},
    {"send-inv-unknown", IBV_WR_SEND_WITH_INV, NOT_A_WINDOW},
    {"write-other-pd", IBV_WR_RDMA_WRITE, OTHER_PD},
    {"read-deregistered", IBV_WR_RDMA_READ, DEREGISTERED},
    {"read-none-agreed", IBV_WR_RDMA_READ, NONE_AGREED},
    {"send-receive-key", IBV_WR_SEND, RECEIVE_KEY},
    {"write-deaf", IBV_WR_RDMA_WRITE, DEAF},
};

/* Memory of the server that is not the connection's own: without rights, and in another protection domain. */
struct keys {
    struct ibv_mr *readonly, *elsewhere;
};

static int takes_receive(const struct trial *trial)
{
    return trial->cause != NO_RECEIVE && (trial->opcode == IBV_WR_SEND || trial->opcode == IBV_WR_SEND_WITH_INV);
}

/* The key of memory that the server has no more. */
static uint32_t closed_key(struct end *end)
{
    struct ibv_mr *mr = ibv_reg_mr(end->pd, end->memory, LENGTH, ALL_MR_ACCESS);
    if (!mr)
        die("ibv_reg_mr");
    uint32_t rkey = mr->rkey;
    EXPECT(!ibv_dereg_mr(mr));
    return rkey;
}

static uint32_t key_of(struct end *end, const struct keys *keys, const struct trial *trial)
{
    switch (trial->cause) {
    case MR_RIGHT:
        return keys->readonly->rkey;
    case OTHER_PD:
        return keys->elsewhere->rkey;
    case DEREGISTERED:
        return closed_key(end);
    default:
        return end->mr->rkey;
    }
}

static void server(struct end *end, const struct keys *keys, const struct trial *trial)
{
    int access = trial->cause == QP_RIGHT ? 0 : ALL_QP_ACCESS;
    max_dest_rd_atomic = trial->cause == NONE_AGREED ? 0 : 4;
    join(end, access, key_of(end, keys, trial), 2);
    if (takes_receive(trial)) {
        struct ibv_mr *mr = end->mr;
        /* Known here, but in no protection domain of the queue pair's. */
        if (trial->cause == RECEIVE_KEY)
            end->mr = keys->elsewhere;
        receive(end, 1, 0, trial->cause == TOO_LONG ? SMALL : BIG);
        end->mr = mr;
    }
    if (trial->cause == DEAF) {
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
        EXPECT(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE));
    }
    meet(end->fd);
    if (takes_receive(trial))
        say("%s server %d", trial->name, next_completion(end->cq).status);
    else
        say("%s server none", trial->name);
    meet(end->fd);
}

static void client(struct end *end, const struct trial *trial)
{
    join(end, ALL_QP_ACCESS, end->mr->rkey, 2);
    int atomic = trial->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || trial->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
    struct ibv_sge sge = {.addr = (uintptr_t)end->memory, .length = atomic ? 8 : BIG, .lkey = end->mr->lkey};
    struct ibv_send_wr wr = {.opcode = trial->opcode, .sg_list = &sge, .num_sge = 1};
    uint64_t remote = end->peer.address;
    uint32_t rkey = trial->cause == KEY ? end->peer.rkey ^ 0x5a5a5a00 : end->peer.rkey;
    if (trial->cause == BEYOND)
        remote += atomic ? LENGTH : LENGTH - BIG + 1;
    if (trial->cause == MISALIGNED)
        remote += 4;
    if (trial->opcode == IBV_WR_SEND_WITH_INV)
        wr.invalidate_rkey = 0x12345678;
    if (atomic) {
        wr.wr.atomic.remote_addr = remote;
        wr.wr.atomic.rkey = rkey;
        wr.wr.atomic.compare_add = 1;
    } else {
        wr.wr.rdma.remote_addr = remote;
        wr.wr.rdma.rkey = rkey;
    }
    meet(end->fd);
    wr.send_flags = IBV_SEND_SIGNALED;
    struct ibv_send_wr *bad;
    if (ibv_post_send(end->qp, &wr, &bad))
        say("%s not posted", trial->name);
    else
        say("%s client %d", trial->name, next_completion(end->cq).status);
    meet(end->fd);
}

int main(int argc, char **argv)
{
    retry_cnt = 6;
    struct end end = open_end(argc, argv, LENGTH, ALL_MR_ACCESS);
    void *other = aligned_alloc(4096, LENGTH);
    struct ibv_pd *pd = ibv_alloc_pd(end.context);
    struct keys keys = {
        .readonly = other ? ibv_reg_mr(end.pd, other, LENGTH, IBV_ACCESS_LOCAL_WRITE) : NULL,
        .elsewhere = pd ? ibv_reg_mr(pd, end.memory, LENGTH, ALL_MR_ACCESS) : NULL,
    };
    if (!keys.readonly || !keys.elsewhere)
        die("ibv_reg_mr");
    for (size_t i = 0; i < sizeof TRIALS / sizeof *TRIALS; i++) {
        if (end.client)
            client(&end, &TRIALS[i]);
        else
            server(&end, &keys, &TRIALS[i]);
        while (ibv_poll_cq(end.cq, 1, &(struct ibv_wc){0}) > 0)
            ;
    }
    return 0;
}
