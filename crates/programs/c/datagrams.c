/* Two processes of a service without answers: A sends one message, and B does not take it.
 *
 * datagrams GID-INDEX CASE PORT            B, which is to receive
 * datagrams GID-INDEX CASE PORT HOST       A, which sends
 *
 * They meet by TCP. A prints `A status N`, B prints `B got N`: how many messages. Both end with 0.
 *
 *   ud-fits         UD, and all is right
 *   ud-qkey         UD: A has another Q_Key
 *   ud-no-receive   UD: B has no receive
 *   ud-qpn          UD: A's remote_qpn is of B's process, and no queue pair has it
 *   ud-init         UD: B stays in INIT
 *   ud-type         UD: B is of type RC
 *   uc-fits         UC, and all is right
 *   uc-no-receive   UC: B has no receive
 *   uc-rkey         UC: an RDMA WRITE with a wrong rkey
 *   uc-qpn          UC: A's dest_qp_num is of B's process, and no queue pair has it
 *   uc-init         UC: B stays in INIT
 *   uc-type         UC: B is of type RC
 */
#include "tcp.h"

enum { SIZE = 4096, LENGTH = 1000, QKEY = 0x11111111 };

static const char *what;

/* The case, after its service. */
static int is(const char *name)
{
    return !strcmp(what + 3, name);
}

static int is_ud(void)
{
    return !strncmp(what, "ud", 2);
}

static void change(struct ibv_qp *qp, struct ibv_qp_attr attr, int mask)
{
    if ((errno = ibv_modify_qp(qp, &attr, mask | IBV_QP_STATE)))
        die("to state %d", attr.qp_state);
}

static void join(struct ibv_qp *qp, struct ibv_ah_attr path, uint32_t peer)
{
    int ud = qp->qp_type == IBV_QPT_UD, rc = qp->qp_type == IBV_QPT_RC;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .min_rnr_timer = 12, .ah_attr = path};
    int mask = ud ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    change(qp, attr, rc ? mask | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : mask);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 3};
    mask = rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0;
    change(qp, attr, mask | IBV_QP_SQ_PSN);
}

/* What came for nobody leaves a word in the report of `rnic run`: B polls until it is there, which takes packets. */
static int received(struct ibv_cq *cq)
{
    const char *path = getenv("RNIC_REPORT");
    struct ibv_wc wc;
    for (double end = now() + DEADLINE_SECONDS; now() < end;) {
        static char line[65536];
        if (ibv_poll_cq(cq, 1, &wc) == 1)
            return 1;
        FILE *report = path ? fopen(path, "r") : NULL;
        int told = 0;
        while (report && !told && fgets(line, sizeof line, report))
            told = strstr(line, "\"record\":\"dropped\"") || strstr(line, "\"record\":\"unheard\"");
        if (report)
            fclose(report);
        if (told)
            return 0;
    }
    die("neither a message nor a word of it");
}

int main(int argc, char **argv)
{
    if (argc != 4 && argc != 5)
        die("usage: datagrams GID-INDEX CASE PORT [HOST]");
    int gid_index = atoi(argv[1]), port = atoi(argv[3]), sends = argc == 5;
    what = argv[2];
    struct ibv_context *context = open_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    struct ibv_mr *mr = pd ? ibv_reg_mr(pd, calloc(1, SIZE), SIZE, ALL_MR_ACCESS) : NULL;
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = is("type") && !sends ? IBV_QPT_RC : is_ud() ? IBV_QPT_UD : IBV_QPT_UC,
    };
    struct ibv_qp *qp = mr && cq ? ibv_create_qp(pd, &init) : NULL;
    if (!qp)
        die("set up");
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    change(qp, attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | (qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));

    struct endpoint own = {.qpn = qp->qp_num, .address = (uintptr_t)mr->addr, .rkey = mr->rkey}, peer;
    if (ibv_query_gid(context, 1, gid_index, &own.gid))
        die("ibv_query_gid");
    int fd = sends ? connect_to(argv[4], port) : listen_and_accept(port);
    put(fd, &own, sizeof own);
    if (!get(fd, &peer, sizeof peer))
        die("the peer is gone");
    struct ibv_ah_attr path = {
        .is_global = 1, .port_num = 1, .grh = {.dgid = peer.gid, .sgid_index = gid_index, .hop_limit = 64}};
    char byte = 0;
    if (!sends) {
        struct ibv_sge into = {.addr = (uintptr_t)mr->addr, .length = SIZE, .lkey = mr->lkey};
        struct ibv_recv_wr receive = {.wr_id = 7, .sg_list = &into, .num_sge = 1}, *bad;
        if (!is("no-receive") && (errno = ibv_post_recv(qp, &receive, &bad)))
            die("ibv_post_recv");
        if (!is("init"))
            join(qp, path, peer.qpn);
        put(fd, &byte, 1);
        say("B got %d", received(cq));
        /* A ends only now, and knows what became of its message. */
        put(fd, &byte, 1);
        return 0;
    }
    uint32_t qpn = is("qpn") ? peer.qpn + 100 : peer.qpn;
    join(qp, path, qpn);
    if (!get(fd, &byte, 1))
        die("the peer is gone");
    struct ibv_sge from = {.addr = (uintptr_t)mr->addr, .length = LENGTH, .lkey = mr->lkey};
    struct ibv_send_wr send = {
        .wr_id = 1, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
    if (is("rkey")) {
        send.opcode = IBV_WR_RDMA_WRITE;
        send.wr.rdma.remote_addr = peer.address;
        send.wr.rdma.rkey = peer.rkey ^ 0x5500;
    }
    if (is_ud()) {
        send.wr.ud.ah = ibv_create_ah(pd, &path);
        send.wr.ud.remote_qpn = qpn;
        send.wr.ud.remote_qkey = is("qkey") ? 0x22222222 : QKEY;
    }
    if ((errno = ibv_post_send(qp, &send, &bad)))
        die("ibv_post_send");
    say("A status %d", next_completion(cq).status);
    if (!get(fd, &byte, 1))
        die("the peer is gone");
    return 0;
}
