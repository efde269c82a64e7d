/* What works on the software NIC and fails on hardware, one habit per case; `rnic run --lint` names it.
 *
 * lint GID-INDEX GID-INDEX CASE
 *
 * Two queue pairs of this process, with the GIDs named, are connected and used. The case `clean` does all as it should be.
 */
#include "rc.h"

#include <sys/resource.h>
#include <unistd.h>

/* How the queue pairs are made and used; every case differs from `clean` in one line. */
struct plan {
    const char *name;
    int send_depth, receive_depth, cqe, inline_data;
    int rnr_retry, max_rd_atomic, max_dest_rd_atomic, hop_limit;
    int sends, signal_every;
    size_t region, memlock;
    int receive_before_connect;
    enum ibv_mtu other_mtu; /* of the second one */
    double receive_late; /* seconds after the sends */
    int change_buffer;
};

#define CLEAN \
    .send_depth = 16, .receive_depth = 16, .cqe = 64, .inline_data = 64, .rnr_retry = 7, .max_rd_atomic = 4, \
    .max_dest_rd_atomic = 4, .hop_limit = 64, .sends = 16, .signal_every = 8, .region = 65536, .receive_before_connect = 1

#pragma GCC diagnostic ignored "-Woverride-init"
static const struct plan plans[] = {
    {.name = "clean", CLEAN},
    {.name = "unsignaled", CLEAN, .signal_every = 100},
    {.name = "inline", CLEAN, .inline_data = 512},
    // No more completions than it has room for, however late it is polled.
    {.name = "cq", CLEAN, .cqe = 15, .sends = 8},
    {.name = "memlock", CLEAN, .memlock = 64 * 1024, .region = 1024 * 1024},
    {.name = "reads", CLEAN, .max_rd_atomic = 8, .max_dest_rd_atomic = 2},
    {.name = "hop-limit", CLEAN, .hop_limit = 1},
    {.name = "path-mtu", CLEAN, .other_mtu = IBV_MTU_512},
    {.name = "late-receive", CLEAN, .rnr_retry = 0, .receive_before_connect = 0},
    {.name = "never-ready", CLEAN, .sends = 1, .signal_every = 1, .receive_before_connect = 0, .receive_late = 1.3},
    {.name = "buffer", CLEAN, .sends = 1, .signal_every = 1, .receive_before_connect = 0, .receive_late = 0.01,
     .change_buffer = 1},
};

static struct ibv_qp *create(struct ibv_pd *pd, struct ibv_cq *cq, const struct plan *plan)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = plan->send_depth,
                .max_recv_wr = plan->receive_depth,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = plan->inline_data},
        .qp_type = IBV_QPT_RC,
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    if (!qp)
        die("ibv_create_qp");
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL_QP_ACCESS};
    if ((errno = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)))
        die("ibv_modify_qp to INIT");
    return qp;
}

static void join(struct ibv_qp *qp, int gid_index, const struct ibv_qp *peer, const union ibv_gid *peer_gid,
                 enum ibv_mtu mtu, const struct plan *plan)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = mtu,
        .dest_qp_num = peer->qp_num,
        .max_dest_rd_atomic = plan->max_dest_rd_atomic,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = *peer_gid, .sgid_index = gid_index, .hop_limit = plan->hop_limit}},
    };
    if ((errno = ibv_modify_qp(qp, &attr,
                               IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)))
        die("ibv_modify_qp to RTR");
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                                .timeout = 18,
                                .retry_cnt = 7,
                                .rnr_retry = plan->rnr_retry,
                                .max_rd_atomic = plan->max_rd_atomic};
    if ((errno = ibv_modify_qp(qp, &attr,
                               IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                   IBV_QP_MAX_QP_RD_ATOMIC)))
        die("ibv_modify_qp to RTS");
}

static void receive(struct ibv_qp *qp, const struct plan *plan, struct ibv_mr *mr)
{
    for (int i = 0; i < plan->sends; i++) {
        struct ibv_sge sge = {.addr = (uintptr_t)mr->addr + 4096, .length = 64, .lkey = mr->lkey};
        struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;
        if ((errno = ibv_post_recv(qp, &wr, &bad)))
            die("ibv_post_recv");
    }
}

int main(int argc, char **argv)
{
    if (argc != 4)
        die("usage: lint GID-INDEX GID-INDEX CASE");
    const struct plan *plan = NULL;
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        if (!strcmp(plans[i].name, argv[3]))
            plan = &plans[i];
    if (!plan)
        die("case %s?", argv[3]);
    if (plan->memlock) {
        struct rlimit limit = {plan->memlock, plan->memlock};
        if (setrlimit(RLIMIT_MEMLOCK, &limit))
            die("setrlimit");
    }

    struct ibv_context *context = open_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, plan->cqe, NULL, NULL, 0);
    uint8_t *memory = aligned_alloc(4096, plan->region);
    if (!pd || !cq || !memory)
        die("set up");
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, plan->region, IBV_ACCESS_LOCAL_WRITE);
    if (!mr)
        die("ibv_reg_mr");
    struct ibv_qp *qps[2];
    union ibv_gid gids[2];
    int index[2] = {atoi(argv[1]), atoi(argv[2])};
    for (int i = 0; i < 2; i++) {
        qps[i] = create(pd, cq, plan);
        if (ibv_query_gid(context, 1, index[i], &gids[i]))
            die("ibv_query_gid");
    }
    if (plan->receive_before_connect)
        receive(qps[1], plan, mr);
    for (int i = 0; i < 2; i++)
        join(qps[i], index[i], qps[!i], &gids[!i], i && plan->other_mtu ? plan->other_mtu : IBV_MTU_1024, plan);
    if (!plan->receive_before_connect && !plan->receive_late)
        receive(qps[1], plan, mr);

    int signaled = 0;
    for (int i = 0; i < plan->sends; i++) {
        struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = 64, .lkey = mr->lkey};
        struct ibv_send_wr wr = {.wr_id = i, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1}, *bad;
        if ((i + 1) % plan->signal_every == 0)
            wr.send_flags = IBV_SEND_SIGNALED, signaled++;
        if ((errno = ibv_post_send(qps[0], &wr, &bad)))
            die("ibv_post_send");
    }
    if (plan->change_buffer)
        memory[1]++;
    if (plan->receive_late) {
        struct ibv_wc wc;
        for (double end = now() + plan->receive_late; now() < end;)
            if (ibv_poll_cq(cq, 1, &wc))
                die("a completion without a receive");
        // Whoever was kept from its processor until now has what came meanwhile answered first.
        for (int turn = 0; turn < 50; turn++, usleep(1000))
            if (ibv_poll_cq(cq, 1, &wc))
                die("a completion without a receive");
        receive(qps[1], plan, mr);
    }
    for (int left = plan->sends + signaled; left; left--) {
        struct ibv_wc wc = next_completion(cq);
        if (wc.status != IBV_WC_SUCCESS)
            die("status %d", wc.status);
    }

    for (int i = 0; i < 2; i++)
        if (ibv_destroy_qp(qps[i]))
            die("ibv_destroy_qp");
    if (ibv_dereg_mr(mr) || ibv_destroy_cq(cq) || ibv_dealloc_pd(pd) || ibv_close_device(context))
        die("tear down");
    say("done");
    return 0;
}
