/* One refused access, seen from both sides.
 *
 * errors GID-INDEX OPERATION CAUSE
 *
 * Two processes, A (requester) and B (responder), each with its own device, PD and memory. A posts OPERATION, made wrong
 * by CAUSE, and behind it a good SEND. Each prints what it saw:
 *
 *   A post N            a post was refused with errno N
 *   A wc STATUS         completions of A's two requests, in order
 *   A state S           ibv_qp_state afterwards
 *   B recv STATUS       completions of B's receives, in order (two are posted)
 *   B state S
 *   B event E           an asynchronous event
 *   A unchanged, B unchanged      every byte of the memory is what it was (the receive buffers aside)
 *   A works, B works              a new pair of queue pairs sends, writes, reads and adds, and every byte was verified
 */
#include "rc.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { GUARD = 8192, LENGTH = 32768, WHOLE = GUARD + LENGTH + GUARD, SMALL = 64, RECEIVES = 2 };

struct side {
    const char *name;
    int peer; /* socket */
    int gid_index;
    const char *operation, *cause;
    struct ibv_context *context;
    struct ibv_pd *pd, *other_pd;
    struct ibv_cq *cq;
    uint8_t *memory; /* WHOLE bytes; the region is the LENGTH bytes behind the first GUARD */
    uint8_t *inbox;  /* RECEIVES * SMALL bytes, then SMALL to send from */
    struct ibv_mr *inbox_mr;
};

static int is(const char *a, const char *b)
{
    return !strcmp(a, b);
}

static struct ibv_mr *reg(struct ibv_pd *pd, void *address, size_t length, int access)
{
    struct ibv_mr *mr = ibv_reg_mr(pd, address, length, access);
    if (!mr)
        die("ibv_reg_mr");
    return mr;
}

static void dereg(struct ibv_mr *mr)
{
    if ((errno = ibv_dereg_mr(mr)))
        die("ibv_dereg_mr");
}

static void set_up(struct side *side)
{
    side->context = open_device();
    side->pd = ibv_alloc_pd(side->context);
    side->other_pd = ibv_alloc_pd(side->context);
    side->cq = ibv_create_cq(side->context, 256, NULL, NULL, 0);
    if (!side->pd || !side->other_pd || !side->cq)
        die("set up");
    if (posix_memalign((void **)&side->memory, 4096, WHOLE) || posix_memalign((void **)&side->inbox, 4096, 4096))
        die("memory");
    fill(side->memory, WHOLE, side->name[0]);
    memset(side->inbox, 0, 4096);
    side->inbox_mr = reg(side->pd, side->inbox, 4096, IBV_ACCESS_LOCAL_WRITE);
}

/* Makes and connects a queue pair; mine goes to the peer, its comes back. */
static struct ibv_qp *join(struct side *side, int access, struct ibv_mr *mr, struct endpoint *peer, int rnr_retry)
{
    struct ibv_qp *qp = make_qp(side->pd, side->cq, access);
    struct endpoint own = {.qpn = qp->qp_num, .psn = (side->name[0] * 0x31415u + qp->qp_num) & 0xffffff};
    if (ibv_query_gid(side->context, 1, side->gid_index, &own.gid))
        die("ibv_query_gid");
    own.address = (uintptr_t)(side->memory + GUARD);
    own.rkey = mr ? mr->rkey : 0;
    put(side->peer, &own, sizeof own);
    if (!get(side->peer, peer, sizeof *peer))
        die("the peer is gone");
    connect_qp(qp, side->gid_index, own.psn, peer, rnr_retry);
    return qp;
}

static void post_receive(struct ibv_qp *qp, int number, void *address, uint32_t length, uint32_t lkey)
{
    struct ibv_sge sge = {.addr = (uintptr_t)address, .length = length, .lkey = lkey};
    struct ibv_recv_wr wr = {.wr_id = number, .sg_list = &sge, .num_sge = 1}, *bad;
    if ((errno = ibv_post_recv(qp, &wr, &bad)))
        die("ibv_post_recv");
}

