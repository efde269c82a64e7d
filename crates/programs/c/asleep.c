/* Ping-pong of two processes that sleep in epoll_wait, poll or select between two messages.
 *
 * asleep WHAT HOW SIZE COUNT: WHAT is tcp, udp, eventfd or rc; HOW is epoll, edge, nested, poll or select. Prints round trips:
 * median and 99th percentile in microseconds, and processor time of both processes per round trip. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <fcntl.h>

#include "rc.h"

static const char *what, *how;
static size_t size;
static int fd = -1;      /* The descriptor that is waited for. */
static int send_fd = -1; /* Where messages go, unless by RDMA. */
static int outer = -1, inner = -1;

static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static char *buffer;
static int received;

static int add(int set, int descriptor, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.fd = descriptor};
    return epoll_ctl(set, EPOLL_CTL_ADD, descriptor, &event);
}

static void prepare(void)
{
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK))
        die("fcntl");
    if (!strcmp(how, "poll") || !strcmp(how, "select"))
        return;
    inner = epoll_create1(0);
    if (inner < 0 || add(inner, fd, EPOLLIN | (strcmp(how, "edge") ? 0 : EPOLLET)))
        die("epoll");
    outer = inner;
    if (!strcmp(how, "nested")) {
        outer = epoll_create1(0);
        if (outer < 0 || add(outer, inner, EPOLLIN))
            die("nested epoll");
    }
}

/* Sleeps until the descriptor is readable. */
static void wait_for_it(void)
{
    struct epoll_event event;
    int n;
    if (!strcmp(how, "poll")) {
        struct pollfd one = {.fd = fd, .events = POLLIN};
        n = poll(&one, 1, DEADLINE_SECONDS * 1000);
    } else if (!strcmp(how, "select")) {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(fd, &set);
        struct timeval time = {.tv_sec = DEADLINE_SECONDS};
        n = select(fd + 1, &set, NULL, NULL, &time);
    } else {
        n = epoll_wait(outer, &event, 1, DEADLINE_SECONDS * 1000);
        if (n == 1 && outer != inner)
            n = epoll_wait(inner, &event, 1, 0);
    }
    if (n < 0)
        die("waiting");
}

