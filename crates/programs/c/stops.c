/* Processes that are stopped at any moment, for a while each, and go on: nothing fails, and who has nothing to do with them is
 * held up no longer than a moment.
 *
 * stops GID_INDEX ADDRESS STOPS LONGEST_MS SEED
 *
 * Two pairs of processes set up connections, exchange messages and tear all down again, over and over: by verbs, by rdma_cm, and
 * by a device that is closed and opened. This process stops one of the first pair at a time, STOPS times, for up to LONGEST_MS
 * milliseconds. Prints how many rounds each pair came through, and the longest of the pair that is never stopped.
 */
#define DEADLINE_SECONDS 120
#include "rc.h"

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { MESSAGES = 8, LENGTH = 8192, SLOTS = 4 * LENGTH };

/* Of a pair. */
struct pair {
    volatile int enough;
    volatile int rounds;
    volatile double longest;
    volatile int longest_what;
};

static int gid_index;
static const char *address;

struct worker {
    int fd, server, number;
    struct pair *pair;
    struct ibv_context *context;
    uint8_t data[SLOTS] __attribute__((aligned(4096)));
};

static struct worker self;

static void expect(struct ibv_wc wc, const char *what)
{
    if (wc.status)
        die("pair %d, round %d, %s: %s", self.number, self.pair->rounds, what, ibv_wc_status_str(wc.status));
}

static void by_verbs(void)
{
    struct ibv_pd *pd = ibv_alloc_pd(self.context);
    struct ibv_cq *cq = ibv_create_cq(self.context, 64, NULL, NULL, 0);
    struct ibv_mr *mr = ibv_reg_mr(pd, self.data, SLOTS, ALL_MR_ACCESS);
    if (!pd || !cq || !mr)
        die("set up");
    struct ibv_qp *qp = make_qp(pd, cq, ALL_QP_ACCESS);
    struct endpoint own = {.qpn = qp->qp_num, .psn = 5, .address = (uintptr_t)self.data, .rkey = mr->rkey}, peer;
    if (ibv_query_gid(self.context, 1, gid_index, &own.gid))
        die("ibv_query_gid");
    put(self.fd, &own, sizeof own);
    if (!get(self.fd, &peer, sizeof peer))
        die("no peer");
    /* 67 ms, 134 ms, 268 ms. */
    ack_timeout = 14, retry_cnt = 2;
    connect_qp(qp, gid_index, 5, &peer, 7);
    struct ibv_sge sge = {.addr = (uintptr_t)self.data, .length = LENGTH, .lkey = mr->lkey};
    for (int i = 0; i < MESSAGES; i++) {
        struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
        if ((errno = ibv_post_recv(qp, &wr, &bad)))
            die("ibv_post_recv");
    }
    meet(self.fd);
    /* Both sides send, write, read and count at once. */
    for (int i = 0; i < MESSAGES; i++) {
        static const enum ibv_wr_opcode codes[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
                                                   IBV_WR_ATOMIC_FETCH_AND_ADD};
        for (unsigned code = 0; code < sizeof codes / sizeof *codes; code++) {
            struct ibv_sge from = {.addr = (uintptr_t)self.data + LENGTH,
                                   .length = codes[code] == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : LENGTH,
                                   .lkey = mr->lkey};
            struct ibv_send_wr wr = {.sg_list = &from, .num_sge = 1, .opcode = codes[code], .send_flags = IBV_SEND_SIGNALED},
                               *bad;
            wr.wr.rdma.remote_addr = peer.address + 2 * LENGTH;
            wr.wr.rdma.rkey = peer.rkey;
            if (code == 3) {
                wr.wr.atomic.remote_addr = peer.address + 3 * LENGTH;
                wr.wr.atomic.compare_add = 1;
                wr.wr.atomic.rkey = peer.rkey;
            }
            if ((errno = ibv_post_send(qp, &wr, &bad)))
                die("ibv_post_send");
        }
    }
    for (int i = 0; i < 5 * MESSAGES; i++)
        expect(next_completion(cq), "a completion");
    meet(self.fd);
    if (ibv_destroy_qp(qp) || ibv_destroy_cq(cq))
        die("destroy");
    /* EBUSY: the peer was stopped in the middle of a copy. */
    double until = now() + DEADLINE_SECONDS;
    while ((errno = ibv_dereg_mr(mr)))
        if (errno != EBUSY || now() > until)
            die("ibv_dereg_mr");
    if (ibv_dealloc_pd(pd))
        die("ibv_dealloc_pd");
}

