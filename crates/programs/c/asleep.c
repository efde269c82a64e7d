/* Ping-pong of two processes that sleep in epoll_wait, poll or select between two messages.
 *
 * asleep WHAT HOW SIZE COUNT [MILLISECONDS [lead|follow ADDRESS]]: WHAT is tcp, udp, eventfd or rc;
 * HOW is epoll, edge, crowd (an epoll set with more descriptors, on which nothing comes), nested
 * (an epoll set in another one), polled (poll of an epoll set), poll or select. It ends after COUNT
 * round trips, or after so long. It starts the second process by itself, unless it is said to lead
 * or to follow: then both have a socket to each other as standard input, and an address of their
 * own.
 *
 * Prints round trips: median and 99th percentile in microseconds, and processor time of both
 * processes per round trip. */
#include <arpa/inet.h>
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

/* What a message says. */
enum word { GO_ON, WARM, OVER };

static const char *what, *how, *own_address = "127.0.0.1";
static size_t size;
static int fd = -1;      /* The descriptor that is waited for. */
static int send_fd = -1; /* Where messages go, unless by RDMA. */
static int outer = -1, inner = -1;

/* Descriptors on which nothing comes: channels, or eventfds. */
#define CROWD 15
static int crowd[CROWD];

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
    for (int i = 0; i < CROWD && !strcmp(how, "crowd"); i++)
        if (add(inner, crowd[i], EPOLLIN))
            die("crowd");
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
    } else if (!strcmp(how, "polled")) {
        struct pollfd one = {.fd = inner, .events = POLLIN};
        n = poll(&one, 1, DEADLINE_SECONDS * 1000);
        if (n == 1)
            n = epoll_wait(inner, &event, 1, 0);
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
    for (int i = 0; i < CROWD && !strcmp(how, "crowd"); i++) {
        channel = ibv_create_comp_channel(context);
        crowd[i] = channel ? channel->fd : -1;
    }
    channel = ibv_create_comp_channel(context);
    if (!channel)
        die("ibv_create_comp_channel");
    cq = ibv_create_cq(context, 256, NULL, channel, 0);
    buffer = calloc(2, size + 8);
    mr = ibv_reg_mr(pd, buffer, 2 * size, IBV_ACCESS_LOCAL_WRITE);
    if (!cq || !mr)
        die("objects");
    qp = make_qp(pd, cq, IBV_ACCESS_LOCAL_WRITE);
    struct endpoint mine = {.qpn = qp->qp_num, .psn = 7}, theirs;
    int gid = 0;
    uint8_t wanted[16] = {[10] = 0xff, [11] = 0xff};
    if (inet_pton(AF_INET, own_address, wanted + 12) != 1)
        die("address");
    while (!ibv_query_gid(context, 1, gid, &mine.gid) && memcmp(&mine.gid, wanted, 16))
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

static void send_one(enum word word)
{
    buffer[size] = word;
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
    /* An eventfd adds, and tells nothing of 0. */
    uint64_t count = 1 + word;
    size_t length = strcmp(what, "eventfd") ? size : 8;
    if (write(send_fd, strcmp(what, "eventfd") ? (void *)(buffer + size) : (void *)&count, length) != (ssize_t)length)
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
static enum word receive_one(void)
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
        return buffer[0];
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
    return strcmp(what, "eventfd") ? buffer[0] : buffer[0] - 1;
}

/* A socket of this type with the own address, at a port that the kernel chooses. */
static int bound(int type, struct sockaddr_in *address)
{
    socklen_t length = sizeof *address;
    *address = (struct sockaddr_in){.sin_family = AF_INET};
    int made = socket(AF_INET, type, 0);
    if (inet_pton(AF_INET, own_address, &address->sin_addr) != 1 || bind(made, (void *)address, length) ||
        getsockname(made, (void *)address, &length))
        die("bind");
    return made;
}

static void swap(int peer, struct sockaddr_in *mine, struct sockaddr_in *theirs)
{
    put(peer, mine, sizeof *mine);
    if (!get(peer, theirs, sizeof *theirs))
        die("the peer is gone");
}

static void open_sockets(int peer, int follows)
{
    struct sockaddr_in mine, theirs;
    int type = strcmp(what, "tcp") ? SOCK_DGRAM : SOCK_STREAM, one = 1;
    fd = bound(type, &mine);
    if (type == SOCK_STREAM && follows && listen(fd, 1))
        die("listen");
    swap(peer, &mine, &theirs);
    if (type == SOCK_STREAM && follows)
        fd = accept(fd, NULL, NULL);
    else if (connect(fd, (void *)&theirs, sizeof theirs))
        die("connect");
    if (fd < 0 || (type == SOCK_STREAM && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one)))
        die("TCP");
    send_fd = fd;
}