static void post_receive(void)
{
    struct ibv_sge sge = {.addr = (uintptr_t)buffer, .length = size, .lkey = mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    if (ibv_post_recv(qp, &wr, &bad))
        die("ibv_post_recv");
}

static void open_rdma(int peer)
{
    struct ibv_context *context = open_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    channel = ibv_create_comp_channel(context);
    if (!channel)
        die("ibv_create_comp_channel");
    cq = ibv_create_cq(context, 256, NULL, channel, 0);
    buffer = calloc(2, size);
    mr = ibv_reg_mr(pd, buffer, 2 * size, IBV_ACCESS_LOCAL_WRITE);
    if (!cq || !mr)
        die("objects");
    qp = make_qp(pd, cq, IBV_ACCESS_LOCAL_WRITE);
    struct endpoint mine = {.qpn = qp->qp_num, .psn = 7}, theirs;
    int gid = 0;
    static const uint8_t loopback[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};
    while (!ibv_query_gid(context, 1, gid, &mine.gid) && memcmp(&mine.gid, loopback, 16))
        gid++;
    put(peer, &mine, sizeof mine);
    if (!get(peer, &theirs, sizeof theirs))
        die("the peer is gone");
    connect_qp(qp, gid, 7, &theirs, 7);
    for (int i = 0; i < 16; i++)
        post_receive();
    if (ibv_req_notify_cq(cq, 0))
        die("ibv_req_notify_cq");
    fd = channel->fd;
    meet(peer);
}

static void send_one(void)
{
    if (qp) {
        static unsigned sent;
        struct ibv_sge sge = {.addr = (uintptr_t)buffer + size, .length = size, .lkey = mr->lkey};
        struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
        /* One in 32: the send queue has room for more. */
        if (++sent % 32 == 0)
            wr.send_flags = IBV_SEND_SIGNALED;
        if (ibv_post_send(qp, &wr, &bad))
            die("ibv_post_send");
        return;
    }
    uint64_t one = 1;
    size_t length = strcmp(what, "eventfd") ? size : 8;
    if (write(send_fd, strcmp(what, "eventfd") ? (void *)buffer : (void *)&one, length) != (ssize_t)length)
        die("write");
}

static void take_completions(void)
{
    struct ibv_wc wc[16];
    for (int n; (n = ibv_poll_cq(cq, 16, wc)) != 0;) {
        if (n < 0)
            die("ibv_poll_cq");
        for (int i = 0; i < n; i++) {
            if (wc[i].status)
                die("status %d", wc[i].status);
            if (wc[i].opcode & IBV_WC_RECV) {
                received++;
                post_receive();
            }
        }
    }
}

/* As programs with an event loop do: the event, arm anew, then all completions. */
static void receive_one(void)
{
    if (qp) {
        while (!received) {
            wait_for_it();
            struct ibv_cq *source;
            void *context;
            int events = 0;
            while (!ibv_get_cq_event(channel, &source, &context))
                events++;
            if (events) {
                ibv_ack_cq_events(cq, events);
                if (ibv_req_notify_cq(cq, 0))
                    die("ibv_req_notify_cq");
            }
            take_completions();
        }
        received--;
        return;
    }
    size_t length = strcmp(what, "eventfd") ? size : 8;
    for (size_t done = 0; done < length;) {
        wait_for_it();
        ssize_t n = read(fd, buffer + done, length - done);
        if (n == 0)
            die("the peer is gone");
        if (n > 0)
            done += n;
        else if (errno != EAGAIN)
            die("read");
    }
}

static void tcp_pair(int ends[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 1) ||
        getsockname(listener, (void *)&address, &length))
        die("listen");
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(ends[0], (void *)&address, sizeof address))
        die("connect");
    ends[1] = accept(listener, NULL, NULL);
    for (int i = 0; i < 2; i++)
        setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static void udp_pair(int ends[2])
{
    struct sockaddr_in address[2];
    for (int i = 0; i < 2; i++) {
        socklen_t length = sizeof address[i];
        address[i] = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        ends[i] = socket(AF_INET, SOCK_DGRAM, 0);
        if (bind(ends[i], (void *)&address[i], sizeof address[i]) || getsockname(ends[i], (void *)&address[i], &length))
            die("bind");
    }
    for (int i = 0; i < 2; i++)
        if (connect(ends[i], (void *)&address[!i], sizeof address[i]))
            die("connect");
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double processor_time(int who)
{
    struct rusage usage;
    getrusage(who, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        die("usage: asleep tcp|udp|eventfd|rc epoll|edge|nested|poll|select SIZE COUNT");
    what = argv[1], how = argv[2], size = atoi(argv[3]);
    int count = atoi(argv[4]), warm = count / 10, meeting[2], ends[2] = {-1, -1};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, meeting))
        die("socketpair");
    if (!strcmp(what, "tcp"))
        tcp_pair(ends);
    else if (!strcmp(what, "udp"))
        udp_pair(ends);
    else if (!strcmp(what, "eventfd"))
        for (int i = 0; i < 2; i++)
            ends[i] = eventfd(0, 0);
    pid_t child = fork();
    if (child < 0)
        die("fork");
    int side = child == 0;
    close(meeting[!side]);
    if (!strcmp(what, "rc")) {
        open_rdma(meeting[side]);
    } else {
        fd = ends[side];
        send_fd = strcmp(what, "eventfd") ? fd : ends[!side];
        buffer = calloc(1, size + 8);
    }
    prepare();
    meet(meeting[side]);
    if (side) {
        double before = 0;
        for (int i = 0; i < warm + count; i++) {
            if (i == warm)
                before = processor_time(RUSAGE_SELF);
            receive_one();
            send_one();
        }
        double used = processor_time(RUSAGE_SELF) - before;
        put(meeting[side], &used, sizeof used);
        meet(meeting[side]);
        return 0;
    }
    double *times = calloc(count, sizeof *times), before = 0, theirs;
    for (int i = 0; i < warm + count; i++) {
        if (i == warm)
            before = processor_time(RUSAGE_SELF);
        double start = now();
        send_one();
        receive_one();
        if (i >= warm)
            times[i - warm] = (now() - start) * 1e6;
    }
    double used = processor_time(RUSAGE_SELF) - before;
    if (!get(meeting[side], &theirs, sizeof theirs))
        die("the peer is gone");
    meet(meeting[side]);
    waitpid(child, NULL, 0);
    qsort(times, count, sizeof *times, by_size);
    printf("%s %s: median %.1f us, 99%% %.1f us, processor time %.1f us\n", what, how, times[count / 2],
           times[count * 99 / 100], (used + theirs) / count * 1e6);
    return 0;
}
