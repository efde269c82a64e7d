/* Requests that a program gets wrong, and whose cause a status leaves open.
 *
 * causes GID-INDEX CASE
 *
 *   atomic-short            a fetch-and-add into 4 bytes
 *   no-reads                an RDMA READ with max_rd_atomic 0
 *   bind-right              a bind to a region without IBV_ACCESS_MW_BIND
 *   bind-range              a bind that leaves its region
 *   bind-write              a bind that allows writing, to a region without IBV_ACCESS_LOCAL_WRITE
 *   bind-pd                 a bind of a window of another protection domain
 *   invalidate-region       a local invalidate of a region's rkey
 *   send-invalidate-region  a SEND with invalidate of a region's rkey
 *   window-unbound          an RDMA WRITE by way of a window that was never bound
 *   window-closed           the same, after the window was invalidated
 *   window-right            an RDMA READ by way of a window that allows writing alone
 *   grh                     UD: the receive has no room for the GRH
 *   overrun                 a completion queue of one entry, and three completions
 *   shared                  a receive posted to a queue pair that has a shared receive queue
 *   datagrams               the peer of an RC queue pair is of type UD
 *   services                the peer of a UC queue pair is of type RC
 *   unmapped                memory that is registered was unmapped: a WRITE goes there
 *   read-only               it was made read-only: a WRITE goes there
 *   no-access               it was made PROT_NONE: a READ is from there
 *   shortened               it is of a file that became shorter: a READ is from there
 *   receive-unmapped        it is of a posted receive, and was unmapped
 *
 * Prints "status N" for the request of A, or "errno N" for a call that was refused. Ends with 3.
 */
#define _GNU_SOURCE
#include "rc.h"

#include <sys/mman.h>

enum { SIZE = 16384, QKEY = 0x11111111 };

static const char *what;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq[2];
static struct ibv_qp *qp[2];
static union ibv_gid gid;
static int gid_index;

static int is(const char *other)
{
    return !strcmp(what, other);
}

static struct ibv_mr *reg(void *at, int access)
{
    struct ibv_mr *mr = ibv_reg_mr(pd, at, SIZE, access);
    if (!mr)
        die("ibv_reg_mr");
    return mr;
}

static struct ibv_qp *make(int i, enum ibv_qp_type type, struct ibv_srq *srq)
{
    struct ibv_qp_init_attr init = {.send_cq = cq[i], .recv_cq = cq[i], .srq = srq, .cap = {8, 8, 1, 1, 0}, .qp_type = type};
    struct ibv_qp *made = ibv_create_qp(pd, &init);
    if (!made)
        die("ibv_create_qp");
    int rights = type == IBV_QPT_UC ? IBV_ACCESS_REMOTE_WRITE : ALL_QP_ACCESS;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = rights, .qkey = QKEY};
    int last = type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    if ((errno = ibv_modify_qp(made, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last)))
        die("to INIT");
    return made;
}

static void connect_with(struct ibv_qp *own, uint32_t peer)
{
    enum ibv_qp_type type = own->qp_type;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = peer,
        .max_dest_rd_atomic = 4,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .sgid_index = gid_index, .hop_limit = 64}},
    };
    int mask = IBV_QP_STATE;
    if (type != IBV_QPT_UD)
        mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (type == IBV_QPT_RC)
        mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    if ((errno = ibv_modify_qp(own, &attr, mask)))
        die("to RTR");
    struct ibv_qp_attr send = {.qp_state = IBV_QPS_RTS, .timeout = 12, .retry_cnt = 3, .rnr_retry = 3, .max_rd_atomic = !is("no-reads")};
    mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (type == IBV_QPT_RC)
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    if ((errno = ibv_modify_qp(own, &send, mask)))
        die("to RTS");
}

static void post(struct ibv_qp *on, struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad;
    wr->send_flags |= IBV_SEND_SIGNALED;
    if ((errno = ibv_post_send(on, wr, &bad))) {
        say("errno %d", errno);
        exit(3);
    }
}

static void receive(struct ibv_qp *on, struct ibv_mr *mr, uint32_t length)
{
    struct ibv_sge into = {.addr = (uintptr_t)mr->addr, .length = length, .lkey = mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = 7, .sg_list = &into, .num_sge = 1}, *bad;
    if ((errno = ibv_post_recv(on, &wr, &bad))) {
        say("errno %d", errno);
        exit(3);
    }
}

/* What becomes of the memory of a region. */
static void *taken(int file)
{
    void *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, file, 0);
    if (at == MAP_FAILED)
        die("mmap");
    memset(at, 1, SIZE);
    return at;
}

/* What has no completion leaves a word in the report of `rnic run`. Polling takes packets. */
static void wait_for_report(const char *word)
{
    const char *path = getenv("RNIC_REPORT");
    double deadline = now() + DEADLINE_SECONDS;
    for (int found = 0; path && !found;) {
        static char line[65536];
        struct ibv_wc wc;
        ibv_poll_cq(cq[1], 1, &wc);
        FILE *report = fopen(path, "r");
        while (report && !found && fgets(line, sizeof line, report))
            found = strstr(line, word) != NULL;
        if (report)
            fclose(report);
        if (now() > deadline)
            die("no %s in the report", word);
    }
}

