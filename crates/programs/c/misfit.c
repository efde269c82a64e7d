/* Two processes whose sides of a connection do not fit each other, in one way.
 *
 * misfit GID-INDEX CASE PORT            B, the responder
 * misfit GID-INDEX CASE PORT HOST       A, the requester
 *
 * They meet by TCP. A posts one request and prints `A status N`; B prints `B receive N` if one of its receives completed.
 *
 *   fits            all is right
 *   past-end        A writes one byte past the end of B's region
 *   no-right        B's region lacks IBV_ACCESS_REMOTE_WRITE
 *   bad-rkey        A has a wrong rkey
 *   qp-no-right     B's queue pair allows no RDMA WRITE
 *   too-long        a SEND longer than B's receive
 *   mtu-3-5, mtu-5-3, read-3-5, read-5-3      path MTU of A and of B (enum ibv_mtu): SEND or RDMA READ
 *   psn             B's rq_psn is not A's sq_psn
 *   init            B stays in INIT
 *   reset, err, destroyed      B's queue pair is that before A sends
 *   other-qp        B is connected with another queue pair
 *   type            B is of type UC
 *   nobodys-qpn     A's dest_qp_num is of no process
 *   unused-qpn      A's dest_qp_num is of B's process, and no queue pair has it
 *   itself          A's dest_qp_num is its own
 *   exits, killed, stopped     what B does before A sends
 *   late            A sends once it has read a line
 *   nobody          there is no B: A sends to HOST without meeting anybody
 */
#include "tcp.h"

#include <signal.h>

enum { SIZE = 16384, LENGTH = 8000 };

static const char *what;

static int is(const char *name)
{
    return !strcmp(what, name);
}

static enum ibv_mtu mtu_of(int requester)
{
    if (strncmp(what, "mtu-", 4) && strncmp(what, "read-", 5))
        return IBV_MTU_1024;
    return strchr(what, '-')[requester ? 1 : 3] - '0';
}

/* What cannot be done with one queue pair alone ends the program. */
static void join(struct ibv_qp *qp, int gid_index, const struct endpoint *peer, uint32_t sq_psn, uint32_t rq_psn, int requester)
{
    int rc = qp->qp_type == IBV_QPT_RC;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = mtu_of(requester),
        .dest_qp_num = peer->qpn,
        .rq_psn = rq_psn,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .sgid_index = gid_index, .hop_limit = 64}},
    };
    int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if ((errno = ibv_modify_qp(qp, &attr, rc ? mask | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : mask)))
        die("to RTR");
    /* 4.096 us * 2^14 = 67 ms, four times. */
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .sq_psn = sq_psn, .timeout = 14, .retry_cnt = 3, .rnr_retry = 3, .max_rd_atomic = 1};
    mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (rc)
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    if ((errno = ibv_modify_qp(qp, &attr, mask)))
        die("to RTS");
}

static void move_to(struct ibv_qp *qp, enum ibv_qp_state state)
{
    struct ibv_qp_attr attr = {.qp_state = state};
    if ((errno = ibv_modify_qp(qp, &attr, IBV_QP_STATE)))
        die("to state %d", state);
}

static void request(int fd, struct ibv_qp *qp, struct ibv_mr *mr, const struct endpoint *peer)
{
    struct ibv_sge from = {.addr = (uintptr_t)mr->addr, .length = LENGTH, .lkey = mr->lkey};
    struct ibv_send_wr send = {.wr_id = 1,
                               .sg_list = &from,
                               .num_sge = 1,
                               .opcode = IBV_WR_SEND,
                               .send_flags = IBV_SEND_SIGNALED,
                               .wr.rdma = {.remote_addr = peer->address, .rkey = peer->rkey}},
                       *bad;
    if (is("past-end") || is("no-right") || is("bad-rkey") || is("qp-no-right") || is("itself"))
        send.opcode = IBV_WR_RDMA_WRITE;
    if (!strncmp(what, "read-", 5))
        send.opcode = IBV_WR_RDMA_READ;
    if (is("past-end"))
        send.wr.rdma.remote_addr += SIZE - LENGTH + 1;
    if (is("bad-rkey"))
        send.wr.rdma.rkey ^= 0x5500;
    if (is("late")) {
        char line[16];
        say("connected");
        if (!fgets(line, sizeof line, stdin))
            die("no line");
    }
    if ((errno = ibv_post_send(qp, &send, &bad)))
        die("ibv_post_send");
    say("A status %d", next_completion(qp->send_cq).status);
    if (fd >= 0)
        shutdown(fd, SHUT_WR);
}

