/* Memory that was registered is unmapped, or made read-only, and then used.
 *
 * gone GID-INDEX HOW WHAT [LENGTH]
 *
 *   HOW    unmapped, read-only or kept
 *   WHAT   send, receive, write-from, write-to, read-from, read-to, fetch-add or compare-swap: what the NIC does with it
 *   own    the program dereferences it itself, after it has registered it
 *
 * Prints the status of the request, "caught" from a handler of SIGSEGV that was there before, and what a second connection's
 * transfer ends with: the process goes on.
 */
#include "rc.h"

#include <signal.h>
#include <sys/mman.h>

enum { SIZE = 65536 };

static int is(const char *a, const char *b)
{
    return !strcmp(a, b);
}

static void caught(int signal)
{
    (void)signal;
    say("caught");
    _exit(7);
}

struct end {
    struct ibv_cq *cq;
    struct ibv_qp *qp;
};

static struct ibv_context *context;
static struct ibv_pd *pd;

static void make_connection(struct end end[2], int gid_index)
{
    union ibv_gid gid;
    if (ibv_query_gid(context, 1, gid_index, &gid))
        die("ibv_query_gid");
    for (int i = 0; i < 2; i++) {
        if (!(end[i].cq = ibv_create_cq(context, 16, NULL, NULL, 0)))
            die("ibv_create_cq");
        end[i].qp = make_qp(pd, end[i].cq, ALL_QP_ACCESS);
    }
    for (int i = 0; i < 2; i++) {
        struct endpoint peer = {.gid = gid, .qpn = end[!i].qp->qp_num};
        connect_qp(end[i].qp, gid_index, 0, &peer, 7);
    }
}

static int transfer(struct end end[2], enum ibv_wr_opcode opcode, struct ibv_sge near, struct ibv_sge far, uint32_t rkey)
{
    if (opcode == IBV_WR_SEND) {
        struct ibv_recv_wr receive = {.wr_id = 2, .sg_list = &far, .num_sge = 1}, *bad;
        if ((errno = ibv_post_recv(end[1].qp, &receive, &bad)))
            die("ibv_post_recv");
    }
    struct ibv_send_wr send = {.wr_id = 1, .sg_list = &near, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED}, *bad;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
        send.wr.atomic.remote_addr = far.addr;
        send.wr.atomic.rkey = rkey;
        send.wr.atomic.compare_add = 1;
    } else {
        send.wr.rdma.remote_addr = far.addr;
        send.wr.rdma.rkey = rkey;
    }
    if ((errno = ibv_post_send(end[0].qp, &send, &bad)))
        die("ibv_post_send");
    return next_completion(end[0].cq).status;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        die("usage: gone GID-INDEX HOW WHAT [LENGTH]");
    int gid_index = atoi(argv[1]);
    const char *how = argv[2], *what = argv[3];
    uint32_t length = argc > 4 ? atoi(argv[4]) : 4096;
    if (signal(SIGSEGV, caught) == SIG_ERR)
        die("signal");

    context = open_device();
    if (!(pd = ibv_alloc_pd(context)))
        die("ibv_alloc_pd");
    struct end first[2], second[2];
    make_connection(first, gid_index);
    make_connection(second, gid_index);
    char *gone = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *kept = calloc(1, 2 * SIZE);
    if (gone == MAP_FAILED || !kept)
        die("memory");
    struct ibv_mr *of_gone = ibv_reg_mr(pd, gone, SIZE, ALL_MR_ACCESS), *of_kept = ibv_reg_mr(pd, kept, 2 * SIZE, ALL_MR_ACCESS);
    if (!of_gone || !of_kept)
        die("ibv_reg_mr");
    if (is(how, "unmapped") ? munmap(gone, SIZE) : is(how, "read-only") ? mprotect(gone, SIZE, PROT_READ) : 0)
        die("%s", how);
    if (is(what, "own"))
        return *(volatile char *)gone;

    int atomic = is(what, "fetch-add") || is(what, "compare-swap");
    struct ibv_sge lost = {(uintptr_t)gone, atomic ? 8 : length, of_gone->lkey}, found = {(uintptr_t)kept, atomic ? 8 : length, of_kept->lkey};
    enum ibv_wr_opcode opcode = is(what, "send") || is(what, "receive") ? IBV_WR_SEND
                                : is(what, "fetch-add")                 ? IBV_WR_ATOMIC_FETCH_AND_ADD
                                : is(what, "compare-swap")              ? IBV_WR_ATOMIC_CMP_AND_SWP
                                : strstr(what, "write")                 ? IBV_WR_RDMA_WRITE
                                                                        : IBV_WR_RDMA_READ;
    int near = is(what, "send") || is(what, "write-from") || is(what, "read-to");
    say("status %d", near ? transfer(first, opcode, lost, found, of_kept->rkey) : transfer(first, opcode, found, lost, of_gone->rkey));
    struct ibv_sge from = {(uintptr_t)kept, 5000, of_kept->lkey}, to = {(uintptr_t)kept + SIZE, 5000, of_kept->lkey};
    say("then %d", transfer(second, IBV_WR_RDMA_WRITE, from, to, of_kept->rkey));
    return is(how, "kept") ? 0 : 3;
}