int main(int argc, char **argv)
{
    if (argc != 3)
        die("usage: causes GID-INDEX CASE");
    gid_index = atoi(argv[1]);
    what = argv[2];
    context = open_device();
    if (ibv_query_gid(context, 1, gid_index, &gid))
        die("ibv_query_gid");
    pd = ibv_alloc_pd(context);
    for (int i = 0; i < 2; i++)
        if (!(cq[i] = ibv_create_cq(context, is("overrun") && !i ? 1 : 16, NULL, NULL, 0)))
            die("ibv_create_cq");
    struct ibv_srq_init_attr few = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_srq *srq = is("shared") ? ibv_create_srq(pd, &few) : NULL;
    enum ibv_qp_type type = is("grh") ? IBV_QPT_UD : is("services") ? IBV_QPT_UC : IBV_QPT_RC;
    qp[0] = make(0, type, NULL);
    qp[1] = make(1, is("datagrams") ? IBV_QPT_UD : is("services") ? IBV_QPT_RC : type, srq);

    int file = is("shortened") ? memfd_create("shortened", 0) : -1;
    if (file >= 0 && ftruncate(file, SIZE))
        die("ftruncate");
    void *own = taken(-1), *theirs = taken(file);
    struct ibv_mr *mr = reg(own, ALL_MR_ACCESS);
    int rights = ALL_MR_ACCESS | IBV_ACCESS_MW_BIND;
    if (is("bind-right"))
        rights = ALL_MR_ACCESS;
    if (is("bind-write"))
        rights = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND;
    struct ibv_mr *peer = reg(theirs, rights);
    if (is("receive-unmapped") || is("send-invalidate-region"))
        receive(qp[1], peer, 64);
    if (is("grh"))
        receive(qp[1], peer, 100);
    for (int i = 0; i < 2; i++)
        connect_with(qp[i], qp[!i]->qp_num);
    if (is("shared"))
        receive(qp[1], peer, 64);

    uint32_t rkey = peer->rkey;
    if (!strncmp(what, "bind", 4) || !strncmp(what, "window", 6)) {
        struct ibv_mw *mw = ibv_alloc_mw(is("bind-pd") ? ibv_alloc_pd(context) : pd, IBV_MW_TYPE_2);
        if (!mw)
            die("ibv_alloc_mw");
        rkey = is("window-unbound") ? mw->rkey : ibv_inc_rkey(mw->rkey);
        struct ibv_send_wr bind = {.wr_id = 3, .opcode = IBV_WR_BIND_MW};
        bind.bind_mw.mw = mw;
        bind.bind_mw.rkey = rkey;
        bind.bind_mw.bind_info.mr = peer;
        bind.bind_mw.bind_info.addr = (uintptr_t)theirs + (is("bind-range") ? SIZE / 2 + 1 : 0);
        bind.bind_mw.bind_info.length = SIZE / 2;
        bind.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
        if (!is("window-unbound")) {
            post(qp[1], &bind);
            int status = next_completion(cq[1]).status;
            if (status || !strncmp(what, "bind", 4)) {
                say("status %d", status);
                return 3;
            }
        }
        struct ibv_send_wr close = {.wr_id = 4, .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = rkey};
        if (is("window-closed")) {
            post(qp[1], &close);
            if (next_completion(cq[1]).status)
                die("invalidate");
        }
    }
    if (is("unmapped") || is("receive-unmapped"))
        munmap(theirs, SIZE);
    if ((is("read-only") && mprotect(theirs, SIZE, PROT_READ)) || (is("no-access") && mprotect(theirs, SIZE, PROT_NONE)) ||
        (is("shortened") && ftruncate(file, 0)))
        die("memory");

    struct ibv_sge from = {.addr = (uintptr_t)own, .length = is("atomic-short") ? 4 : is("grh") ? 100 : 48, .lkey = mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
    wr.wr.rdma.remote_addr = (uintptr_t)theirs;
    wr.wr.rdma.rkey = rkey;
    if (is("no-reads") || is("window-right") || is("no-access") || is("shortened"))
        wr.opcode = IBV_WR_RDMA_READ;
    if (is("receive-unmapped") || is("services") || is("grh"))
        wr.opcode = IBV_WR_SEND;
    if (is("atomic-short")) {
        wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        wr.wr.atomic.remote_addr = (uintptr_t)theirs;
        wr.wr.atomic.rkey = rkey;
    }
    if (is("send-invalidate-region")) {
        wr.opcode = IBV_WR_SEND_WITH_INV;
        wr.invalidate_rkey = rkey;
    }
    if (is("invalidate-region")) {
        wr.opcode = IBV_WR_LOCAL_INV;
        wr.num_sge = 0;
        wr.invalidate_rkey = mr->rkey;
    }
    if (is("grh")) {
        struct ibv_ah_attr path = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .sgid_index = gid_index, .hop_limit = 64}};
        wr.wr.ud.ah = ibv_create_ah(pd, &path);
        wr.wr.ud.remote_qpn = qp[1]->qp_num;
        wr.wr.ud.remote_qkey = QKEY;
    }
    if (is("overrun")) {
        struct ibv_async_event event;
        for (int i = 0; i < 3; i++)
            post(qp[0], &wr);
        if (ibv_get_async_event(context, &event) || event.event_type != IBV_EVENT_CQ_ERR)
            die("no IBV_EVENT_CQ_ERR");
        ibv_ack_async_event(&event);
    } else
        post(qp[0], &wr);
    say("status %d", next_completion(cq[0]).status);
    if (is("grh"))
        say("receive: status %d", next_completion(cq[1]).status);
    if (is("services"))
        wait_for_report("other service");
    for (int i = 0; i < 2; i++)
        if (ibv_destroy_qp(qp[i]))
            die("ibv_destroy_qp");
    return 3;
}
