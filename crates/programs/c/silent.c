/* Two queue pairs of one process whose settings do not fit each other, so that messages are lost or never taken.
 *
 * silent GID-INDEX CASE
 *
 *   fits            RC, and all is right
 *   psn-ahead       RC: B's rq_psn lies ahead of A's sq_psn
 *   psn-behind      RC: B's rq_psn lies behind A's sq_psn
 *   uc-psn          UC: B's rq_psn lies shortly ahead of A's sq_psn
 *   uc-no-receive   UC: B has no receive
 *   uc-too-long     UC: the message is longer than B's receive
 *   uc-access       UC: an RDMA WRITE with a wrong rkey
 *   uc-mtu          UC: B's path MTU is smaller
 *   ud-qkey         UD: two datagrams with another Q_Key
 *   ud-no-receive   UD: B has no receive
 *   ud-mtu          UD: a datagram above the MTU
 *   ud-late         UD: B posts its receive after RTS
 *
 * A sends; prints the status of its last completion, and how many messages B got. Ends with 3 if a message was not delivered.
 */
#include "rc.h"

enum { SIZE = 65536, QKEY = 0x11111111 };

static int is(const char *a, const char *b)
{
    return !strcmp(a, b);
}

static int starts(const char *text, const char *prefix)
{
    return !strncmp(text, prefix, strlen(prefix));
}

int main(int argc, char **argv)
{
    if (argc != 3)
        die("usage: silent GID-INDEX CASE");
    int gid_index = atoi(argv[1]);
    const char *what = argv[2];
    enum ibv_qp_type type = starts(what, "ud") ? IBV_QPT_UD : starts(what, "uc") ? IBV_QPT_UC : IBV_QPT_RC;

    struct ibv_context *context = open_device();
    union ibv_gid gid;
    if (ibv_query_gid(context, 1, gid_index, &gid))
        die("ibv_query_gid");
    struct ibv_pd *pd = ibv_alloc_pd(context);
    uint8_t *memory = calloc(1, SIZE);
    struct ibv_mr *mr = pd ? ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) : NULL;
    if (!mr)
        die("ibv_reg_mr");

    struct ibv_cq *cq[2];
    struct ibv_qp *qp[2];
    for (int i = 0; i < 2; i++) {
        cq[i] = ibv_create_cq(context, 16, NULL, NULL, 0);
        if (!cq[i])
            die("ibv_create_cq");
        struct ibv_qp_init_attr init = {
            .send_cq = cq[i],
            .recv_cq = cq[i],
            .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
            .qp_type = type,
        };
        if (!(qp[i] = ibv_create_qp(pd, &init)))
            die("ibv_create_qp");
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE, .qkey = QKEY};
        int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
        if ((errno = ibv_modify_qp(qp[i], &attr, mask)))
            die("to INIT");
    }
    uint32_t sq_psn = 0x3e7, rq_psn = is(what, "psn-ahead") ? 0x1000 : is(what, "psn-behind") ? 0x64 : is(what, "uc-psn") ? 0x400 : sq_psn;
    uint32_t room = is(what, "uc-too-long") ? 64 : SIZE / 2;
    struct ibv_sge into = {.addr = (uintptr_t)memory + SIZE / 2, .length = room, .lkey = mr->lkey};
    struct ibv_recv_wr receive = {.wr_id = 7, .sg_list = &into, .num_sge = 1}, *bad_receive;
    int has_receive = !strstr(what, "no-receive"), late = is(what, "ud-late");
    if (has_receive && !late && (errno = ibv_post_recv(qp[1], &receive, &bad_receive)))
        die("ibv_post_recv");
    for (int i = 0; i < 2; i++) {
        struct ibv_qp_attr attr = {
            .qp_state = IBV_QPS_RTR,
            .path_mtu = i && is(what, "uc-mtu") ? IBV_MTU_256 : IBV_MTU_1024,
            .dest_qp_num = qp[!i]->qp_num,
            .rq_psn = i ? rq_psn : 0,
            .max_dest_rd_atomic = 1,
            .min_rnr_timer = 1,
            .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .sgid_index = gid_index, .hop_limit = 64}},
        };
        int mask = IBV_QP_STATE;
        if (type != IBV_QPT_UD)
            mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
        if (type == IBV_QPT_RC)
            mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        if ((errno = ibv_modify_qp(qp[i], &attr, mask)))
            die("to RTR");
        struct ibv_qp_attr send = {
            .qp_state = IBV_QPS_RTS, .sq_psn = i ? 0 : sq_psn, .timeout = 12, .retry_cnt = 3, .rnr_retry = 3, .max_rd_atomic = 1};
        mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
        if (type == IBV_QPT_RC)
            mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
        if ((errno = ibv_modify_qp(qp[i], &send, mask)))
            die("to RTS");
    }
    if (late && (errno = ibv_post_recv(qp[1], &receive, &bad_receive)))
        die("ibv_post_recv");

    struct ibv_ah_attr path = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .sgid_index = gid_index, .hop_limit = 64}};
    struct ibv_ah *ah = type == IBV_QPT_UD ? ibv_create_ah(pd, &path) : NULL;
    struct ibv_port_attr port;
    if (ibv_query_port(context, 1, &port))
        die("ibv_query_port");
    uint32_t length = is(what, "ud-mtu") ? (128u << port.active_mtu) + 1 : type == IBV_QPT_UD ? 100 : 3000;
    struct ibv_sge from = {.addr = (uintptr_t)memory, .length = length, .lkey = mr->lkey};
    int posted = is(what, "ud-qkey") ? 2 : 1;
    struct ibv_wc wc = {0};
    for (int i = 0; i < posted; i++) {
        struct ibv_send_wr send = {.wr_id = 1, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
        if (is(what, "uc-access")) {
            send.opcode = IBV_WR_RDMA_WRITE;
            send.wr.rdma.remote_addr = into.addr;
            send.wr.rdma.rkey = mr->rkey + 1;
        }
        if (type == IBV_QPT_UD) {
            send.wr.ud.ah = ah;
            send.wr.ud.remote_qpn = qp[1]->qp_num;
            send.wr.ud.remote_qkey = is(what, "ud-qkey") ? 0x22222222 : QKEY;
        }
        if ((errno = ibv_post_send(qp[0], &send, &bad)))
            die("ibv_post_send");
        for (double end = now() + 30; ibv_poll_cq(cq[0], 1, &wc) == 0;)
            if (now() > end)
                die("no completion");
    }
    say("status %d", wc.status);
    int got = 0;
    struct ibv_wc came;
    for (double end = now() + (is(what, "fits") || late ? 10 : 0.3); !got && now() < end;)
        got += ibv_poll_cq(cq[1], 1, &came);
    say("got %d", got);
    for (int i = 0; i < 2; i++)
        if (ibv_destroy_qp(qp[i]))
            die("ibv_destroy_qp");
    return got ? 0 : 3;
}
