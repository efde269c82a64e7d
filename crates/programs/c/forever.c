/* Programs that wait for ever on any NIC, each for a reason of its own.
 *
 * forever GID-INDEX CASE PORT [HOW]
 *
 * Events that were taken and not acknowledged:
 *   ack-cq          ibv_destroy_cq, after an event of the queue that was not acknowledged
 *   ack-qp          ibv_destroy_qp, after such an asynchronous event
 *   ack-srq         ibv_destroy_srq, after such an event of its limit
 *   ack-id          rdma_destroy_id, after such an event of the id
 *   ack-ep          rdma_destroy_ep, likewise
 * A thread in ibv_get_cq_event:
 *   never-armed     no ibv_req_notify_cq was called, and a completion lies in the queue
 *   disarmed        one event came, and the queue was not armed again
 *   solicited       the queue is armed for solicited completions, and the SEND was none
 *   no-queue        no completion queue was made with that channel
 *   nothing-posted  the queue is armed, and nothing was posted that completes into it
 *   unsignaled      the send that ended was not signaled
 *   unreceived      the send that is under way is not signaled
 *   init            the receive's queue pair was left in INIT
 *   message         a receive is posted, and the peer does not send
 * A program that polls in vain:
 *   poll-nothing    ibv_poll_cq, and nothing was posted
 *   poll-other      ibv_poll_cq of send_cq, while the receive completes into recv_cq
 *   poll-ex         ibv_start_poll of a queue that no queue pair completes into
 * The connection manager, and asynchronous events:
 *   listen          rdma_get_cm_event of a listener, and nobody asks
 *   request         rdma_get_request, and nobody asks
 *   idle            rdma_get_cm_event, while the only id was asked for nothing
 *   no-id           rdma_get_cm_event of a channel without ids
 *   async           ibv_get_async_event, and nothing happens
 * rsockets:
 *   sock-accept     raccept, and nobody asks
 *   sock-poll       rpoll of a socket that listens, and nobody asks
 *   sock-receive    rrecv of a socket whose peer does not send
 * Descriptors that a thread sleeps on outside our calls:
 *   fd-poll         poll of a channel whose queue was never armed
 *   fd-epoll        epoll_wait for a channel whose queue is armed, and nothing was posted
 *   fd-select       select for a channel whose queue was never armed
 *   fd-read         read of such a channel's descriptor
 *   fd-timeouts     poll of such a channel with a timeout, over and over
 *   fd-listen       poll of the event channel of a listener, and nobody asks
 *   fd-async        poll of the context's async_fd, and nothing happens
 *   fd-mixed        epoll_wait for a channel, a listener and a pipe
 *
 * HOW: "handled": a handler that ends no call by itself is there for SIGINT, and the program then ends with 3; "thread":
 * it is another thread that waits, and the main thread waits for its end.
 */
#define _GNU_SOURCE
#include "rc.h"
#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>

static const char *what;
static int gid_index, port;
static const char *service;

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_comp_channel *channel;
static struct ibv_cq *send_cq, *cq;
static struct ibv_qp *qp[2];
static uint8_t memory[4096];

static int is(const char *name)
{
    return !strcmp(what, name);
}

static int starts(const char *prefix)
{
    return !strncmp(what, prefix, strlen(prefix));
}

static void receive(struct ibv_qp *at)
{
    struct ibv_sge sge = {.addr = (uintptr_t)memory + 2048, .length = 64, .lkey = mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1}, *bad;
    if ((errno = ibv_post_recv(at, &wr, &bad)))
        die("ibv_post_recv");
}

static void send_flagged(struct ibv_qp *from, int flags)
{
    struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = 8, .lkey = mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = flags}, *bad;
    if ((errno = ibv_post_send(from, &wr, &bad)))
        die("ibv_post_send");
}

static void take_event(void)
{
    struct ibv_cq *source;
    void *cookie;
    if (ibv_get_cq_event(channel, &source, &cookie))
        die("ibv_get_cq_event");
}

static void to_rts(int with_peer)
{
    union ibv_gid gid;
    if (ibv_query_gid(context, 1, gid_index, &gid))
        die("ibv_query_gid");
    for (int i = 0; i < 2; i++) {
        struct endpoint peer = {.gid = gid, .qpn = qp[with_peer ? !i : i]->qp_num, .psn = 100};
        connect_qp(qp[i], gid_index, 100, &peer, 7);
    }
}

/* Two queue pairs that are connected with each other. Those of the second one complete into `cq`, which has a channel. */
static void set_up(void)
{
    context = open_device();
    pd = ibv_alloc_pd(context);
    channel = ibv_create_comp_channel(context);
    send_cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    cq = ibv_create_cq(context, 16, NULL, is("no-queue") ? NULL : channel, 0);
    mr = pd ? ibv_reg_mr(pd, memory, sizeof memory, ALL_MR_ACCESS) : NULL;
    if (!channel || !send_cq || !cq || !mr)
        die("set-up");
    qp[0] = make_qp(pd, send_cq, ALL_QP_ACCESS);
    qp[1] = make_qp(pd, cq, ALL_QP_ACCESS);
    if (!is("init"))
        to_rts(1);
}

