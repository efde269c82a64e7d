/* One event loop per thread: each sleeps in an epoll set of its own, between the messages of a
 * connection of its own.
 *
 * loops WHAT ACTIVE IDLE COUNT MILLISECONDS [together]: WHAT is tcp or rc. ACTIVE threads exchange
 * messages of 64 B with as many threads of a second process, each COUNT or for so long. IDLE
 * threads more have a connection on which nothing comes. All queue pairs are of one device.
 * together: one thread has all connections in one epoll set, each with a message under way.
 *
 * Prints round trips of all connections: median and 99th percentile in microseconds; and processor
 * time and sleeps of both processes, all threads, for each. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>

#include "rc.h"

/* What a message says. */
enum { GO_ON, OVER };
enum { SIZE = 64, MOST = 64, DEPTH = 16, FIRST = 3 };

static int rdma, active, count, follows;
static double time_limit;

struct loop {
    pthread_t thread;
    int idle, fd, set;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    char *buffer;
    int received, done;
    unsigned sent;
    double *times;
};

static struct loop loops[MOST];

static void post_receive(struct loop *l)
{
    struct ibv_sge sge = {.addr = (uintptr_t)l->buffer, .length = SIZE, .lkey = l->mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    if (ibv_post_recv(l->qp, &wr, &bad))
        die("ibv_post_recv");
}

static void open_rdma(struct loop *l, struct ibv_context *context, struct ibv_pd *pd, int peer)
{
    l->channel = ibv_create_comp_channel(context);
    if (!l->channel)
        die("ibv_create_comp_channel");
    l->fd = l->channel->fd;
    l->cq = ibv_create_cq(context, 256, NULL, l->channel, 0);
    l->mr = ibv_reg_mr(pd, l->buffer, 2 * SIZE, IBV_ACCESS_LOCAL_WRITE);
    if (!l->cq || !l->mr)
        die("objects");
    l->qp = make_qp(pd, l->cq, IBV_ACCESS_LOCAL_WRITE);
    struct endpoint mine = {.qpn = l->qp->qp_num, .psn = 7}, theirs;
    int gid = 0;
    static const uint8_t wanted[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};
    while (!ibv_query_gid(context, 1, gid, &mine.gid) && memcmp(&mine.gid, wanted, 16))
        gid++;
    put(peer, &mine, sizeof mine);
    if (!get(peer, &theirs, sizeof theirs))
        die("the peer is gone");
    connect_qp(l->qp, gid, 7, &theirs, 7);
    for (int i = 0; i < DEPTH; i++)
        post_receive(l);
    if (ibv_req_notify_cq(l->cq, 0))
        die("ibv_req_notify_cq");
    meet(peer);
}

static void open_tcp(struct loop *l, int peer)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int one = 1;
    l->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (follows) {
        int listener = l->fd;
        if (bind(listener, (void *)&address, length) || listen(listener, 1) ||
            getsockname(listener, (void *)&address, &length))
            die("listen");
        put(peer, &address, sizeof address);
        l->fd = accept(listener, NULL, NULL);
        close(listener);
    } else if (!get(peer, &address, sizeof address) || connect(l->fd, (void *)&address, length)) {
        die("connect");
    }
    if (l->fd < 0 || setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one))
        die("TCP");
}

static void send_one(struct loop *l, char word)
{
    l->buffer[SIZE] = word;
    if (!rdma) {
        if (write(l->fd, l->buffer + SIZE, SIZE) != SIZE)
            die("write");
        return;
    }
    struct ibv_sge sge = {.addr = (uintptr_t)l->buffer + SIZE, .length = SIZE, .lkey = l->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    if (++l->sent % 32 == 0)
        wr.send_flags = IBV_SEND_SIGNALED;
    if (ibv_post_send(l->qp, &wr, &bad))
        die("ibv_post_send");
}

static void take_all(struct loop *l)
{
    if (!rdma) {
        int n = read(l->fd, l->buffer, SIZE);
        if (n != SIZE && !(n < 0 && errno == EAGAIN))
            die("read");
        l->received += n == SIZE;
        return;
    }
    struct ibv_cq *source;
    void *context;
    if (!ibv_get_cq_event(l->channel, &source, &context)) {
        ibv_ack_cq_events(source, 1);
        if (ibv_req_notify_cq(l->cq, 0))
            die("ibv_req_notify_cq");
    }
    struct ibv_wc wc;
    while (ibv_poll_cq(l->cq, 1, &wc) == 1) {
        if (wc.status)
            die("status %d", wc.status);
        if (wc.opcode & IBV_WC_RECV) {
            l->received++;
            post_receive(l);
        }
    }
}

static char receive_one(struct loop *l)
{
    struct epoll_event event;
    while (!l->received) {
        if (epoll_wait(l->set, &event, 1, DEADLINE_SECONDS * 1000) != 1)
            die("epoll_wait");
        take_all(l);
    }
    l->received--;
    return l->buffer[0];
}

/* One loop for all that are active. */
static void *run_together(void *argument)
{
    struct epoll_event events[MOST];
    double begins[MOST], start = now();
    int set = epoll_create1(0), open = active;
    for (int i = 0; i < active; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &loops[i]};
        if (set < 0 || epoll_ctl(set, EPOLL_CTL_ADD, loops[i].fd, &event))
            die("epoll");
        begins[i] = now();
        if (!follows)
            send_one(&loops[i], GO_ON);
    }
    while (open) {
        int ready = epoll_wait(set, events, MOST, DEADLINE_SECONDS * 1000);
        if (ready < 1)
            die("epoll_wait");
        for (int i = 0; i < ready; i++) {
            struct loop *l = events[i].data.ptr;
            for (take_all(l); l->received; l->received--) {
                char word = l->buffer[0];
                open -= word == OVER;
                if (follows) {
                    send_one(l, word);
                } else if (word != OVER) {
                    double end = now();
                    l->times[l->done++] = (end - begins[l - loops]) * 1e6;
                    begins[l - loops] = end;
                    send_one(l, l->done < count && end - start < time_limit ? GO_ON : OVER);
                }
            }
        }
    }
    return argument;
}

