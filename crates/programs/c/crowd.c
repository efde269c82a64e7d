/* Many processes at once, each with the device open: connected in pairs, they write to each other and verify every byte.
 *
 * crowd GID-INDEX PROCESSES
 *
 * Prints "N processes, every byte verified". */
#include "rc.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { MOST = 256, LENGTH = 20000, ROUNDS = 20 };

struct shared {
    pthread_barrier_t barrier;
    struct endpoint ends[MOST];
};

static void member(struct shared *shared, int self, int gid_index)
{
    static uint8_t inbox[LENGTH], outbox[LENGTH];
    alarm(DEADLINE_SECONDS); /* one that fails leaves the others at the barrier */
    struct ibv_context *context = open_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
    struct ibv_mr *in = ibv_reg_mr(pd, inbox, LENGTH, ALL_MR_ACCESS), *out = ibv_reg_mr(pd, outbox, LENGTH, 0);
    if (!pd || !cq || !in || !out)
        die("set up");
    struct ibv_qp *qp = make_qp(pd, cq, ALL_QP_ACCESS);
    struct endpoint *own = &shared->ends[self], *peer = &shared->ends[self ^ 1];
    *own = (struct endpoint){.qpn = qp->qp_num, .psn = 77u * self, .address = (uintptr_t)inbox, .rkey = in->rkey};
    if (ibv_query_gid(context, 1, gid_index, &own->gid))
        die("ibv_query_gid");
    pthread_barrier_wait(&shared->barrier);
    connect_qp(qp, gid_index, own->psn, peer, 7);
    struct ibv_recv_wr receives[ROUNDS] = {0}, *bad_receive;
    for (int i = 0; i < ROUNDS; i++)
        receives[i] = (struct ibv_recv_wr){.wr_id = i, .next = i + 1 < ROUNDS ? &receives[i + 1] : NULL};
    if ((errno = ibv_post_recv(qp, receives, &bad_receive)))
        die("ibv_post_recv");
    pthread_barrier_wait(&shared->barrier);

    for (int round = 0; round < ROUNDS; round++) {
        fill(outbox, LENGTH, self * ROUNDS + round);
        struct ibv_sge sge = {.addr = (uintptr_t)outbox, .length = LENGTH, .lkey = out->lkey};
        struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .send_flags = IBV_SEND_SIGNALED,
                                 .sg_list = &sge, .num_sge = 1, .imm_data = htonl(round)}, *bad;
        wr.wr.rdma.remote_addr = peer->address;
        wr.wr.rdma.rkey = peer->rkey;
        if ((errno = ibv_post_send(qp, &wr, &bad)))
            die("ibv_post_send");
        /* Both its own write's end and the peer's arrival; the peer then waits for ours before it writes again. */
        for (int i = 0; i < 2; i++) {
            struct ibv_wc wc = next_completion(cq);
            if (wc.status != IBV_WC_SUCCESS)
                die("process %d, round %d: status %d", self, round, wc.status);
            if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && ntohl(wc.imm_data) != (uint32_t)round)
                die("process %d: round %d is %d", self, round, ntohl(wc.imm_data));
        }
        if (differs(inbox, LENGTH, (self ^ 1) * ROUNDS + round) >= 0)
            die("process %d, round %d: byte %ld", self, round, differs(inbox, LENGTH, (self ^ 1) * ROUNDS + round));
        struct ibv_send_wr done = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
        struct ibv_recv_wr receive = {0};
        if ((errno = ibv_post_recv(qp, &receive, &bad_receive)) || (errno = ibv_post_send(qp, &done, &bad)))
            die("post");
        for (int i = 0; i < 2; i++)
            if (next_completion(cq).status != IBV_WC_SUCCESS)
                die("process %d, round %d: not done", self, round);
    }
    pthread_barrier_wait(&shared->barrier);
    if (ibv_destroy_qp(qp) || ibv_dereg_mr(in) || ibv_dereg_mr(out) || ibv_destroy_cq(cq) || ibv_dealloc_pd(pd) ||
        ibv_close_device(context))
        die("something is still in use");
    exit(0);
}

int main(int argc, char **argv)
{
    int processes = argc == 3 ? atoi(argv[2]) : 0;
    if (processes < 2 || processes % 2 || processes > MOST)
        die("usage: crowd GID-INDEX PROCESSES");
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        die("mmap");
    pthread_barrierattr_t attr;
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->barrier, &attr, processes);
    for (int i = 0; i < processes; i++) {
        pid_t child = fork();
        if (child < 0)
            die("fork");
        if (!child)
            member(shared, i, atoi(argv[1]));
    }
    for (int i = 0; i < processes; i++) {
        int status;
        if (wait(&status) < 0 || status)
            die("a process failed: wait status %x", status);
    }
    for (int i = 0; i < processes; i++)
        for (int j = 0; j < i; j++)
            if (shared->ends[i].qpn == shared->ends[j].qpn)
                die("two processes have queue pair %u", shared->ends[i].qpn);
    say("%d processes, every byte verified", processes);
    return 0;
}
