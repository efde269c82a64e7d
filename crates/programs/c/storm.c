/* Thousands of queue pairs of several processes that all write to one process at once, far more than its receive buffer holds.
 *
 * storm GID-INDEX PROCESSES QUEUE-PAIRS MESSAGES LENGTH
 *
 * Each of PROCESSES has QUEUE-PAIRS reliable connections to one further process, which does nothing, and writes MESSAGES of LENGTH bytes by
 * each of them, all posted at once. Prints "N messages, every byte verified" and how long they took. */
#define DEADLINE_SECONDS 120
#include "rc.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

static struct { int gid_index, processes, queue_pairs, messages, length; } all;

struct shared {
    pthread_barrier_t barrier;
    union ibv_gid gid;
    uint64_t address;
    uint32_t rkey;
    /* The hub's queue pairs, then those of the others in the same order. */
    uint32_t qpns[];
};

static void *alone(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        die("mmap");
    return memory;
}

static struct ibv_qp *make(struct ibv_pd *pd, struct ibv_cq *cq)
{
    struct ibv_qp_init_attr init = {.send_cq = cq,
                                    .recv_cq = cq,
                                    .cap = {.max_send_wr = all.messages, .max_send_sge = 1},
                                    .qp_type = IBV_QPT_RC};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    if (!qp)
        die("ibv_create_qp");
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    if ((errno = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)))
        die("ibv_modify_qp to INIT");
    return qp;
}

/* Makes and connects COUNT queue pairs, which have the places from OWN on in the list, to those from THEIRS on. */
static struct ibv_qp **connected(struct shared *shared, struct ibv_pd *pd, struct ibv_cq *cq, int count, uint32_t *own, uint32_t *theirs)
{
    struct ibv_qp **qps = calloc(count, sizeof *qps);
    for (int i = 0; i < count; i++) {
        qps[i] = make(pd, cq);
        own[i] = qps[i]->qp_num;
    }
    pthread_barrier_wait(&shared->barrier);
    for (int i = 0; i < count; i++) {
        struct endpoint peer = {.gid = shared->gid, .qpn = theirs[i], .psn = theirs[i] * 7 & 0xffffff};
        connect_qp(qps[i], all.gid_index, own[i] * 7 & 0xffffff, &peer, 7);
    }
    pthread_barrier_wait(&shared->barrier);
    return qps;
}

static size_t from_one(void) { return (size_t)all.messages * all.length; }

static void hub(struct shared *shared)
{
    struct ibv_context *context = open_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    uint8_t *inbox = alone(all.processes * from_one());
    struct ibv_mr *mr = ibv_reg_mr(pd, inbox, all.processes * from_one(), ALL_MR_ACCESS);
    if (!cq || !mr || ibv_query_gid(context, 1, all.gid_index, &shared->gid))
        die("set up");
    shared->address = (uintptr_t)inbox;
    shared->rkey = mr->rkey;
    int count = all.processes * all.queue_pairs;
    connected(shared, pd, cq, count, shared->qpns, shared->qpns + count);
    pthread_barrier_wait(&shared->barrier);
    for (int i = 0; i < all.processes; i++)
        if (differs(inbox + i * from_one(), from_one(), i) >= 0)
            die("of process %d: byte %ld", i, differs(inbox + i * from_one(), from_one(), i));
    exit(0);
}

static void sender(struct shared *shared, int self)
{
    struct ibv_context *context = open_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    int total = all.queue_pairs * all.messages;
    struct ibv_cq *cq = ibv_create_cq(context, total, NULL, NULL, 0);
    uint8_t *outbox = alone(from_one());
    fill(outbox, from_one(), self);
    struct ibv_mr *mr = ibv_reg_mr(pd, outbox, from_one(), 0);
    if (!cq || !mr)
        die("set up");
    uint32_t *hubs = shared->qpns + self * all.queue_pairs;
    struct ibv_qp **qps = connected(shared, pd, cq, all.queue_pairs, hubs + all.processes * all.queue_pairs, hubs);
    double begin = now();
    for (int i = 0; i < all.queue_pairs; i++)
        for (int j = 0; j < all.messages; j++) {
            size_t at = (size_t)j * all.length;
            struct ibv_sge sge = {.addr = (uintptr_t)outbox + at, .length = all.length, .lkey = mr->lkey};
            struct ibv_send_wr wr = {.wr_id = i, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
                                     .sg_list = &sge, .num_sge = 1}, *bad;
            wr.wr.rdma.remote_addr = shared->address + self * from_one() + at;
            wr.wr.rdma.rkey = shared->rkey;
            if ((errno = ibv_post_send(qps[i], &wr, &bad)))
                die("ibv_post_send");
        }
    for (int i = 0; i < total; i++) {
        struct ibv_wc wc = next_completion(cq);
        if (wc.status != IBV_WC_SUCCESS)
            die("process %d, queue pair %d: status %d after %d of %d messages and %.2f s", self, (int)wc.wr_id, wc.status, i, total,
                now() - begin);
    }
    say("process %d: %.2f s", self, now() - begin);
    pthread_barrier_wait(&shared->barrier);
    exit(0);
}

int main(int argc, char **argv)
{
    int *numbers[] = {&all.gid_index, &all.processes, &all.queue_pairs, &all.messages, &all.length};
    for (int i = 0; i < 5; i++)
        *numbers[i] = argc == 6 ? atoi(argv[i + 1]) : 0;
    if (all.processes < 1 || all.queue_pairs < 1 || all.messages < 1 || all.length < 1)
        die("usage: storm GID-INDEX PROCESSES QUEUE-PAIRS MESSAGES LENGTH");
    size_t qpns = 2 * (size_t)all.processes * all.queue_pairs;
    struct shared *shared = mmap(NULL, sizeof *shared + qpns * sizeof *shared->qpns, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        die("mmap");
    pthread_barrierattr_t attr;
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->barrier, &attr, all.processes + 1);
    pid_t *children = calloc(all.processes + 1, sizeof *children);
    for (int i = 0; i <= all.processes; i++) {
        pid_t child = children[i] = fork();
        if (child < 0)
            die("fork");
        if (!child) {
            alarm(2 * DEADLINE_SECONDS);
            if (i == 0)
                hub(shared);
            sender(shared, i - 1);
        }
    }
    for (int i = 0; i <= all.processes; i++) {
        int status = -1;
        pid_t ended = wait(&status);
        for (int j = 0; j <= all.processes; j++) {
            if (children[j] == ended)
                children[j] = 0;
            /* The others would wait for one that failed at the barrier. */
            if (status && children[j])
                kill(children[j], SIGKILL);
        }
        if (status)
            die("a process failed: wait status %x", status);
    }
    say("%d messages, every byte verified", all.processes * all.queue_pairs * all.messages);
    return 0;
}