static void *run(void *argument)
{
    struct loop *l = argument;
    /* A thread's first wait differs from all others. */
    for (int i = 0; i < FIRST; i++) {
        if (!follows)
            send_one(l, GO_ON);
        receive_one(l);
        if (follows)
            send_one(l, GO_ON);
    }
    if (l->idle) {
        receive_one(l);
        return NULL;
    }
    if (follows) {
        char word;
        do
            send_one(l, word = receive_one(l));
        while (word != OVER);
        return NULL;
    }
    double start = now();
    for (l->done = 0; l->done < count && now() - start < time_limit; l->done++) {
        double begin = now();
        send_one(l, GO_ON);
        receive_one(l);
        l->times[l->done] = (now() - begin) * 1e6;
    }
    send_one(l, OVER);
    receive_one(l);
    return NULL;
}

/* Sleeps and processor time of all threads, also those that ended. */
struct used {
    double seconds;
    long sleeps;
};

static struct used used(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (struct used){
        .seconds = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6,
        .sleeps = usage.ru_nvcsw,
    };
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    int together = argc == 7 && !strcmp(argv[6], "together");
    if (argc != 6 + together)
        die("usage: loops tcp|rc ACTIVE IDLE COUNT MILLISECONDS [together]");
    rdma = !strcmp(argv[1], "rc"), active = atoi(argv[2]), count = atoi(argv[4]), time_limit = atoi(argv[5]) * 1e-3;
    int all = active + atoi(argv[3]), ends[2];
    if (active < 1 || all > MOST || count < 1)
        die("ACTIVE is 1 or more, and both %d at most", MOST);
    pid_t child;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) || (child = fork()) < 0)
        die("the second process");
    follows = child == 0;
    if (follows)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    int peer = ends[follows];
    close(ends[!follows]);
    struct ibv_context *context = rdma ? open_device() : NULL;
    struct ibv_pd *pd = rdma ? ibv_alloc_pd(context) : NULL;
    for (int i = 0; i < all; i++) {
        struct loop *l = &loops[i];
        l->idle = i >= active;
        l->buffer = calloc(2, SIZE);
        l->times = calloc(count, sizeof *l->times);
        if (rdma)
            open_rdma(l, context, pd, peer);
        else
            open_tcp(l, peer);
        struct epoll_event event = {.events = EPOLLIN};
        if (fcntl(l->fd, F_SETFL, fcntl(l->fd, F_GETFL) | O_NONBLOCK) || (l->set = epoll_create1(0)) < 0 ||
            epoll_ctl(l->set, EPOLL_CTL_ADD, l->fd, &event))
            die("epoll");
    }
    meet(peer);
    /* Those that are idle wait first. */
    for (int i = all - 1; i >= active; i--)
        if (pthread_create(&loops[i].thread, NULL, run, &loops[i]))
            die("pthread_create");
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    meet(peer);
    struct used before = used(), theirs;
    int threads = together ? 1 : active;
    for (int i = 0; i < threads; i++)
        if (pthread_create(&loops[i].thread, NULL, together ? run_together : run, &loops[i]))
            die("pthread_create");
    for (int i = 0; i < threads; i++)
        pthread_join(loops[i].thread, NULL);
    struct used after = used();
    after.seconds -= before.seconds, after.sleeps -= before.sleeps;
    put(peer, &after, sizeof after);
    if (!get(peer, &theirs, sizeof theirs))
        die("the peer is gone");
    /* Messages end those that were idle. */
    for (int i = active; i < all; i++)
        send_one(&loops[i], OVER);
    for (int i = active; i < all; i++)
        pthread_join(loops[i].thread, NULL);
    meet(peer);
    if (follows)
        return 0;
    waitpid(child, NULL, 0);
    int done = 0;
    for (int i = 0; i < active; i++)
        done += loops[i].done;
    double *times = calloc(done, sizeof *times);
    for (int i = 0, at = 0; i < active; at += loops[i++].done)
        memcpy(times + at, loops[i].times, loops[i].done * sizeof *times);
    qsort(times, done, sizeof *times, by_size);
    printf("%s, %d %s and %d idle: median %.1f us, 99%% %.1f us, processor time %.1f us, sleeps %.2f\n", argv[1], active,
           together ? "together" : "threads", all - active, times[done / 2], times[done * 99 / 100], (after.seconds + theirs.seconds) / done * 1e6,
           (double)(after.sleeps + theirs.sleeps) / done);
    return 0;
}