static void destroy(int error, const char *verb)
{
    errno = error;
    if (error)
        die("%s", verb);
}

/* An asynchronous event of the queue pair: the peer's first request before it is in RTS. */
static void take_async(enum ibv_event_type wanted)
{
    struct ibv_async_event event;
    do
        if (ibv_get_async_event(context, &event))
            die("ibv_get_async_event");
    while (event.event_type != wanted);
}

static void acks(void)
{
    struct rdma_cm_id *id;
    struct rdma_cm_event *event;
    if (is("ack-cq")) {
        set_up();
        ibv_req_notify_cq(cq, 0);
        receive(qp[1]);
        send_flagged(qp[0], IBV_SEND_SIGNALED);
        take_event();
        destroy(ibv_destroy_qp(qp[1]), "ibv_destroy_qp");
        say("waits");
        destroy(ibv_destroy_cq(cq), "ibv_destroy_cq");
    } else if (is("ack-qp")) {
        set_up();
        /* Beyond the region: the responder refuses it. */
        struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = 8, .lkey = mr->lkey};
        struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED}, *bad;
        wr.wr.rdma.remote_addr = (uintptr_t)memory + sizeof memory;
        wr.wr.rdma.rkey = mr->rkey;
        if ((errno = ibv_post_send(qp[0], &wr, &bad)))
            die("ibv_post_send");
        take_async(IBV_EVENT_QP_ACCESS_ERR);
        say("waits");
        destroy(ibv_destroy_qp(qp[1]), "ibv_destroy_qp");
    } else if (is("ack-srq")) {
        set_up();
        struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
        struct ibv_srq *srq = ibv_create_srq(pd, &init);
        struct ibv_srq_attr limit = {.srq_limit = 4};
        if (!srq || (errno = ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT)))
            die("ibv_modify_srq");
        take_async(IBV_EVENT_SRQ_LIMIT_REACHED);
        say("waits");
        destroy(ibv_destroy_srq(srq), "ibv_destroy_srq");
    } else {
        struct rdma_event_channel *events = rdma_create_event_channel();
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
        inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
        if (!events || rdma_create_id(events, &id, NULL, RDMA_PS_TCP) ||
            rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000) || rdma_get_cm_event(events, &event))
            die("rdma_resolve_addr");
        say("waits");
        if (is("ack-ep"))
            rdma_destroy_ep(id);
        else
            rdma_destroy_id(id);
    }
}

static void queue_events(void)
{
    set_up();
    if (is("disarmed")) {
        ibv_req_notify_cq(cq, 0);
        for (int i = 0; i < 2; i++)
            receive(qp[1]);
        send_flagged(qp[0], IBV_SEND_SIGNALED);
        take_event();
        ibv_ack_cq_events(cq, 1);
        send_flagged(qp[0], IBV_SEND_SIGNALED);
        for (int i = 0; i < 2; i++)
            next_completion(send_cq);
    } else if (is("never-armed")) {
        receive(qp[1]);
        send_flagged(qp[0], IBV_SEND_SIGNALED);
        next_completion(send_cq);
    } else if (is("solicited")) {
        ibv_req_notify_cq(cq, 1);
        receive(qp[1]);
        send_flagged(qp[0], IBV_SEND_SIGNALED);
        next_completion(send_cq);
    } else {
        ibv_req_notify_cq(cq, 0);
        if (is("message") || is("init"))
            receive(qp[1]);
        if (is("unsignaled")) {
            receive(qp[0]);
            send_flagged(qp[1], 0);
            next_completion(send_cq);
        }
        if (is("unreceived"))
            send_flagged(qp[1], 0);
    }
    say("waits");
    take_event();
}

static void polls(void)
{
    struct ibv_wc wc;
    set_up();
    if (is("poll-other"))
        receive(qp[1]);
    if (is("poll-ex")) {
        struct ibv_cq_init_attr_ex init = {.cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS};
        struct ibv_cq_ex *extended = ibv_create_cq_ex(context, &init);
        if (!extended)
            die("ibv_create_cq_ex");
        struct ibv_poll_cq_attr attr = {0};
        say("waits");
        while (ibv_start_poll(extended, &attr) == ENOENT)
            ;
    }
    say("waits");
    while (!ibv_poll_cq(is("poll-other") ? send_cq : cq, 1, &wc))
        ;
}

static struct rdma_event_channel *listener(void)
{
    struct rdma_event_channel *events = rdma_create_event_channel();
    struct rdma_cm_id *id;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    if (!events || rdma_create_id(events, &id, NULL, RDMA_PS_TCP) || rdma_bind_addr(id, (struct sockaddr *)&address) ||
        rdma_listen(id, 4))
        die("rdma_listen");
    return events;
}

