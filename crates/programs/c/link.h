/* A connection by TCP or by RC with a descriptor that becomes readable when a message has come, for
 * programs with an event loop. */
#ifndef LINK_H
#define LINK_H

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "rc.h"

/* Bytes of a message. */
#define MESSAGE 64
#define RECEIVES 16

struct link {
    int fd;
    struct ibv_comp_channel *channel; /* Of RC. */
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    unsigned sent;
    size_t part; /* Bytes of a message that is not whole yet, of TCP. */
    char buffer[2 * MESSAGE];
};

static void post_receive(struct link *link)
{
    struct ibv_sge sge = {.addr = (uintptr_t)link->buffer, .length = MESSAGE, .lkey = link->mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    if (ibv_post_recv(link->qp, &wr, &bad))
        die("ibv_post_recv");
}

/* A channel, a completion queue and a queue pair, connected with those of the process at the other
 * end of a socket. */
static void open_rc(struct link *link, int peer)
{
    static struct ibv_context *context;
    static struct ibv_pd *pd;
    static int gid;
    static union ibv_gid address;
    static const uint8_t loopback[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};
    if (!context) {
        context = open_device();
        pd = ibv_alloc_pd(context);
        while (!ibv_query_gid(context, 1, gid, &address) && memcmp(&address, loopback, 16))
            gid++;
    }
    link->channel = ibv_create_comp_channel(context);
    if (!pd || !link->channel)
        die("ibv_create_comp_channel");
    link->cq = ibv_create_cq(context, 128, NULL, link->channel, 0);
    link->mr = ibv_reg_mr(pd, link->buffer, sizeof link->buffer, IBV_ACCESS_LOCAL_WRITE);
    if (!link->cq || !link->mr)
        die("objects");
    link->qp = make_qp(pd, link->cq, IBV_ACCESS_LOCAL_WRITE);
    struct endpoint mine = {.gid = address, .qpn = link->qp->qp_num, .psn = 7}, theirs;
    put(peer, &mine, sizeof mine);
    if (!get(peer, &theirs, sizeof theirs))
        die("the peer is gone");
    connect_qp(link->qp, gid, 7, &theirs, 7);
    for (int i = 0; i < RECEIVES; i++)
        post_receive(link);
    if (ibv_req_notify_cq(link->cq, 0))
        die("ibv_req_notify_cq");
    link->fd = link->channel->fd;
    meet(peer);
}

/* One of the two listens, on a port of loopback that it tells the other. */
static void open_tcp(struct link *link, int peer, int listens)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int one = 1;
    link->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (listens) {
        int listener = link->fd;
        if (bind(listener, (void *)&address, length) || listen(listener, 1) ||
            getsockname(listener, (void *)&address, &length))
            die("listen");
        put(peer, &address, sizeof address);
        link->fd = accept(listener, NULL, NULL);
        close(listener);
    } else if (!get(peer, &address, sizeof address) || connect(link->fd, (void *)&address, length)) {
        die("connect");
    }
    if (link->fd < 0 || setsockopt(link->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one))
        die("TCP");
}

/* By `rc` or `tcp`; the descriptor does not block. */
static struct link *open_link(const char *what, int peer, int listens)
{
    struct link *link = calloc(1, sizeof *link);
    if (!strcmp(what, "rc"))
        open_rc(link, peer);
    else
        open_tcp(link, peer, listens);
    if (fcntl(link->fd, F_SETFL, fcntl(link->fd, F_GETFL) | O_NONBLOCK))
        die("fcntl");
    return link;
}

static void send_message(struct link *link)
{
    if (!link->qp) {
        if (write(link->fd, link->buffer + MESSAGE, MESSAGE) != MESSAGE)
            die("write");
        return;
    }
    struct ibv_sge sge = {.addr = (uintptr_t)link->buffer + MESSAGE, .length = MESSAGE, .lkey = link->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    /* One in 32: the send queue has room for more. */
    if (++link->sent % 32 == 0)
        wr.send_flags = IBV_SEND_SIGNALED;
    if (ibv_post_send(link->qp, &wr, &bad))
        die("ibv_post_send");
}

/* The messages that have come, without waiting: the event, arm anew, then all completions. */
static int take_messages(struct link *link)
{
    int messages = 0, events = 0;
    if (!link->qp) {
        ssize_t n;
        while ((n = read(link->fd, link->buffer + link->part, MESSAGE - link->part)) > 0) {
            link->part = (link->part + n) % MESSAGE;
            messages += link->part == 0;
        }
        if (n == 0 || errno != EAGAIN)
            die("read");
        return messages;
    }
    struct ibv_cq *source;
    void *context;
    while (!ibv_get_cq_event(link->channel, &source, &context))
        events++;
    if (events) {
        ibv_ack_cq_events(link->cq, events);
        if (ibv_req_notify_cq(link->cq, 0))
            die("ibv_req_notify_cq");
    }
    struct ibv_wc wc[RECEIVES];
    for (int n; (n = ibv_poll_cq(link->cq, RECEIVES, wc)) != 0;) {
        if (n < 0)
            die("ibv_poll_cq");
        for (int i = 0; i < n; i++) {
            if (wc[i].status)
                die("status %d", wc[i].status);
            if (wc[i].opcode & IBV_WC_RECV) {
                messages++;
                post_receive(link);
            }
        }
    }
    return messages;
}

static void add(int set, int fd, void *data)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = data};
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event))
        die("epoll_ctl");
}

static double __attribute__((unused)) processor_time(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static int __attribute__((unused)) by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#endif