/* Each makes one and hands it to the other (unix(7)). */
static void open_eventfds(int peer)
{
    char byte = 0, room[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = {0};
    struct iovec data = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    fd = eventfd(0, 0);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    if (fd < 0 || sendmsg(peer, &message, 0) != 1 || recvmsg(peer, &message, 0) != 1)
        die("eventfd");
    memcpy(&send_fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof send_fd);
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

/* Answers until it is over; gives the processor time since it was warm. */
static double follow(void)
{
    double before = 0;
    for (;;) {
        enum word word = receive_one();
        if (word == WARM)
            before = processor_time(RUSAGE_SELF);
        send_one(word);
        if (word == OVER)
            return processor_time(RUSAGE_SELF) - before;
    }
}

static double round_trip(enum word word)
{
    double start = now();
    send_one(word);
    receive_one();
    return now() - start;
}

int main(int argc, char **argv)
{
    if (argc != 5 && argc != 6 && argc != 8)
        die("usage: asleep tcp|udp|eventfd|rc epoll|edge|crowd|nested|polled|poll|select SIZE COUNT [MILLISECONDS [lead|follow ADDRESS]]");
    what = argv[1], how = argv[2], size = atoi(argv[3]);
    int most = atoi(argv[4]), meeting[2] = {STDIN_FILENO, STDIN_FILENO}, side = 0;
    double time = argc > 5 ? atoi(argv[5]) * 1e-3 : 1e9;
    if (size < 1 || most < 1)
        die("SIZE and COUNT are 1 or more");
    pid_t child = -1;
    if (argc == 8) {
        side = !strcmp(argv[6], "follow");
        own_address = argv[7];
    } else {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, meeting) || (child = fork()) < 0)
            die("the second process");
        side = child == 0;
        close(meeting[!side]);
    }
    int peer = meeting[side];
    if (!strcmp(what, "rc")) {
        open_rdma(peer);
    } else {
        buffer = calloc(2, size + 8);
        for (int i = 0; i < CROWD; i++)
            crowd[i] = eventfd(0, 0);
        if (!strcmp(what, "eventfd"))
            open_eventfds(peer);
        else
            open_sockets(peer, side);
    }
    prepare();
    meet(peer);
    if (side) {
        double used = follow();
        put(peer, &used, sizeof used);
        meet(peer);
        return 0;
    }
    double *times = calloc(most, sizeof *times), theirs, start = now();
    for (int i = 0; i < most / 10 && now() - start < time / 10; i++)
        round_trip(GO_ON);
    round_trip(WARM);
    double before = processor_time(RUSAGE_SELF);
    int count = 0;
    for (start = now(); count < most && now() - start < time; count++)
        times[count] = round_trip(GO_ON) * 1e6;
    round_trip(OVER);
    double used = processor_time(RUSAGE_SELF) - before;
    if (!get(peer, &theirs, sizeof theirs))
        die("the peer is gone");
    meet(peer);
    if (child > 0)
        waitpid(child, NULL, 0);
    qsort(times, count, sizeof *times, by_size);
    printf("%s %s: median %.1f us, 99%% %.1f us, processor time %.1f us\n", what, how, times[count / 2],
           times[count * 99 / 100], (used + theirs) / count * 1e6);
    return 0;
}