static void connections(void)
{
    struct rdma_cm_event *event;
    struct rdma_cm_id *id, *request;
    struct rdma_event_channel *events;
    if (is("listen")) {
        events = listener();
    } else if (is("request")) {
        struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *info;
        struct ibv_qp_init_attr init = {
            .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}, .qp_type = IBV_QPT_RC};
        if (rdma_getaddrinfo("127.0.0.1", service, &hints, &info) || rdma_create_ep(&id, info, NULL, &init) || rdma_listen(id, 1))
            die("rdma_create_ep");
        say("waits");
        if (rdma_get_request(id, &request))
            die("rdma_get_request");
        return;
    } else {
        events = rdma_create_event_channel();
        if (is("idle") && rdma_create_id(events, &id, NULL, RDMA_PS_TCP))
            die("rdma_create_id");
    }
    say("waits");
    if (rdma_get_cm_event(events, &event))
        die("rdma_get_cm_event");
}

static void descriptors(void)
{
    struct rdma_event_channel *events = is("fd-listen") || is("fd-mixed") ? listener() : NULL;
    struct pollfd fds[2] = {{.fd = -1, .events = POLLIN}, {.fd = -1, .events = POLLIN}};
    set_up();
    if (is("fd-epoll") || is("fd-mixed"))
        ibv_req_notify_cq(cq, 0);
    fds[0].fd = is("fd-listen") ? events->fd : is("fd-async") ? context->async_fd : channel->fd;
    if (is("fd-mixed")) {
        int ends[2];
        fds[1].fd = pipe(ends) ? -1 : ends[0];
    }
    say("waits");
    if (is("fd-epoll") || is("fd-mixed")) {
        int set = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLIN};
        for (int i = 0; i < 2; i++)
            if (fds[i].fd >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fds[i].fd, &event))
                die("epoll_ctl");
        if (is("fd-mixed") && epoll_ctl(set, EPOLL_CTL_ADD, events->fd, &event))
            die("epoll_ctl");
        if (epoll_wait(set, &event, 1, -1) < 0)
            die("epoll_wait");
    } else if (is("fd-select")) {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(fds[0].fd, &set);
        if (select(fds[0].fd + 1, &set, NULL, NULL, NULL) < 0)
            die("select");
    } else if (is("fd-read")) {
        uint64_t token;
        if (read(fds[0].fd, &token, sizeof token) < 0)
            die("read");
    } else {
        int n;
        do
            n = poll(fds, 1, is("fd-timeouts") ? 50 : -1);
        while (!n);
        if (n < 0)
            die("poll");
    }
}

static struct sockaddr_in at_port(void)
{
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void *connect_to_it(void *unused)
{
    struct sockaddr_in at = at_port();
    if (rconnect(rsocket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&at, sizeof at))
        die("rconnect");
    return unused;
}

static void sockets(void)
{
    struct sockaddr_in at = at_port();
    int listener = rsocket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || rbind(listener, (struct sockaddr *)&at, sizeof at) || rlisten(listener, 4))
        die("rlisten");
    if (is("sock-poll")) {
        struct pollfd fd = {.fd = listener, .events = POLLIN};
        rpoll(&fd, 1, -1);
        return;
    }
    pthread_t peer;
    if (is("sock-receive") && pthread_create(&peer, NULL, connect_to_it, NULL))
        die("pthread_create");
    char byte;
    int accepted = raccept(listener, NULL, NULL);
    if (accepted < 0 || rrecv(accepted, &byte, 1, 0) < 0)
        die("rrecv");
}

static void *wait_for_ever(void *unused)
{
    struct ibv_async_event event;
    if (starts("ack-"))
        acks();
    else if (starts("poll-"))
        polls();
    else if (starts("fd-"))
        descriptors();
    else if (starts("sock-"))
        sockets();
    else if (is("async")) {
        set_up();
        say("waits");
        if (ibv_get_async_event(context, &event))
            die("ibv_get_async_event");
    } else if (is("listen") || is("request") || is("idle") || is("no-id"))
        connections();
    else
        queue_events();
    return unused;
}

static volatile sig_atomic_t interrupted;

static void note(int signal)
{
    interrupted = signal;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        die("usage: forever GID-INDEX CASE PORT [HOW]");
    gid_index = atoi(argv[1]);
    what = argv[2];
    port = atoi(service = argv[3]);
    const char *how = argc > 4 ? argv[4] : "";
    if (!strcmp(how, "handled")) {
        struct sigaction action = {.sa_handler = note};
        sigaction(SIGINT, &action, NULL);
    }
    if (!strcmp(how, "thread")) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, wait_for_ever, NULL))
            die("pthread_create");
        pthread_join(thread, NULL);
    } else {
        wait_for_ever(NULL);
    }
    say("goes on");
    return interrupted ? 3 : 0;
}