/* A child tells A once this process stands still. */
static void stop(int fd)
{
    pid_t parent = getpid(), child = fork();
    if (child < 0)
        die("fork");
    if (child)
        return;
    kill(parent, SIGSTOP);
    char path[32], state = 0, byte = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", parent);
    while (state != 'T') {
        FILE *file = fopen(path, "r");
        if (!file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
            die("%s", path);
        fclose(file);
    }
    put(fd, &byte, 1);
    _exit(0);
}

static void serve(int fd, struct ibv_qp *qp)
{
    if (is("reset"))
        move_to(qp, IBV_QPS_RESET);
    if (is("err"))
        move_to(qp, IBV_QPS_ERR);
    if (is("destroyed") && ibv_destroy_qp(qp))
        die("ibv_destroy_qp");
    /* A begins when it has a byte, or when B is no more. */
    char byte = 0;
    if (is("exits"))
        exit(0);
    if (is("killed"))
        raise(SIGKILL);
    if (is("stopped"))
        stop(fd);
    else
        put(fd, &byte, 1);
    /* Until A has its answer, or has given up. */
    while (read(fd, &byte, 1) > 0)
        ;
    struct ibv_wc wc;
    if (!is("destroyed") && ibv_poll_cq(qp->recv_cq, 1, &wc) == 1)
        say("B receive %d", wc.status);
}

int main(int argc, char **argv)
{
    if (argc != 4 && argc != 5)
        die("usage: misfit GID-INDEX CASE PORT [HOST]");
    int gid_index = atoi(argv[1]), port = atoi(argv[3]), requester = argc == 5;
    what = argv[2];
    struct ibv_context *context = open_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    int access = ALL_MR_ACCESS;
    if (is("no-right") && !requester)
        access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
    struct ibv_mr *mr = pd ? ibv_reg_mr(pd, calloc(1, SIZE), SIZE, access) : NULL;
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = is("type") && !requester ? IBV_QPT_UC : IBV_QPT_RC,
    };
    struct ibv_qp *qp = mr && cq ? ibv_create_qp(pd, &init) : NULL;
    if (!qp)
        die("set up");
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .port_num = 1,
                               .qp_access_flags = is("type") || is("qp-no-right") ? 0 : ALL_QP_ACCESS};
    if ((errno = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)))
        die("to INIT");
    struct endpoint own = {.qpn = qp->qp_num, .psn = 0x3e7, .address = (uintptr_t)mr->addr, .rkey = mr->rkey}, peer = {0};
    if (ibv_query_gid(context, 1, gid_index, &own.gid))
        die("ibv_query_gid");
    if (is("nobody")) {
        peer.qpn = 0x654321;
        peer.gid.raw[10] = peer.gid.raw[11] = 0xff;
        if (!requester || inet_pton(AF_INET, argv[4], peer.gid.raw + 12) != 1)
            die("nobody needs a HOST");
        join(qp, gid_index, &peer, own.psn, 0, 1);
        request(-1, qp, mr, &peer);
        return 0;
    }
    int fd = requester ? connect_to(argv[4], port) : listen_and_accept(port);
    put(fd, &own, sizeof own);
    if (!get(fd, &peer, sizeof peer))
        die("the peer is gone");
    if (requester) {
        char byte;
        peer.qpn = is("nobodys-qpn") ? peer.qpn ^ 0x800000 : is("unused-qpn") ? peer.qpn + 100 : is("itself") ? own.qpn : peer.qpn;
        if (is("itself"))
            peer.gid = own.gid;
        join(qp, gid_index, &peer, own.psn, peer.psn, 1);
        if (!get(fd, &byte, 1) && !is("exits") && !is("killed"))
            die("the peer is gone");
        request(fd, qp, mr, &peer);
        return 0;
    }
    struct ibv_sge into = {.addr = (uintptr_t)mr->addr, .length = is("too-long") ? 64 : SIZE, .lkey = mr->lkey};
    struct ibv_recv_wr receive = {.wr_id = 7, .sg_list = &into, .num_sge = 1}, *bad;
    if ((errno = ibv_post_recv(qp, &receive, &bad)))
        die("ibv_post_recv");
    if (is("other-qp"))
        peer.qpn += 1;
    if (!is("init"))
        join(qp, gid_index, &peer, own.psn, is("psn") ? 0x64 : peer.psn, 0);
    serve(fd, qp);
    return 0;
}
