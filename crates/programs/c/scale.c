/* Many queue pairs in one process: creates them, connects them in pairs, lets each say something, measures how long a small
 * message takes while few and while many others are idle, and destroys them. Usage: scale COUNT, an even number. */
#include "rc.h"

#define SIZE 8
#define ROUNDS 20000
/* Before them, not counted: after the pause in which queue pairs are made, caches are cold and rnic's background thread looks
 * for some milliseconds whether it is needed, on what may be the other half of this processor. */
#define WARM 20000

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static uint64_t *words; /* one received by each queue pair, then one sent by each */
static int count;

/* KiB of memory that the process has in use. */
static long resident(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%*d %ld", &pages) != 1)
        die("/proc/self/statm");
    fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void receive(struct ibv_qp *qp, int slot)
{
    struct ibv_sge sge = {.addr = (uintptr_t)&words[slot], .length = SIZE, .lkey = mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
    if ((errno = ibv_post_recv(qp, &wr, &bad)))
        die("ibv_post_recv of queue pair %d", slot);
}

static void send_word(struct ibv_qp *qp, int slot, uint64_t word)
{
    words[count + slot] = word;
    struct ibv_sge sge = {.addr = (uintptr_t)&words[count + slot], .length = SIZE, .lkey = mr->lkey};
    struct ibv_send_wr wr = {
        .wr_id = slot, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad;
    if ((errno = ibv_post_send(qp, &wr, &bad)))
        die("ibv_post_send of queue pair %d", slot);
}

static void await(int completions)
{
    while (completions-- > 0) {
        struct ibv_wc wc = next_completion(cq);
        if (wc.status != IBV_WC_SUCCESS)
            die("queue pair %d: status %d", (int)wc.wr_id, wc.status);
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median time in microseconds from posting a message to its two completions. */
static double latency(struct ibv_qp *from, struct ibv_qp *to, int to_slot)
{
    static double times[ROUNDS];
    for (int i = -WARM; i < ROUNDS; i++) {
        receive(to, to_slot);
        double start = now();
        send_word(from, to_slot - 1, i);
        await(2);
        if (i >= 0)
            times[i] = (now() - start) * 1e6;
        if (words[to_slot] != (uint64_t)i)
            die("message %d is not there", i);
    }
    qsort(times, ROUNDS, sizeof *times, ascending);
    return times[ROUNDS / 2];
}

int main(int argc, char **argv)
{
    count = argc > 1 ? atoi(argv[1]) : 10000;
    if (count < 4 || count % 2)
        die("usage: scale COUNT, even and at least 4");
    struct ibv_context *context = open_device();
    struct ibv_device_attr device;
    if ((errno = ibv_query_device(context, &device)))
        die("ibv_query_device");
    if (device.max_qp < count)
        die("the device has %d queue pairs", device.max_qp);
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 256, NULL, NULL, 0);
    words = calloc(2 * count, sizeof *words);
    struct ibv_qp **qps = calloc(count, sizeof *qps);
    struct endpoint here = {0};
    if (!pd || !cq || !words || !qps || ibv_query_gid(context, 1, 0, &here.gid))
        die("set-up");
    mr = ibv_reg_mr(pd, words, 2 * count * sizeof *words, ALL_MR_ACCESS);
    if (!mr)
        die("ibv_reg_mr");

    /* The active pair first, alone, then with the others beside it. */
    double start = now(), creating = 0, alone = 0, hundred = 0;
    long before = resident();
    for (int i = 0; i < count; i++) {
        qps[i] = make_qp(pd, cq, ALL_QP_ACCESS);
        if (i % 2) {
            for (int side = 0; side < 2; side++) {
                struct endpoint peer = here;
                peer.qpn = qps[i - side]->qp_num;
                connect_qp(qps[i - 1 + side], 0, 0, &peer, 7);
            }
        }
        if (i == 1 || i == 101) {
            creating += now() - start;
            *(i == 1 ? &alone : &hundred) = latency(qps[0], qps[1], 1);
            start = now();
        }
    }
    creating += now() - start;
    long each = (resident() - before) * 1024 / count;
    double many = latency(qps[0], qps[1], 1);
    say("%d queue pairs: %.1f us each to create and connect, %ld bytes of memory each", count, creating / count * 1e6,
        each);
    say("a message and both completions, median: %.2f us alone, %.2f us with 100 idle queue pairs, %.2f us with %d", alone,
        hundred, many, count);

    /* Each says something to its peer. */
    start = now();
    for (int i = 0; i < count; i += 32) {
        int end = i + 32 < count ? i + 32 : count;
        for (int k = i; k < end; k++)
            receive(qps[k ^ 1], k ^ 1);
        for (int k = i; k < end; k++)
            send_word(qps[k], k, pattern(k, 7) + ((uint64_t)k << 8));
        await(2 * (end - i));
    }
    for (int k = 0; k < count; k++)
        if (words[k ^ 1] != pattern(k, 7) + ((uint64_t)k << 8))
            die("queue pair %d got something else", k ^ 1);
    say("each has sent and received a message: %.2f us per message", (now() - start) / count * 1e6);

    start = now();
    for (int i = 0; i < count; i++)
        if ((errno = ibv_destroy_qp(qps[i])))
            die("ibv_destroy_qp of %d", i);
    say("%.2f us each to destroy", (now() - start) / count * 1e6);
    if (ibv_dereg_mr(mr) || ibv_destroy_cq(cq) || ibv_dealloc_pd(pd) || ibv_close_device(context))
        die("something is left");
    say("done");
    return 0;
}