/* ---- the new queue pair that has to work */

static void post_good(struct side *side, struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint8_t *local, uint32_t length,
                      uint32_t lkey, uint64_t remote, uint32_t rkey)
{
    struct ibv_sge sge = {.addr = (uintptr_t)local, .length = length, .lkey = lkey};
    struct ibv_send_wr wr = {.opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1}, *bad;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = remote;
        wr.wr.atomic.rkey = rkey;
        wr.wr.atomic.compare_add = 5;
    } else {
        wr.wr.rdma.remote_addr = remote;
        wr.wr.rdma.rkey = rkey;
    }
    if ((errno = ibv_post_send(qp, &wr, &bad)))
        die("%s: ibv_post_send on the next queue pair", side->name);
    struct ibv_wc wc = next_completion(side->cq);
    if (wc.status != IBV_WC_SUCCESS)
        die("%s: the next queue pair: opcode %d gives status %d", side->name, opcode, wc.status);
}

static void try_next(struct side *side)
{
    enum { N = 10000 };
    static uint8_t buffer[WHOLE] __attribute__((aligned(64)));
    int active = side->name[0] == 'A';
    /* The region of a new registration, in the same memory: the old refusal must not stick to it. */
    struct ibv_mr *remote_mr = reg(side->pd, side->memory + GUARD, LENGTH, ALL_MR_ACCESS);
    struct ibv_mr *local_mr = reg(side->pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
    struct endpoint peer;
    struct ibv_qp *qp = join(side, ALL_QP_ACCESS, remote_mr, &peer, 7);
    uint64_t was;
    memcpy(&was, side->memory + GUARD, 8);
    if (!active)
        post_receive(qp, 0, buffer, N, local_mr->lkey);
    meet(side->peer);
    if (active) {
        fill(buffer, N, 77);
        post_good(side, qp, IBV_WR_RDMA_WRITE, buffer, N, local_mr->lkey, peer.address + 8, peer.rkey);
        memset(buffer, 0, N);
        post_good(side, qp, IBV_WR_RDMA_READ, buffer, N, local_mr->lkey, peer.address + 8, peer.rkey);
        if (differs(buffer, N, 77) >= 0)
            die("A: read back something else");
        post_good(side, qp, IBV_WR_SEND, buffer, N, local_mr->lkey, 0, 0);
        post_good(side, qp, IBV_WR_ATOMIC_FETCH_AND_ADD, buffer, 8, local_mr->lkey, peer.address, peer.rkey);
        uint64_t before;
        memcpy(&before, buffer, 8);
        put(side->peer, &before, 8);
    } else {
        uint64_t before, after;
        if (!get(side->peer, &before, 8))
            die("B: A is gone");
        memcpy(&after, side->memory + GUARD, 8);
        if (before != was || after != was + 5)
            die("B: fetch and add: was %llx, told %llx, is %llx", (long long)was, (long long)before, (long long)after);
        if (differs(side->memory + GUARD + 8, N, 77) >= 0)
            die("B: the write is not there");
        struct ibv_wc wc = next_completion(side->cq);
        if (wc.status != IBV_WC_SUCCESS || wc.byte_len != N || differs(buffer, N, 77) >= 0)
            die("B: receive: status %d, %u bytes", wc.status, wc.byte_len);
    }
    meet(side->peer);
    if (ibv_destroy_qp(qp))
        die("ibv_destroy_qp");
    dereg(remote_mr);
    dereg(local_mr);
    say("%s works", side->name);
}

/* What a failed completion tells beside its status: whose it is, and the device's own detail. */
static void check_failed(struct side *side, const struct ibv_wc *wc, struct ibv_qp *qp)
{
    if (wc->qp_num != qp->qp_num || (wc->status != IBV_WC_SUCCESS) != (wc->vendor_err != 0))
        die("%s: status %d of queue pair %u, vendor_err %u", side->name, wc->status, wc->qp_num, wc->vendor_err);
}

static void check_memory(struct side *side)
{
    long at = differs(side->memory, WHOLE, side->name[0]);
    if (at >= 0)
        say("%s CHANGED at %ld of the region", side->name, at - GUARD);
    else
        say("%s unchanged", side->name);
}

/* ---- A, the requester */

static void requester(struct side *side)
{
    const char *cause = side->cause;
    int local_access = is(cause, "local-no-right") ? 0 : IBV_ACCESS_LOCAL_WRITE;
    struct ibv_pd *pd = is(cause, "local-other-pd") ? side->other_pd : side->pd;
    struct ibv_mr *mr = reg(pd, side->memory + GUARD, LENGTH, local_access);
    struct endpoint peer;
    int rnr_retry = is(cause, "no-receive") ? 1 : is(cause, "no-receive-no-retry") ? 0 : 7;
    max_rd_atomic = is(cause, "no-rd-atomic") ? 0 : 4;
    struct ibv_qp *qp = join(side, ALL_QP_ACCESS, NULL, &peer, rnr_retry);
    max_rd_atomic = 4;
    meet(side->peer);
    struct ibv_mr *huge = NULL;

    int atomic = is(side->operation, "cas") || is(side->operation, "fadd");
    uint32_t length = atomic ? 8 : SMALL;
    struct ibv_sge sge = {.addr = (uintptr_t)(side->memory + GUARD), .length = length, .lkey = mr->lkey};
    uint64_t remote = peer.address;
    uint32_t rkey = peer.rkey;

    if (is(cause, "bad-rkey"))
        rkey = ~rkey;
    else if (is(cause, "near-rkey"))
        rkey ^= 1;
    else if (is(cause, "far-rkey"))
        rkey ^= 0x80000000u;
    else if (is(cause, "past-end"))
        remote += LENGTH - length + (atomic ? 8 : 1);
    else if (is(cause, "before-start"))
        remote -= atomic ? 8 : 1;
    else if (is(cause, "far-away"))
        remote += 1ull << 40;
    else if (is(cause, "wraps"))
        remote = UINT64_MAX - 7; /* aligned, and 64 bytes from there wrap around */
    else if (is(cause, "unaligned"))
        remote += 4;
    else if (is(cause, "long-past-end"))
        sge.length = LENGTH, remote += 1;
    else if (is(cause, "too-long"))
        sge.length = 2 * SMALL; /* than B's receive */
    else if (is(cause, "far-too-long"))
        sge.length = LENGTH; /* fails in a later packet */
    else if (is(cause, "empty-bad-rkey"))
        sge.length = 0, rkey = ~rkey, remote = 0;
    else if (is(cause, "local-bad-lkey"))
        sge.lkey = ~sge.lkey;
    else if (is(cause, "local-near-lkey"))
        sge.lkey ^= 1;
    else if (is(cause, "local-past-end"))
        sge.addr += LENGTH - length + 1;
    else if (is(cause, "local-before-start"))
        sge.addr -= 1;
    else if (is(cause, "local-dereg"))
        dereg(mr), mr = NULL;
    else if (is(cause, "short"))
        sge.length = 4;
    else if (is(cause, "longer-than-any")) {
        /* One byte more than 2 GiB, all of them readable: the kernel's page of zeros. */
        size_t length = (1u << 31) + 1ul;
        void *zeros = mmap(NULL, length, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (zeros == MAP_FAILED)
            die("mmap");
        huge = reg(side->pd, zeros, length, 0);
        sge = (struct ibv_sge){.addr = (uintptr_t)zeros, .length = length, .lkey = huge->lkey};
    }

    struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED}, *bad;
    if (is(side->operation, "write") || is(side->operation, "write-imm")) {
        wr.opcode = is(side->operation, "write") ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM;
        wr.wr.rdma.remote_addr = remote;
        wr.wr.rdma.rkey = rkey;
    } else if (is(side->operation, "read")) {
        wr.opcode = IBV_WR_RDMA_READ;
        wr.wr.rdma.remote_addr = remote;
        wr.wr.rdma.rkey = rkey;
    } else if (atomic) {
        wr.opcode = is(side->operation, "cas") ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD;
        wr.wr.atomic.remote_addr = remote;
        wr.wr.atomic.rkey = rkey;
        /* The compare succeeds if it is ever executed. */
        for (int i = 0; i < 8; i++)
            wr.wr.atomic.compare_add |= (uint64_t)pattern(GUARD + i, 'B') << (8 * i);
        wr.wr.atomic.swap = 0x0123456789abcdef;
    } else if (is(side->operation, "send")) {
        wr.opcode = IBV_WR_SEND;
    } else {
        die("operation %s?", side->operation);
    }
    struct ibv_sge good_sge = {
        .addr = (uintptr_t)(side->inbox + RECEIVES * SMALL), .length = SMALL, .lkey = side->inbox_mr->lkey};
    struct ibv_send_wr good = {
        .wr_id = 2, .opcode = IBV_WR_SEND, .sg_list = &good_sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED};
    wr.next = &good;
    if ((errno = ibv_post_send(qp, &wr, &bad)))
        say("A post %d", errno);
    else
        for (int i = 1; i <= 2; i++) {
            struct ibv_wc wc = next_completion(side->cq);
            if (wc.wr_id != (uint64_t)i)
                die("A: completion of request %d instead of %d", (int)wc.wr_id, i);
            check_failed(side, &wc, qp);
            say("A wc %d", wc.status);
        }
    say("A state %d", state_of(qp));
    check_memory(side);
    meet(side->peer); /* A has seen everything: B may look */
    meet(side->peer); /* B has seen everything: the queue pairs may go */
    if (ibv_destroy_qp(qp))
        die("ibv_destroy_qp");
    if (mr)
        dereg(mr);
    if (huge)
        dereg(huge);
}

/* ---- B, the responder */

static void responder(struct side *side)
{
    const char *cause = side->cause;
    uint8_t *region = side->memory + GUARD;
    int access = ALL_MR_ACCESS, qp_access = ALL_QP_ACCESS;
    int right = is(side->operation, "read")                                              ? IBV_ACCESS_REMOTE_READ
                : is(side->operation, "write") || is(side->operation, "write-imm") ? IBV_ACCESS_REMOTE_WRITE
                                                                                         : IBV_ACCESS_REMOTE_ATOMIC;
    if (is(cause, "no-right"))
        access &= ~right;
    if (is(cause, "qp-no-right"))
        qp_access &= ~right;
    struct ibv_pd *pd = is(cause, "other-pd") ? side->other_pd : side->pd;
    struct ibv_mr *mr = reg(pd, region, LENGTH, access);
    struct endpoint peer;
    max_dest_rd_atomic = is(cause, "peer-no-rd-atomic") ? 0 : 4;
    struct ibv_qp *qp = join(side, qp_access, mr, &peer, 7);
    max_dest_rd_atomic = 4;
    if (is(cause, "dereg")) {
        dereg(mr);
        mr = NULL;
    } else if (is(cause, "stale")) {
        /* The same bytes, registered again: the old key has to stay dead. */
        dereg(mr);
        mr = reg(pd, region, LENGTH, access);
    }
    struct ibv_mr *read_only = NULL, *foreign = NULL;
    int receives = is(cause, "no-receive") || is(cause, "no-receive-no-retry") ? 0 : RECEIVES;
    for (int i = 0; i < receives; i++) {
        uint8_t *address = side->inbox + i * SMALL;
        uint32_t lkey = side->inbox_mr->lkey, length = SMALL;
        if (i == 0 && is(cause, "receive-bad-lkey")) {
            lkey = ~lkey;
        } else if (i == 0 && is(cause, "receive-past-end")) {
            address = region + LENGTH - SMALL + 1;
            lkey = mr->lkey;
        } else if (i == 0 && is(cause, "receive-no-right")) {
            read_only = reg(side->pd, region, LENGTH, 0);
            address = region;
            lkey = read_only->lkey;
        } else if (i == 0 && is(cause, "receive-other-pd")) {
            foreign = reg(side->other_pd, region, LENGTH, IBV_ACCESS_LOCAL_WRITE);
            address = region;
            lkey = foreign->lkey;
        }
        post_receive(qp, i, address, length, lkey);
    }
    if (is(cause, "peer-reset") || is(cause, "peer-error")) {
        struct ibv_qp_attr attr = {.qp_state = is(cause, "peer-reset") ? IBV_QPS_RESET : IBV_QPS_ERR};
        if ((errno = ibv_modify_qp(qp, &attr, IBV_QP_STATE)))
            die("ibv_modify_qp");
    }
    meet(side->peer);

    meet(side->peer); /* A has its completions */
    enum ibv_qp_state state = state_of(qp);
    say("B state %d", state);
    /* In the error state every receive is flushed; otherwise those that completed have. */
    for (int i = 0; i < receives; i++) {
        struct ibv_wc wc;
        if (state == IBV_QPS_ERR)
            wc = next_completion(side->cq);
        else if (ibv_poll_cq(side->cq, 1, &wc) != 1)
            break;
        if (wc.wr_id != (uint64_t)i)
            die("B: completion of receive %d instead of %d", (int)wc.wr_id, i);
        check_failed(side, &wc, qp);
        say("B recv %d", wc.status);
    }
    /* An event that is due comes before the NAK; where none is due, none may be there. */
    struct pollfd fd = {.fd = side->context->async_fd, .events = POLLIN};
    while (poll(&fd, 1, 0) == 1) {
        struct ibv_async_event event;
        if (ibv_get_async_event(side->context, &event))
            die("ibv_get_async_event");
        if (event.event_type == IBV_EVENT_QP_REQ_ERR || event.event_type == IBV_EVENT_QP_ACCESS_ERR ||
            event.event_type == IBV_EVENT_QP_FATAL) {
            if (event.element.qp != qp)
                die("B: an event of another queue pair");
        }
        /* IBV_EVENT_COMM_EST depends on which packet comes first. */
        if (event.event_type != IBV_EVENT_COMM_EST)
            say("B event %d", event.event_type);
        ibv_ack_async_event(&event);
    }
    check_memory(side);
    meet(side->peer);
    if (ibv_destroy_qp(qp))
        die("ibv_destroy_qp");
    if (mr)
        dereg(mr);
    if (read_only)
        dereg(read_only);
    if (foreign)
        dereg(foreign);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        die("usage: errors GID-INDEX OPERATION CAUSE");
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        die("socketpair");
    pid_t child = fork();
    if (child < 0)
        die("fork");
    struct side side = {
        .name = child ? "A" : "B",
        .peer = ends[child ? 0 : 1],
        .gid_index = atoi(argv[1]),
        .operation = argv[2],
        .cause = argv[3],
    };
    close(ends[child ? 1 : 0]);
    set_up(&side);
    if (child)
        requester(&side);
    else
        responder(&side);
    try_next(&side);
    dereg(side.inbox_mr);
    if (ibv_destroy_cq(side.cq) || ibv_dealloc_pd(side.pd) || ibv_dealloc_pd(side.other_pd) ||
        ibv_close_device(side.context))
        die("%s: something is still in use", side.name);
    int status = 0;
    if (child && (waitpid(child, &status, 0) != child || status))
        die("B failed: wait status %x", status);
    return 0;
}