static void by_rdma_cm(void)
{
    char port[16], hello[16] = "hello", heard[16] = "";
    snprintf(port, sizeof port, "%d", 7500 + self.number);
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = self.server ? RAI_PASSIVE : 0}, *info;
    struct ibv_qp_init_attr attr = {
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}, .sq_sig_all = 1};
    struct rdma_cm_id *id, *listener = NULL;
    struct ibv_wc wc;
    if (rdma_getaddrinfo(address, port, &hints, &info))
        die("rdma_getaddrinfo");
    if (self.server) {
        if (rdma_create_ep(&listener, info, NULL, &attr) || rdma_listen(listener, 1))
            die("listen");
        meet(self.fd);
        if (rdma_get_request(listener, &id))
            die("rdma_get_request");
    } else {
        meet(self.fd);
        if (rdma_create_ep(&id, info, NULL, &attr))
            die("rdma_create_ep");
    }
    struct ibv_mr *in = rdma_reg_msgs(id, heard, sizeof heard), *out = rdma_reg_msgs(id, hello, sizeof hello);
    if (!in || !out || rdma_post_recv(id, NULL, heard, sizeof heard, in))
        die("rdma_post_recv");
    if (self.server ? rdma_accept(id, NULL) : rdma_connect(id, NULL))
        die("pair %d, round %d: %s", self.number, self.pair->rounds, self.server ? "rdma_accept" : "rdma_connect");
    if (rdma_post_send(id, NULL, hello, sizeof hello, out, 0) || rdma_get_send_comp(id, &wc) != 1)
        die("rdma_post_send");
    expect(wc, "a SEND after rdma_connect");
    if (rdma_get_recv_comp(id, &wc) != 1)
        die("rdma_get_recv_comp");
    expect(wc, "its receive");
    if (strcmp(heard, hello))
        die("heard %s", heard);
    meet(self.fd);
    rdma_disconnect(id);
    rdma_dereg_mr(in);
    rdma_dereg_mr(out);
    rdma_destroy_ep(id);
    if (listener)
        rdma_destroy_ep(listener);
    rdma_freeaddrinfo(info);
    meet(self.fd);
}

static void work(void)
{
    for (int round = 0;; round++) {
        /* The server decides, so that both end with the same round. */
        char goes_on = !self.pair->enough;
        if (self.server)
            put(self.fd, &goes_on, 1);
        else if (!get(self.fd, &goes_on, 1))
            die("no peer");
        if (!goes_on)
            break;
        double begin = now();
        if (round % 8 == 0) {
            if (self.context && ibv_close_device(self.context))
                die("ibv_close_device");
            self.context = open_device();
        }
        if (round % 4 == 3)
            by_rdma_cm();
        else
            by_verbs();
        double took = now() - begin;
        if (self.server) {
            self.pair->rounds++;
            if (took > self.pair->longest) {
                self.pair->longest = took;
                self.pair->longest_what = round;
            }
        }
    }
    if (ibv_close_device(self.context))
        die("ibv_close_device");
    _exit(0);
}

static void start_pair(struct pair *pair, int number, pid_t pids[2])
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        die("socketpair");
    for (int side = 0; side < 2; side++) {
        pids[side] = fork();
        if (pids[side] < 0)
            die("fork");
        if (pids[side] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(ends[!side]);
            self.fd = ends[side], self.server = !side, self.number = number, self.pair = pair;
            work();
        }
    }
    close(ends[0]);
    close(ends[1]);
}

static void wait_for(pid_t pid, int options)
{
    int status;
    pid_t ended = waitpid(pid, &status, options);
    if (ended && (ended != pid || status))
        die("a process ended with %x", status);
}

int main(int argc, char **argv)
{
    if (argc != 6)
        die("usage: stops GID_INDEX ADDRESS STOPS LONGEST_MS SEED");
    gid_index = atoi(argv[1]), address = argv[2];
    int stops = atoi(argv[3]), longest_ms = atoi(argv[4]);
    srand(atoi(argv[5]));
    struct pair *pairs = mmap(NULL, 2 * sizeof *pairs, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (pairs == MAP_FAILED)
        die("mmap");
    pid_t stopped[2], other[2];
    start_pair(&pairs[0], 0, stopped);
    start_pair(&pairs[1], 1, other);
    for (int i = 0; i < stops; i++) {
        pid_t victim = stopped[rand() % 2];
        usleep(rand() % 50000);
        if (kill(victim, SIGSTOP))
            die("SIGSTOP");
        usleep((longest_ms / 10 + rand() % (longest_ms - longest_ms / 10)) * 1000);
        if (kill(victim, SIGCONT))
            die("SIGCONT");
        for (int side = 0; side < 2; side++) {
            wait_for(stopped[side], WNOHANG);
            wait_for(other[side], WNOHANG);
        }
    }
    pairs[0].enough = pairs[1].enough = 1;
    for (int side = 0; side < 2; side++) {
        wait_for(stopped[side], 0);
        wait_for(other[side], 0);
    }
    say("%d rounds of the pair that was stopped, the longest %.0f ms (%d)", pairs[0].rounds, pairs[0].longest * 1e3,
        pairs[0].longest_what);
    say("%d rounds of the other pair, the longest %.0f ms (%d)", pairs[1].rounds, pairs[1].longest * 1e3,
        pairs[1].longest_what);
    return 0;
}
