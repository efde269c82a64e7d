/* Waiting for the descriptors of completion channels in every way there is: epoll_wait and its kin, poll, ppoll, select, pselect.
 *
 * waits CASE GID_INDEX
 *
 * A child is the peer: it echoes what it receives, and sends unasked when it is told to. Each message carries a number, and each
 * has to come once and in order. What hangs ends with a message that says where. Prints "CASE: well" at the end.
 */
#define _GNU_SOURCE
#define DEADLINE_SECONDS 40
#include "rc.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

enum { DEPTH = 32, LENGTH = 64, MOST = 8 };

static int gid_index;

/* Where a thread is, for the message that ends a program which hangs. */
static const char *volatile at = "the beginning";
static volatile long at_number;

static void here(const char *what, long number)
{
    at_number = number;
    at = what;
}

static void *watch(void *unused)
{
    double end = now() + DEADLINE_SECONDS;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    while (now() < end)
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    errno = ETIMEDOUT;
    die("hangs at %s, %ld", at, at_number);
    return unused;
}

static pthread_t start(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    if ((errno = pthread_create(&thread, NULL, function, argument)))
        die("pthread_create");
    return thread;
}

static void *join(pthread_t thread)
{
    void *result;
    if ((errno = pthread_join(thread, &result)))
        die("pthread_join");
    return result;
}

/* --- Connections --- */

static struct ibv_context *context;
static struct ibv_pd *pd;

struct connection {
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq, *send_cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint64_t *memory; /* DEPTH slots to receive into, DEPTH to send from, one that is written to. */
    struct endpoint peer;
    uint64_t sent, received;
};

static int slot = LENGTH / sizeof(uint64_t);

static void post_receive(struct connection *c, uint64_t id)
{
    struct ibv_sge sge = {.addr = (uintptr_t)(c->memory + id * slot), .length = LENGTH, .lkey = c->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
    if ((errno = ibv_post_recv(c->qp, &wr, &bad)))
        die("ibv_post_recv");
}

static void open_pd(void)
{
    context = open_device();
    if (!(pd = ibv_alloc_pd(context)))
        die("ibv_alloc_pd");
}

static struct ibv_comp_channel *make_channel(void)
{
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    if (!channel)
        die("ibv_create_comp_channel");
    return channel;
}

/* Over `fd` the two ends tell each other where they are. */
static void open_connection(struct connection *c, struct ibv_comp_channel *channel, int fd)
{
    memset(c, 0, sizeof *c);
    c->channel = channel;
    c->cq = ibv_create_cq(context, 4 * DEPTH, NULL, channel, 0);
    c->send_cq = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
    c->memory = calloc(2 * DEPTH + 1, LENGTH);
    c->mr = ibv_reg_mr(pd, c->memory, (2 * DEPTH + 1) * LENGTH, ALL_MR_ACCESS);
    if (!c->cq || !c->send_cq || !c->mr)
        die("objects");
    struct ibv_qp_init_attr init = {
        .send_cq = c->send_cq,
        .recv_cq = c->cq,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
    };
    if (!(c->qp = ibv_create_qp(pd, &init)))
        die("ibv_create_qp");
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL_QP_ACCESS};
    if ((errno = ibv_modify_qp(c->qp, &attr,
                               IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)))
        die("ibv_modify_qp");
    struct endpoint own = {.qpn = c->qp->qp_num,
                           .psn = 7,
                           .address = (uintptr_t)(c->memory + 2 * DEPTH * slot),
                           .rkey = c->mr->rkey};
    if (ibv_query_gid(context, 1, gid_index, &own.gid))
        die("ibv_query_gid");
    put(fd, &own, sizeof own);
    if (!get(fd, &c->peer, sizeof c->peer))
        die("the peer is gone");
    connect_qp(c->qp, gid_index, 7, &c->peer, 7);
    for (int i = 0; i < DEPTH; i++)
        post_receive(c, i);
    if ((errno = ibv_req_notify_cq(c->cq, 0)))
        die("ibv_req_notify_cq");
    meet(fd);
}

static void close_connection(struct connection *c)
{
    if ((errno = ibv_destroy_qp(c->qp)) || (errno = ibv_destroy_cq(c->cq)) || (errno = ibv_destroy_cq(c->send_cq)) ||
        (errno = ibv_dereg_mr(c->mr)))
        die("destroying a connection");
    free(c->memory);
}

static void post(struct connection *c, enum ibv_wr_opcode opcode)
{
    uint64_t *from = c->memory + (DEPTH + c->sent % DEPTH) * slot;
    struct ibv_sge sge = {.addr = (uintptr_t)from, .length = LENGTH, .lkey = c->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED}, *bad;
    if (opcode == IBV_WR_SEND)
        *from = c->sent++;
    wr.wr.rdma.remote_addr = c->peer.address;
    wr.wr.rdma.rkey = c->peer.rkey;
    if ((errno = ibv_post_send(c->qp, &wr, &bad)))
        die("ibv_post_send");
}

/* The send queue is empty again. */
static void settle_sends(struct connection *c, int count)
{
    while (count-- > 0) {
        struct ibv_wc wc = next_completion(c->send_cq);
        if (wc.status)
            die("sending: %s", ibv_wc_status_str(wc.status));
    }
}

static void send_one(struct connection *c)
{
    struct ibv_wc wc;
    post(c, IBV_WR_SEND);
    while (ibv_poll_cq(c->send_cq, 1, &wc) == 1)
        if (wc.status)
            die("sending: %s", ibv_wc_status_str(wc.status));
}

/* All completions there are; `answer`: each message goes back. */
static int drain(struct connection *c, int answer)
{
    struct ibv_wc wc;
    int count = 0, n;
    while ((n = ibv_poll_cq(c->cq, 1, &wc)) == 1) {
        if (wc.status)
            die("receiving: %s", ibv_wc_status_str(wc.status));
        uint64_t number = c->memory[wc.wr_id * slot];
        if (number != c->received)
            die("message %lu came as the one number %lu", (long)number, (long)c->received);
        c->received++;
        count++;
        post_receive(c, wc.wr_id);
        if (answer)
            send_one(c);
    }
    if (n < 0)
        die("ibv_poll_cq");
    return count;
}

/* As programs do: the event, arm anew, all completions. 0 events: somebody else took it, of a channel that does not block. */
static int take(struct connection *c)
{
    struct ibv_cq *cq;
    void *cq_context;
    here("ibv_get_cq_event after the channel was readable", c->received);
    if (ibv_get_cq_event(c->channel, &cq, &cq_context)) {
        if (errno == EAGAIN)
            return 0;
        die("ibv_get_cq_event");
    }
    if (cq != c->cq)
        die("an event of another queue");
    ibv_ack_cq_events(cq, 1);
    if ((errno = ibv_req_notify_cq(cq, 0)))
        die("ibv_req_notify_cq");
    return drain(c, 0);
}

static void non_blocking(int fd)
{
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK))
        die("fcntl");
}

/* Whether it is readable as the kernel says, asked without the C library. */
static int readable_now(int fd)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    struct timespec zero = {0};
    return syscall(SYS_ppoll, &one, 1, &zero, NULL, 0) == 1;
}

/* --- The peer --- */

enum order { OPEN, SEND, WRITE, WRITE_NO_MORE, CLOSE, END };

struct command {
    enum order order;
    int connection, count, gap_us;
};

static int peer_fd;

static struct connection peers[MOST];
static int opened[MOST];
static pthread_mutex_t peer_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ibv_comp_channel *peer_channel;
static _Atomic int writes;

static void *echo(void *unused)
{
    for (;;) {
        struct ibv_cq *cq;
        void *cq_context;
        if (ibv_get_cq_event(peer_channel, &cq, &cq_context))
            die("the peer's ibv_get_cq_event");
        /* Who destroys the queue has the lock, and waits for this. */
        ibv_ack_cq_events(cq, 1);
        pthread_mutex_lock(&peer_lock);
        for (int i = 0; i < MOST; i++)
            if (opened[i] && peers[i].cq == cq) {
                if ((errno = ibv_req_notify_cq(cq, 0)))
                    die("ibv_req_notify_cq");
                drain(&peers[i], 1);
            }
        pthread_mutex_unlock(&peer_lock);
    }
    return unused;
}

static void pause_us(int us)
{
    if (us)
        nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000L}, NULL);
}

/* WRITEs without a word to the one that is written to. */
static void *write_all_the_time(void *argument)
{
    struct command command = *(struct command *)argument;
    struct connection *c = &peers[command.connection];
    while (writes) {
        pthread_mutex_lock(&peer_lock);
        post(c, IBV_WR_RDMA_WRITE);
        settle_sends(c, 1);
        pthread_mutex_unlock(&peer_lock);
        pause_us(command.gap_us);
    }
    return NULL;
}

static void __attribute__((noreturn)) be_peer(int fd)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    open_pd();
    peer_channel = make_channel();
    start(echo, NULL);
    static struct command command;
    struct command writing;
    pthread_t writer = 0;
    while (get(fd, &command, sizeof command)) {
        struct connection *c = &peers[command.connection];
        switch (command.order) {
        case OPEN:
            pthread_mutex_lock(&peer_lock);
            open_connection(c, peer_channel, fd);
            opened[command.connection] = 1;
            pthread_mutex_unlock(&peer_lock);
            break;
        case SEND:
            for (int i = 0; i < command.count; i++) {
                pthread_mutex_lock(&peer_lock);
                post(c, IBV_WR_SEND);
                settle_sends(c, 1);
                pthread_mutex_unlock(&peer_lock);
                pause_us(command.gap_us);
            }
            break;
        case WRITE:
            writing = command;
            writes = 1;
            writer = start(write_all_the_time, &writing);
            break;
        case WRITE_NO_MORE:
            writes = 0;
            join(writer);
            put(fd, "", 1);
            break;
        case CLOSE:
            pthread_mutex_lock(&peer_lock);
            opened[command.connection] = 0;
            close_connection(c);
            pthread_mutex_unlock(&peer_lock);
            put(fd, "", 1);
            break;
        case END:
            _exit(0);
        }
    }
    _exit(0);
}

static void order(enum order what, int connection, int count, int gap_us)
{
    struct command command = {.order = what, .connection = connection, .count = count, .gap_us = gap_us};
    put(peer_fd, &command, sizeof command);
    char byte;
    if ((what == WRITE_NO_MORE || what == CLOSE) && !get(peer_fd, &byte, 1))
        die("the peer is gone");
}

static void open_to_peer(struct connection *c, struct ibv_comp_channel *channel, int number)
{
    here("connecting", number);
    order(OPEN, number, 0, 0);
    open_connection(c, channel, peer_fd);
}

/* --- Ways to wait --- */

enum way { LEVEL, EDGE, ONESHOT, NESTED, PWAIT, PWAIT2, POLL, PPOLL, SELECT, PSELECT, WAYS };

static const char *const way_names[WAYS] = {"level",  "edge", "oneshot", "nested", "epoll_pwait", "epoll_pwait2",
                                            "poll",   "ppoll", "select", "pselect"};

/* Waits for `fd` in one of them. */
struct waiter {
    enum way way;
    int fd, set, outer;
};

static void add(int set, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.fd = fd};
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event))
        die("epoll_ctl");
}

static int make_set(void)
{
    int set = epoll_create1(EPOLL_CLOEXEC);
    if (set < 0)
        die("epoll_create1");
    return set;
}

static struct waiter make_waiter(enum way way, int fd)
{
    struct waiter w = {.way = way, .fd = fd, .set = -1, .outer = -1};
    if (way >= POLL)
        return w;
    w.set = make_set();
    add(w.set, fd, EPOLLIN | (way == EDGE ? EPOLLET : 0) | (way == ONESHOT ? EPOLLONESHOT : 0));
    if (way == NESTED) {
        w.outer = make_set();
        add(w.outer, w.set, EPOLLIN);
    }
    return w;
}

static void end_waiter(struct waiter *w)
{
    if (w->set >= 0)
        close(w->set);
    if (w->outer >= 0)
        close(w->outer);
}

static void arm(struct waiter *w)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = w->fd};
    if (w->way == ONESHOT && epoll_ctl(w->set, EPOLL_CTL_MOD, w->fd, &event))
        die("EPOLL_CTL_MOD");
}

/* Until the kernel says that a wait would find the channel readable. A set learns of it some instructions after the
 * descriptor shows it (`eventfd_write` counts before it wakes), so that the outermost set is asked. */
static void wait_until_ready(const struct waiter *w)
{
    here("the kernel's word that the channel is readable", w->way);
    while (!readable_now(w->outer >= 0 ? w->outer : w->set >= 0 ? w->set : w->fd))
        sched_yield();
}

/* What the call returned; a negative time has no end. With `mask`, if the call takes one. */
static int wait_masked(struct waiter *w, int ms, const sigset_t *mask)
{
    struct epoll_event event = {0};
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, *end = ms < 0 ? NULL : &time;
    struct timeval time_of_select = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000L};
    struct pollfd one = {.fd = w->fd, .events = POLLIN};
    fd_set fds;
    int n;
    switch (w->way) {
    case POLL:
        n = poll(&one, 1, ms);
        break;
    case PPOLL:
        n = ppoll(&one, 1, end, mask);
        break;
    case SELECT:
    case PSELECT:
        FD_ZERO(&fds);
        FD_SET(w->fd, &fds);
        n = w->way == SELECT ? select(w->fd + 1, &fds, NULL, NULL, ms < 0 ? NULL : &time_of_select)
                             : pselect(w->fd + 1, &fds, NULL, NULL, end, mask);
        if (n >= 0 && !!FD_ISSET(w->fd, &fds) != n)
            die("select returns %d, and the set says otherwise", n);
        return n;
    case PWAIT:
        n = epoll_pwait(w->set, &event, 1, ms, mask);
        break;
    case PWAIT2:
        n = epoll_pwait2(w->set, &event, 1, end, mask);
        break;
    case NESTED:
        n = epoll_wait(w->outer, &event, 1, ms);
        if (n == 1 && event.data.fd != w->set)
            die("the inner set is not named");
        if (n == 1)
            n = epoll_wait(w->set, &event, 1, 0);
        break;
    default:
        n = epoll_wait(w->set, &event, 1, ms);
    }
    if (n == 1 && w->way < POLL && (event.data.fd != w->fd || event.events != EPOLLIN))
        die("events %#x of descriptor %d", event.events, event.data.fd);
    if (n == 1 && w->way >= POLL && one.revents != POLLIN)
        die("revents %#x", one.revents);
    return n;
}

static int wait_for(struct waiter *w, int ms)
{
    return wait_masked(w, ms, NULL);
}

/* One message to the peer and back. */
static void exchange_one(struct connection *c, struct waiter *w)
{
    uint64_t wanted = c->received + 1;
    send_one(c);
    while (c->received < wanted) {
        here(way_names[w->way], c->received);
        int n = wait_for(w, -1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n != 1)
            die("%s returns %d", way_names[w->way], n);
        take(c);
        arm(w);
    }
}

static void exchange(struct connection *c, struct waiter *w, int count)
{
    for (int i = 0; i < count; i++)
        exchange_one(c, w);
}

/* --- Cases --- */

static struct connection one;

static void open_one(void)
{
    open_to_peer(&one, make_channel(), 0);
}

/* Ten ways, a channel that blocks and one that does not; each with echoes, and with bursts that come unasked. */
static void ways(void)
{
    open_one();
    for (int blocks = 1; blocks >= 0; blocks--) {
        if (!blocks)
            non_blocking(one.channel->fd);
        for (int way = 0; way < WAYS; way++) {
            struct waiter w = make_waiter(way, one.channel->fd);
            double begin = now();
            exchange(&one, &w, 300);
            double took = now() - begin;
            uint64_t wanted = one.received + 60;
            for (int burst = 0; burst < 3; burst++)
                order(SEND, 0, 20, burst * 50);
            while (one.received < wanted) {
                here(way_names[way], one.received);
                if (wait_for(&w, -1) != 1)
                    die("%s in bursts", way_names[way]);
                take(&one);
                arm(&w);
            }
            if (readable_now(one.channel->fd) && drain(&one, 0))
                die("more messages than were sent");
            say("%s, %s: %.1f us", way_names[way], blocks ? "blocking" : "non-blocking", took / 300 * 1e6);
            end_waiter(&w);
        }
    }
}

/* The channel is readable before the wait begins; no time is needed then, with or without an end. */
static void before(void)
{
    open_one();
    for (int way = 0; way < WAYS; way++)
        for (int ms = -1; ms <= 1; ms++) {
            struct waiter w = make_waiter(way, one.channel->fd);
            order(SEND, 0, 1, 0);
            wait_until_ready(&w);
            here(way_names[way], ms);
            if (wait_for(&w, ms * 1000) != 1)
                die("%s, %d: the event before the wait is not seen", way_names[way], ms);
            if (take(&one) != 1)
                die("%s: no completion", way_names[way]);
            end_waiter(&w);
        }
}

/* Several channels, each its own connection, in one loop of one thread. */
static void several(void)
{
    enum { EACH = 300, COUNT = 6 };
    static struct connection all[COUNT];
    for (int i = 0; i < COUNT; i++)
        open_to_peer(&all[i], make_channel(), i);
    for (int by_poll = 0; by_poll < 2; by_poll++) {
        int set = make_set(), left = COUNT * EACH, sent[COUNT] = {0};
        struct pollfd fds[COUNT + 1];
        fds[COUNT] = (struct pollfd){.fd = -1, .events = POLLIN, .revents = 77};
        for (int i = 0; i < COUNT; i++) {
            struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
            if (epoll_ctl(set, EPOLL_CTL_ADD, all[i].channel->fd, &event))
                die("epoll_ctl");
            fds[i] = (struct pollfd){.fd = all[i].channel->fd, .events = POLLIN};
            send_one(&all[i]);
            sent[i] = 1;
        }
        double begin = now();
        while (left > 0) {
            struct epoll_event events[COUNT];
            int which[COUNT], n;
            here(by_poll ? "poll of several" : "epoll_wait of several", left);
            if (by_poll) {
                if (poll(fds, COUNT + 1, -1) <= 0 || fds[COUNT].revents)
                    die("poll");
                n = 0;
                for (int i = 0; i < COUNT; i++)
                    if (fds[i].revents)
                        which[n++] = i;
            } else {
                n = epoll_wait(set, events, COUNT, -1);
                for (int i = 0; i < n; i++)
                    which[i] = events[i].data.u32;
            }
            if (n <= 0)
                die("waiting");
            for (int k = 0; k < n; k++) {
                struct connection *c = &all[which[k]];
                int came = take(c);
                left -= came;
                for (; came > 0 && sent[which[k]] < EACH; came--, sent[which[k]]++)
                    send_one(c);
            }
        }
        say("several, %s: %.1f us a message", by_poll ? "poll" : "epoll", (now() - begin) / COUNT / EACH * 1e6);
        close(set);
    }
    for (int i = 0; i < COUNT; i++)
        if (all[i].received != 2 * EACH)
            die("connection %d has received %lu", i, (long)all[i].received);
}

/* One loop per thread. */
static void *loop(void *argument)
{
    struct connection *c = argument;
    for (int way = 0; way < WAYS; way++) {
        struct waiter w = make_waiter(way, c->channel->fd);
        exchange(c, &w, 100);
        end_waiter(&w);
    }
    return NULL;
}

static void threads(void)
{
    static struct connection all[4];
    pthread_t thread[4];
    for (int i = 0; i < 4; i++)
        open_to_peer(&all[i], make_channel(), i);
    for (int i = 0; i < 4; i++)
        thread[i] = start(loop, &all[i]);
    for (int i = 0; i < 4; i++) {
        join(thread[i]);
        if (all[i].received != 100 * WAYS)
            die("thread %d has received %lu", i, (long)all[i].received);
    }
}

/* Two threads wait for the same set. */
static int shared_set, stop_fd;
static uint32_t shared_events;
static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;

static void *share(void *unused)
{
    for (;;) {
        struct epoll_event event;
        here("epoll_wait of two threads", one.received);
        if (epoll_wait(shared_set, &event, 1, -1) != 1)
            die("epoll_wait");
        if (event.data.fd == stop_fd)
            return unused;
        pthread_mutex_lock(&shared_lock);
        take(&one);
        if (shared_events & EPOLLONESHOT) {
            event.events = shared_events;
            if (epoll_ctl(shared_set, EPOLL_CTL_MOD, one.channel->fd, &event))
                die("EPOLL_CTL_MOD");
        }
        pthread_mutex_unlock(&shared_lock);
    }
}

static void shared(void)
{
    static const uint32_t kinds[] = {EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT};
    open_one();
    non_blocking(one.channel->fd);
    for (int kind = 0; kind < 3; kind++) {
        enum { COUNT = 400 };
        shared_events = kinds[kind];
        shared_set = make_set();
        stop_fd = eventfd(0, 0);
        add(shared_set, one.channel->fd, shared_events);
        add(shared_set, stop_fd, EPOLLIN);
        pthread_t first = start(share, NULL), second = start(share, NULL);
        double begin = now();
        for (int i = 0; i < COUNT; i++) {
            pthread_mutex_lock(&shared_lock);
            uint64_t wanted = one.received + 1;
            send_one(&one);
            pthread_mutex_unlock(&shared_lock);
            for (;;) {
                pthread_mutex_lock(&shared_lock);
                int came = one.received >= wanted;
                pthread_mutex_unlock(&shared_lock);
                if (came)
                    break;
                sched_yield();
            }
        }
        say("two threads, events %#x: %.1f us", shared_events, (now() - begin) / COUNT * 1e6);
        uint64_t token = 1;
        if (write(stop_fd, &token, 8) != 8)
            die("write");
        join(first);
        join(second);
        close(shared_set);
        close(stop_fd);
    }
}

/* Calls that make a duplicate. */
enum { DUP, DUP2, DUP3, F_DUPFD_, F_DUPFD_CLOEXEC_, DUPLICATES };

/* At `number`, or the next that is free. */
static int duplicate(int call, int fd, int number)
{
    int copy;
    switch (call) {
    case DUP:
        copy = dup(fd);
        break;
    case DUP2:
        copy = dup2(fd, number);
        break;
    case DUP3:
        copy = dup3(fd, number, O_CLOEXEC);
        break;
    default:
        copy = fcntl(fd, call == F_DUPFD_ ? F_DUPFD : F_DUPFD_CLOEXEC, number);
    }
    if (copy < 0 || copy == fd)
        die("duplicate %d", call);
    return copy;
}

/* Duplicates of the channel's descriptor, and of the set's. */
static void duplicates(void)
{
    open_one();
    for (int way = 0; way < WAYS; way++)
        for (int call = 0; call < DUPLICATES; call++) {
            int copy = duplicate(call, one.channel->fd, 200);
            struct waiter w = make_waiter(way, copy);
            exchange(&one, &w, 30);
            if (w.set >= 0) {
                int original = w.set;
                w.set = duplicate(call, original, 300);
                if (w.outer < 0)
                    exchange(&one, &w, 30);
                close(original);
                if (w.outer < 0)
                    exchange(&one, &w, 30);
            }
            end_waiter(&w);
            close(copy);
        }
    /* Both are in one set: both are told. */
    int set = make_set(), copy = dup(one.channel->fd);
    add(set, one.channel->fd, EPOLLIN);
    add(set, copy, EPOLLIN);
    for (int i = 0; i < 50; i++) {
        struct epoll_event events[2];
        send_one(&one);
        here("both duplicates", i);
        int n = epoll_wait(set, events, 2, -1);
        if (n != 2)
            die("epoll_wait of duplicates returns %d", n);
        take(&one);
    }
    /* The number in the set is closed, the duplicate keeps the channel in it. */
    close(copy);
    struct waiter w = {.way = LEVEL, .fd = one.channel->fd, .set = set, .outer = -1};
    if (wait_for(&w, 0))
        die("readable without an event");
    close(set);
}

/* The system call in which a thread of this process sleeps; -1: it is awake. */
static long sleeps_in(pid_t thread)
{
    char path[64], text[64] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread);
    int fd = open(path, O_RDONLY);
    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
        die("%s", path);
    close(fd);
    return strncmp(text, "running", 7) ? strtol(text, NULL, 10) : -1;
}

static _Atomic pid_t known_thread;

static void *wait_after_some(void *argument)
{
    exchange(&one, argument, 5);
    known_thread = syscall(SYS_gettid);
    here("epoll_wait of a duplicate", one.received);
    if (wait_for(argument, -1) != 1)
        die("epoll_wait of a duplicate");
    return NULL;
}

/* Under `rnic run` a thread that waits for a duplicate sleeps on the descriptors of packets, too:
 * that is another call than the program's. The same for a duplicate of a duplicate, and of a set. */
static void duplicates_are_known(void)
{
    const char *preloaded = getenv("LD_PRELOAD");
    open_one();
    for (int call = 0; call < DUPLICATES; call++)
        for (int of_set = 0; of_set < 2; of_set++) {
            int copy = duplicate(call, one.channel->fd, 200), second = duplicate(DUP, copy, 0);
            struct waiter w = make_waiter(LEVEL, second);
            close(copy);
            int original = w.set;
            if (of_set) {
                w.set = duplicate(call, original, 300);
                close(original);
            }
            known_thread = 0;
            pthread_t thread = start(wait_after_some, &w);
            here("the sleep in epoll_wait of a duplicate", call);
            while (!known_thread)
                sched_yield();
            long in;
            while ((in = sleeps_in(known_thread)) < 0)
                sched_yield();
            if ((in == SYS_ppoll) != !!preloaded)
                die("duplicate %d, %s: a thread that waits for it sleeps in system call %ld", call,
                    of_set ? "of the set" : "of the channel", in);
            order(SEND, 0, 1, 0);
            join(thread);
            if (take(&one) != 1)
                die("no completion");
            end_waiter(&w);
            close(second);
        }
}

static int with_number(int fd, int number);

/* Programs that keep low numbers free put the channel's descriptor elsewhere, and say so in the
 * structure. */
static void moved(void)
{
    open_one();
    int low = one.channel->fd;
    for (int way = 0; way < WAYS; way++) {
        int to = fcntl(one.channel->fd, F_DUPFD_CLOEXEC, 100 + 7 * way);
        struct waiter w = make_waiter(way, to);
        exchange(&one, &w, 20);
        close(one.channel->fd);
        one.channel->fd = to;
        exchange(&one, &w, 50);
        end_waiter(&w);
    }
    int other = with_number(eventfd(0, EFD_NONBLOCK), low);
    struct waiter w = make_waiter(LEVEL, one.channel->fd);
    exchange(&one, &w, 50);
    end_waiter(&w);
    if (readable_now(other))
        die("events go to what has the number that the channel once had");
    int last = one.channel->fd;
    order(CLOSE, 0, 0, 0);
    close_connection(&one);
    if ((errno = ibv_destroy_comp_channel(one.channel)))
        die("ibv_destroy_comp_channel");
    if (fcntl(last, F_GETFD) >= 0)
        die("the descriptor of a channel that is gone is open");
    if (fcntl(other, F_GETFD) < 0)
        die("what has the number that the channel once had is closed");
}

/* A child waits for the channel of its parent, by its descriptor or a set that it inherited. */
static void inherited(void)
{
    open_one();
    for (int way = 0; way < WAYS; way++)
        for (int round = 0; round < 3; round++) {
            struct waiter w = make_waiter(way, one.channel->fd);
            int ends[2];
            if (pipe(ends))
                die("pipe");
            pid_t child = fork();
            if (child == 0) {
                start(watch, NULL);
                here(way_names[way], round);
                if (round == 1) {
                    int copy = dup(w.fd);
                    close(w.fd);
                    w = make_waiter(way, copy);
                }
                if (write(ends[1], "", 1) != 1)
                    die("write");
                _exit(wait_for(&w, -1) == 1 ? 0 : 9);
            }
            char byte;
            if (read(ends[0], &byte, 1) != 1)
                die("read");
            /* It sleeps by then, or is about to. */
            pause_us(3000);
            order(SEND, 0, 1, 0);
            int status;
            here("the child that waits", way);
            if (waitpid(child, &status, 0) != child || status)
                die("%s: the child ended with %#x", way_names[way], status);
            if (take(&one) != 1)
                die("no completion");
            arm(&w);
            exchange(&one, &w, 20);
            end_waiter(&w);
            close(ends[0]);
            close(ends[1]);
        }
}

/* A thread sleeps for its channel, and another polls a queue of its own now and then: a poll does
 * not delay the sleeper's next message. */
static _Atomic double came_at;
static _Atomic long came;

static void *wait_for_all(void *argument)
{
    struct connection *c = argument;
    struct waiter w = make_waiter(LEVEL, c->channel->fd);
    exchange(c, &w, 5);
    long wanted = c->received + 200;
    known_thread = syscall(SYS_gettid);
    while ((long)c->received < wanted) {
        if (wait_for(&w, -1) != 1)
            die("epoll_wait");
        if (take(c)) {
            came_at = now();
            came++;
        }
    }
    end_waiter(&w);
    return NULL;
}

static int by_time(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void beside_polls(void)
{
    static struct connection sleeps, polls;
    static double late[200];
    open_to_peer(&sleeps, make_channel(), 0);
    open_to_peer(&polls, make_channel(), 1);
    pthread_t thread = start(wait_for_all, &sleeps);
    here("the sleeper's first messages", 0);
    while (!known_thread)
        sched_yield();
    for (int i = 0; i < 200; i++) {
        uint64_t wanted = polls.received + 1;
        send_one(&polls);
        here("a poll beside a sleeper", i);
        while (polls.received < wanted)
            drain(&polls, 0);
        pause_us(300);
        double begin = now();
        order(SEND, 0, 1, 0);
        here("the sleeper's message", i);
        while (came <= i)
            sched_yield();
        late[i] = came_at - begin;
    }
    join(thread);
    qsort(late, 200, sizeof *late, by_time);
    int ticks = 0;
    while (ticks < 200 && late[199 - ticks] > 0.001)
        ticks++;
    say("a sleeper's message beside polls: median %.0f us, at most %.0f us, %d of 200 after more than 1 ms",
        late[100] * 1e6, late[199] * 1e6, ticks);
}

/* --- io_uring, by system calls --- */

struct ring {
    int fd;
    unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
    struct io_uring_sqe *entries;
    struct io_uring_cqe *completions;
};

static void *map(int fd, size_t size, off_t what)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, what);
    if (at == MAP_FAILED)
        die("mmap of the ring");
    return at;
}

/* 0: the kernel refuses. */
static int open_ring(struct ring *ring)
{
    struct io_uring_params p = {0};
    if ((ring->fd = syscall(SYS_io_uring_setup, 8, &p)) < 0)
        return 0;
    char *sq = map(ring->fd, p.sq_off.array + p.sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
    char *cq = map(ring->fd, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe), IORING_OFF_CQ_RING);
    ring->entries = map(ring->fd, p.sq_entries * sizeof(struct io_uring_sqe), IORING_OFF_SQES);
    ring->sq_tail = (void *)(sq + p.sq_off.tail);
    ring->sq_mask = (void *)(sq + p.sq_off.ring_mask);
    ring->sq_array = (void *)(sq + p.sq_off.array);
    ring->cq_head = (void *)(cq + p.cq_off.head);
    ring->cq_tail = (void *)(cq + p.cq_off.tail);
    ring->cq_mask = (void *)(cq + p.cq_off.ring_mask);
    ring->completions = (void *)(cq + p.cq_off.cqes);
    return 1;
}

static void enter_ring(struct ring *ring, unsigned submit, unsigned wanted)
{
    int n;
    do
        n = syscall(SYS_io_uring_enter, ring->fd, submit, wanted, wanted ? IORING_ENTER_GETEVENTS : 0, NULL, 0);
    while (n < 0 && errno == EINTR);
    if (n != (int)submit)
        die("io_uring_enter returns %d", n);
}

static void ask_ring(struct ring *ring, int fd, int many)
{
    unsigned tail = *ring->sq_tail, place = tail & *ring->sq_mask;
    ring->entries[place] = (struct io_uring_sqe){.opcode = IORING_OP_POLL_ADD,
                                                 .fd = fd,
                                                 .poll32_events = POLLIN,
                                                 .len = many ? IORING_POLL_ADD_MULTI : 0,
                                                 .user_data = fd};
    ring->sq_array[place] = place;
    __atomic_store_n(ring->sq_tail, tail + 1, __ATOMIC_RELEASE);
    enter_ring(ring, 1, 0);
}

/* Waits for the next completion; whether more will come of the same request. */
static int wait_in_ring(struct ring *ring, int fd)
{
    unsigned head = *ring->cq_head;
    if (head == __atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE))
        enter_ring(ring, 0, 1);
    struct io_uring_cqe *cqe = &ring->completions[head & *ring->cq_mask];
    if (head == __atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE))
        die("io_uring_enter returns without a completion");
    if (cqe->user_data != (uint64_t)fd || cqe->res < 0 || !(cqe->res & POLLIN))
        die("a completion %#x of %ld", cqe->res, (long)cqe->user_data);
    int more = !!(cqe->flags & IORING_CQE_F_MORE);
    __atomic_store_n(ring->cq_head, head + 1, __ATOMIC_RELEASE);
    return more;
}

/* Requests that end with the first event, and those that tell of each; of the channel, a duplicate
 * of it, and an epoll set. */
static void io_uring(void)
{
    enum { COUNT = 200 };
    struct ring ring;
    open_one();
    if (!open_ring(&ring)) {
        say("refused: io_uring_setup, errno %d", errno);
        return;
    }
    non_blocking(one.channel->fd);
    int copy = dup(one.channel->fd), set = make_set();
    add(set, one.channel->fd, EPOLLIN);
    const int fds[] = {one.channel->fd, copy, set};
    static const char *const names[] = {"the channel", "a duplicate", "an epoll set"};
    for (int many = 0; many < 2; many++)
        for (int kind = 0; kind < 3; kind++) {
            double begin = now(), middle = 0;
            uint64_t echoed = one.received + COUNT, wanted = echoed + 3 * 20;
            int asked = 0;
            send_one(&one);
            while (one.received < wanted) {
                if (!asked)
                    ask_ring(&ring, fds[kind], many);
                here(many ? "io_uring, many" : "io_uring, one", one.received);
                asked = wait_in_ring(&ring, fds[kind]);
                uint64_t before_it = one.received;
                take(&one);
                if (one.received < echoed && one.received > before_it)
                    send_one(&one);
                if (one.received >= echoed && before_it < echoed) {
                    middle = now();
                    for (int burst = 0; burst < 3; burst++)
                        order(SEND, 0, 20, burst * 50);
                }
            }
            say("%s, %s: %.1f us", names[kind], many ? "many" : "one", (middle - begin) / COUNT * 1e6);
            /* The request that is left ends with its descriptor's last event. */
            struct ring next;
            close(ring.fd);
            if (!open_ring(&next))
                die("a second ring");
            ring = next;
        }
}

/* A set made before fork goes on in the child, which opens a device of its own, and then in the parent. */
static void forked(void)
{
    open_one();
    struct waiter w = make_waiter(LEVEL, one.channel->fd);
    exchange(&one, &w, 50);
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (child == 0) {
            start(watch, NULL);
            struct connection own;
            struct waiter inherited = w;
            here("the child's device", i);
            if (wait_for(&inherited, 10))
                die("the child's inherited set is readable");
            open_pd();
            open_to_peer(&own, make_channel(), 1);
            add(inherited.set, own.channel->fd, EPOLLIN);
            inherited.fd = own.channel->fd;
            exchange(&own, &inherited, 100);
            struct waiter another = make_waiter(i ? POLL : EDGE, own.channel->fd);
            exchange(&own, &another, 100);
            order(CLOSE, 1, 0, 0);
            _exit(0);
        }
        int status;
        here("the child", i);
        if (waitpid(child, &status, 0) != child || status)
            die("the child ended with %#x", status);
        exchange(&one, &w, 50);
    }
}

/* A descriptor that was just made, at a number that was just given back: it has that number unless the device's thread
 * gave back a lower one meanwhile. */
static int with_number(int fd, int number)
{
    if (fd < 0)
        die("no descriptor");
    if (fd == number)
        return fd;
    if (fcntl(number, F_GETFD) >= 0)
        die("the number %d is in use, and %d was given", number, fd);
    if (dup2(fd, number) != number)
        die("dup2");
    close(fd);
    return number;
}

/* A channel's number in a set, of which the channel is destroyed: what has the number next is not in the set. */
static void renumbered_channel(void)
{
    int set = make_set(), number = -1;
    for (int i = 0, tries = 0; i < 3; i++) {
        open_one();
        if (i && one.channel->fd != number) {
            if (++tries > 20)
                die("the number %d is never given again", number);
            i = 0;
        }
        number = one.channel->fd;
        struct epoll_event event;
        if (i) {
            order(SEND, 0, 1, 0);
            here("the event of another channel", i);
            while (!readable_now(number))
                sched_yield();
            if (epoll_wait(set, &event, 1, 20) != 0)
                die("a set has what was not put into it");
            if (take(&one) != 1)
                die("no completion");
        }
        add(set, number, EPOLLIN);
        struct waiter w = {.way = LEVEL, .fd = number, .set = set, .outer = -1};
        exchange(&one, &w, 100);
        order(CLOSE, 0, 0, 0);
        close_connection(&one);
        if ((errno = ibv_destroy_comp_channel(one.channel)))
            die("ibv_destroy_comp_channel");
        if (epoll_wait(set, &event, 1, 20) != 0)
            die("a set of nothing");
        /* Something else has the number for a while. */
        int other = with_number(eventfd(1, 0), number);
        add(set, other, EPOLLIN);
        here("an eventfd in the channel's place", i);
        if (epoll_wait(set, &event, 1, -1) != 1 || event.data.fd != other)
            die("the eventfd is not seen");
        close(other);
    }
}

static double timed(struct waiter *w, int ms, int *result)
{
    double begin = now();
    *result = wait_for(w, ms);
    return now() - begin;
}

/* A set's number, of which the set is closed: what has the number next is waited for as what it is. */
static void renumbered_set(void)
{
    open_one();
    int set = make_set(), result;
    add(set, one.channel->fd, EPOLLIN);
    struct waiter w = {.way = LEVEL, .fd = one.channel->fd, .set = set, .outer = -1};
    exchange(&one, &w, 50);
    close(set);
    errno = 0;
    here("a closed set", 0);
    if (epoll_wait(set, &(struct epoll_event){0}, 1, -1) != -1 || errno != EBADF)
        die("a closed set");
    /* As one that the C library did not make. */
    for (int i = 0; i < 2; i++) {
        int next = with_number(i ? syscall(SYS_epoll_create1, 0) : make_set(), set);
        int other = eventfd(0, 0);
        add(next, other, EPOLLIN);
        order(SEND, 0, 1, 0);
        here("the kernel's word that the channel is readable", i);
        while (!readable_now(one.channel->fd))
            sched_yield();
        w.set = next;
        double took = timed(&w, 50, &result);
        if (result != 0 || took < 0.05)
            die("another set: %d after %.4f s", result, took);
        if (take(&one) != 1)
            die("no completion");
        add(next, one.channel->fd, EPOLLIN);
        exchange(&one, &w, 50);
        close(other);
        close(next);
    }
}

/* The number of a set that was closed is a socket's: the kernel says at once that this is no set. */
static void set_becomes_socket(void)
{
    open_one();
    int set = make_set();
    add(set, one.channel->fd, EPOLLIN);
    struct waiter w = {.way = LEVEL, .fd = one.channel->fd, .set = set, .outer = -1};
    exchange(&one, &w, 50);
    close(set);
    with_number(socket(AF_INET, SOCK_DGRAM, 0), set);
    here("epoll_wait for a socket", 0);
    if (epoll_wait(set, &(struct epoll_event){0}, 1, -1) != -1 || errno != EINVAL)
        die("a socket for a set");
}

/* 50 ms, with nothing to come, and no time at all. Never early; how late depends on what else the machine does, so the best of
 * several counts. */
static void measure_timeouts(const char *when)
{
    double worst = 0;
    for (int way = 0; way < WAYS; way++) {
        struct waiter w = make_waiter(way, one.channel->fd);
        for (int ms = 0; ms <= 50; ms += 50) {
            double best = 1e9;
            for (int i = 0; i < 4; i++) {
                int result;
                here(way_names[way], ms);
                double late = timed(&w, ms, &result) * 1e3 - ms;
                if (result != 0)
                    die("%s of %d ms, %s: %d", way_names[way], ms, when, result);
                if (late < 0)
                    die("%s of %d ms, %s: back %.3f ms early", way_names[way], ms, when, -late);
                best = late < best ? late : best;
                worst = late > worst ? late : worst;
            }
            if (best > 200)
                die("%s of %d ms, %s: never less than %.1f ms late", way_names[way], ms, when, best);
        }
        end_waiter(&w);
    }
    say("%s: %.2f ms late at most", when, worst);
}

static void timeouts(void)
{
    open_one();
    measure_timeouts("nothing arriving");
}

/* The same while a peer writes, of which no completion tells: that is work, but nothing that the program waits for. */
static void timeouts_in_traffic(void)
{
    open_one();
    for (int gap = 0; gap <= 20; gap += 20) {
        order(WRITE, 0, 0, gap);
        measure_timeouts(gap ? "written to every 20 us" : "written to all the time");
        order(WRITE_NO_MORE, 0, 0, 0);
    }
}

/* --- Signals --- */

static _Atomic int handled;

static void count_signal(int signal)
{
    (void)signal;
    handled++;
}

static void handle(int signal, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    if (sigaction(signal, &action, NULL))
        die("sigaction");
}

/* The thread sleeps in the kernel. */
static int sleeps(pid_t thread)
{
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
        die("%s", path);
    fclose(file);
    return state == 'S';
}

/* Threads stay awake while they wait. */
static int spins(void)
{
    const char *wait = getenv("RNIC_WAIT");
    return wait && !strcmp(wait, "spin");
}

struct sleeper {
    struct waiter waiter;
    _Atomic pid_t thread;
    _Atomic int result, error;
    int ms, goes_on;
};

static void *sleep_there(void *argument)
{
    struct sleeper *s = argument;
    s->thread = syscall(SYS_gettid);
    int result;
    do
        result = wait_for(&s->waiter, s->ms);
    while (s->goes_on && result < 0 && errno == EINTR);
    s->error = errno;
    s->result = result;
    return NULL;
}

/* It waits, asleep if it ever sleeps. */
static void until_it_waits(struct sleeper *s)
{
    while (!s->thread)
        sched_yield();
    for (double end = now() + 0.2; !sleeps(s->thread) && (!spins() || now() < end);)
        sched_yield();
}

/* A handler interrupts the wait once, whether it was installed with SA_RESTART or not (signal(7)). */
static void interrupted(void)
{
    open_one();
    for (int way = 0; way < WAYS; way++)
        for (int round = 0; round < 8; round++) {
            handle(SIGUSR1, count_signal, round % 2 ? SA_RESTART : 0);
            struct sleeper s = {.waiter = make_waiter(way, one.channel->fd), .ms = round < 4 ? -1 : 600000};
            int before_it = handled;
            pthread_t thread = start(sleep_there, &s);
            here(way_names[way], round);
            until_it_waits(&s);
            pthread_kill(thread, SIGUSR1);
            join(thread);
            if (s.result != -1 || s.error != EINTR || handled != before_it + 1)
                die("%s: %d, errno %d, %d signals", way_names[way], s.result, s.error, handled - before_it);
            exchange(&one, &s.waiter, 5);
            end_waiter(&s.waiter);
        }
}

/* The same while a peer writes: the signal may come while the engine is driven, and the program must learn of it nevertheless. */
static void interrupted_in_traffic(void)
{
    open_one();
    handle(SIGUSR1, count_signal, 0);
    order(WRITE, 0, 0, 0);
    int lost = 0, rounds = 0;
    for (int round = 0; round < 20; round++)
        for (int way = 0; way < WAYS; way++, rounds++) {
            struct sleeper s = {.waiter = make_waiter(way, one.channel->fd), .ms = 2000};
            pthread_t thread = start(sleep_there, &s);
            here(way_names[way], round);
            while (!s.thread)
                sched_yield();
            /* It is in the call for long by then. */
            pause_us(10000 + 37 * round);
            pthread_kill(thread, SIGUSR1);
            join(thread);
            if (s.result == 0) {
                say("%s, round %d: the signal did not end the wait", way_names[way], round);
                lost++;
                if (lost > 5)
                    die("%d of %d waits have missed their signal", lost, rounds + 1);
            } else if (s.result != -1 || s.error != EINTR)
                die("%s: %d, errno %d", way_names[way], s.result, s.error);
            end_waiter(&s.waiter);
        }
    order(WRITE_NO_MORE, 0, 0, 0);
    if (lost)
        die("%d of %d waits have missed their signal", lost, rounds);
}

/* A signal that is blocked but for the wait ends it, also if it was pending; one that the wait's mask blocks does not. */
static void masks(void)
{
    static const enum way with_mask[] = {PWAIT, PWAIT2, PPOLL, PSELECT};
    sigset_t blocked, none, old, pending;
    open_one();
    handle(SIGUSR1, count_signal, 0);
    sigemptyset(&none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    for (int i = 0; i < 4; i++) {
        struct waiter w = make_waiter(with_mask[i], one.channel->fd);
        pthread_sigmask(SIG_BLOCK, &blocked, NULL);
        handled = 0;
        raise(SIGUSR1);
        here(way_names[w.way], 0);
        /* The event of the last message may come behind its completion. */
        int n;
        while ((n = wait_masked(&w, -1, &none)) == 1)
            take(&one);
        if (n != -1 || errno != EINTR || handled != 1)
            die("%s: a pending signal: %d, %d handled", way_names[w.way], n, handled);
        pthread_sigmask(SIG_SETMASK, NULL, &old);
        if (!sigismember(&old, SIGUSR1))
            die("%s: the mask is not as it was", way_names[w.way]);
        raise(SIGUSR1);
        if (wait_masked(&w, 50, &blocked) != 0 || handled != 1)
            die("%s: a blocked signal", way_names[w.way]);
        /* Ready and pending: what is ready is told, and the signal stays. */
        order(SEND, 0, 1, 0);
        wait_until_ready(&w);
        n = wait_masked(&w, -1, &none);
        sigpending(&pending);
        if (n == 1 && (handled != 1 || !sigismember(&pending, SIGUSR1)))
            die("%s: a signal was taken from a wait that did not wait", way_names[w.way]);
        if (n != 1)
            die("%s: ready, and %d", way_names[w.way], n);
        if (take(&one) != 1)
            die("no completion");
        pthread_sigmask(SIG_UNBLOCK, &blocked, NULL);
        if (handled != 2)
            die("%s: %d signals handled", way_names[w.way], handled);
        /* Blocked by the wait alone, sent in the wait. */
        order(SEND, 0, 20, 200);
        for (uint64_t wanted = one.received + 20; one.received < wanted; take(&one)) {
            here("a wait with a mask", one.received);
            if (wait_masked(&w, -1, &blocked) != 1)
                die("%s", way_names[w.way]);
        }
        end_waiter(&w);
    }
}

/* Handlers that wait themselves, at any moment of the exchange. */
static int handler_fd, handler_set, handler_errors;

static void wait_in_handler(int signal)
{
    int error = errno;
    struct pollfd some[2] = {{.fd = handler_fd, .events = POLLIN}, {.fd = -1}};
    struct epoll_event event;
    (void)signal;
    handled++;
    int ms = handled % 8 == 0;
    if (poll(some, 2, ms) < 0 || epoll_wait(handler_set, &event, 1, ms) < 0)
        handler_errors++;
    errno = error;
}

static void handler_waits(int fd, int set)
{
    handler_fd = fd;
    handler_set = set;
    handled = 0;
    handle(SIGALRM, wait_in_handler, SA_RESTART);
    struct itimerval often = {.it_interval.tv_usec = 300, .it_value.tv_usec = 300}, never = {0};
    for (int way = 0; way < WAYS; way++) {
        struct waiter w = make_waiter(way, one.channel->fd);
        for (int busy = 0; busy < 2; busy++) {
            if (busy)
                order(WRITE, 0, 0, 20);
            if (setitimer(ITIMER_REAL, &often, NULL))
                die("setitimer");
            exchange(&one, &w, 400);
            setitimer(ITIMER_REAL, &never, NULL);
            if (busy)
                order(WRITE_NO_MORE, 0, 0, 0);
        }
        end_waiter(&w);
    }
    if (handler_errors || !handled)
        die("%d errors in %d handlers", handler_errors, handled);
    say("%d handlers waited", handled);
}

static void handler_waits_for_others(void)
{
    open_one();
    int set = make_set(), other = eventfd(0, 0);
    add(set, other, EPOLLIN);
    handler_waits(other, set);
}

static void handler_waits_for_the_channel(void)
{
    open_one();
    int set = make_set();
    add(set, one.channel->fd, EPOLLIN);
    handler_waits(one.channel->fd, set);
}

/* --- Cancellation --- */

static int descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static void cancel_in(struct waiter *w, int when)
{
    struct sleeper s = {.waiter = *w, .ms = -1};
    pthread_t thread = start(sleep_there, &s);
    while (!s.thread)
        sched_yield();
    if (when)
        until_it_waits(&s);
    if ((errno = pthread_cancel(thread)))
        die("pthread_cancel");
    if (join(thread) != PTHREAD_CANCELED)
        die("%s: ended by itself", way_names[w->way]);
}

static void cancelled(void)
{
    open_one();
    for (int busy = 0; busy < 2; busy++) {
        for (int way = 0; way < WAYS; way++) {
            struct waiter w = make_waiter(way, one.channel->fd);
            exchange(&one, &w, 10);
            int before_it = descriptors();
            if (busy)
                order(WRITE, 0, 0, 0);
            for (int i = 0; i < (spins() ? 2 : 20); i++) {
                here(way_names[way], i);
                cancel_in(&w, !busy && i % 2);
            }
            if (busy)
                order(WRITE_NO_MORE, 0, 0, 0);
            if (descriptors() != before_it)
                die("%s: %d descriptors, %d before", way_names[way], descriptors(), before_it);
            exchange(&one, &w, 50);
            end_waiter(&w);
        }
    }
}

/* --- Others in the same set --- */

static int stamps_fd;

static void *send_stamps(void *unused)
{
    for (int i = 0; i < 100; i++) {
        pause_us(3000);
        double time = now();
        put(stamps_fd, &time, sizeof time);
    }
    return unused;
}

static void tcp_pair(int ends[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 1) ||
        getsockname(listener, (void *)&address, &length))
        die("listen");
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(ends[0], (void *)&address, sizeof address))
        die("connect");
    ends[1] = accept(listener, NULL, NULL);
    setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    close(listener);
}

/* A timer and a TCP connection beside a channel that is never quiet. */
static void others(void)
{
    open_one();
    static const enum way tried[] = {LEVEL, EDGE, NESTED, POLL, SELECT};
    for (int k = 0; k < 5; k++) {
        enum way way = tried[k];
        int ends[2], timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
        tcp_pair(ends);
        stamps_fd = ends[0];
        int fds[3] = {one.channel->fd, timer, ends[1]};
        int set = make_set(), outer = make_set();
        if (way < POLL) {
            for (int i = 0; i < 3; i++)
                add(set, fds[i], EPOLLIN | (way == EDGE ? EPOLLET : 0));
            add(outer, set, EPOLLIN);
        }
        struct itimerspec every = {.it_interval.tv_nsec = 2000000, .it_value.tv_nsec = 2000000};
        double first = now() + 0.002;
        if (timerfd_settime(timer, 0, &every, NULL))
            die("timerfd_settime");
        pthread_t sender = start(send_stamps, NULL);
        int stamps = 0;
        uint64_t ticks = 0, messages = one.received;
        double stamp_late = 0, tick_late = 0;
        send_one(&one);
        while (stamps < 100 || ticks < 100) {
            int ready[3] = {0};
            here(way_names[way], one.received);
            if (way == POLL) {
                struct pollfd all[4];
                for (int i = 0; i < 3; i++)
                    all[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
                all[3] = (struct pollfd){.fd = -1, .events = POLLIN | POLLOUT};
                if (poll(all, 4, -1) < 1 || all[3].revents)
                    die("poll");
                for (int i = 0; i < 3; i++)
                    ready[i] = all[i].revents != 0;
            } else if (way == SELECT) {
                fd_set all;
                FD_ZERO(&all);
                int most = 0;
                for (int i = 0; i < 3; i++) {
                    FD_SET(fds[i], &all);
                    most = fds[i] > most ? fds[i] : most;
                }
                if (select(most + 1, &all, NULL, NULL, NULL) < 1)
                    die("select");
                for (int i = 0; i < 3; i++)
                    ready[i] = FD_ISSET(fds[i], &all);
            } else {
                struct epoll_event events[3];
                if (way == NESTED && epoll_wait(outer, events, 1, -1) != 1)
                    die("epoll_wait");
                int n = epoll_wait(set, events, 3, way == NESTED ? 0 : -1);
                if (n < 1)
                    die("epoll_wait returns %d", n);
                for (int j = 0; j < n; j++)
                    for (int i = 0; i < 3; i++)
                        ready[i] |= events[j].data.fd == fds[i];
            }
            double time = now();
            uint64_t count;
            if (ready[1] && read(timer, &count, 8) == 8) {
                /* The first of these. */
                double late = time - first - ticks * 0.002;
                tick_late = late > tick_late ? late : tick_late;
                ticks += count;
            }
            if (ready[2]) {
                double all[128];
                ssize_t n = recv(ends[1], all, sizeof all, MSG_DONTWAIT);
                if (n <= 0 || n % sizeof *all)
                    die("recv returns %zd", n);
                stamps += n / sizeof *all;
                stamp_late = time - all[0] > stamp_late ? time - all[0] : stamp_late;
            }
            if (ready[0])
                for (int came = take(&one); came > 0; came--)
                    send_one(&one);
        }
        /* The last message, which is on its way. */
        struct waiter w = make_waiter(LEVEL, one.channel->fd);
        for (uint64_t wanted = one.sent; one.received < wanted; take(&one))
            if (wait_for(&w, -1) != 1)
                die("waiting for the last");
        end_waiter(&w);
        join(sender);
        say("%s: %lu messages beside; a timer seen %.3f ms late at most, a stream %.3f ms", way_names[way],
            (long)(one.received - messages), tick_late * 1e3, stamp_late * 1e3);
        close(timer);
        close(ends[0]);
        close(ends[1]);
        close(set);
        close(outer);
    }
}

/* poll(2) tells of more than select(2) does: what hung up is no exceptional condition. The channel is served meanwhile. */
static void exceptions(void)
{
    int ends[2];
    open_one();
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        die("socketpair");
    close(ends[1]);
    int fd = one.channel->fd, most = fd > ends[0] ? fd : ends[0];
    double worst = 0, begin = now();
    for (int i = 0; i < 200; i++) {
        fd_set in, strange;
        FD_ZERO(&in);
        FD_ZERO(&strange);
        FD_SET(fd, &in);
        FD_SET(ends[0], &strange);
        double sent = now();
        send_one(&one);
        here("select beside what hung up", i);
        if (select(most + 1, &in, NULL, &strange, NULL) != 1 || !FD_ISSET(fd, &in) || FD_ISSET(ends[0], &strange))
            die("select");
        double took = now() - sent;
        worst = took > worst ? took : worst;
        take(&one);
    }
    say("select beside what hung up: %.1f us, at most %.1f us", (now() - begin) / 200 * 1e6, worst * 1e6);
    close(ends[0]);
}

/* A set of many channels, of which few have something to tell. */
static void many_channels(void)
{
    enum { MANY = 400 };
    open_one();
    int set = make_set();
    struct ibv_comp_channel *all[MANY];
    for (int i = 0; i < MANY; i++)
        add(set, (all[i] = make_channel())->fd, EPOLLIN);
    add(set, one.channel->fd, EPOLLIN);
    struct waiter alone = make_waiter(LEVEL, one.channel->fd), w = {.way = LEVEL, .fd = one.channel->fd, .set = set};
    for (int i = 0; i < 2; i++) {
        double begin = now();
        exchange(&one, &alone, 500);
        double middle = now();
        exchange(&one, &w, 500);
        say("one channel: %.1f us, beside %d others: %.1f us", (middle - begin) / 500 * 1e6, MANY,
            (now() - middle) / 500 * 1e6);
    }
    for (int i = 0; i < MANY; i++)
        if ((errno = ibv_destroy_comp_channel(all[i])))
            die("ibv_destroy_comp_channel");
    exchange(&one, &w, 100);
    end_waiter(&alone);
    close(set);
}

/* Sets that were put into others before anything was in them, and a channel that is taken out and put in again. */
static void sets_of_sets(void)
{
    open_one();
    int sets[5];
    for (int i = 0; i < 5; i++) {
        sets[i] = make_set();
        if (i)
            add(sets[i - 1], sets[i], EPOLLIN | (i % 2 ? EPOLLET : 0));
    }
    struct waiter w = {.way = LEVEL, .fd = one.channel->fd, .set = sets[4], .outer = -1};
    for (int round = 0; round < 3; round++) {
        struct epoll_event event;
        add(sets[4], one.channel->fd, EPOLLIN);
        exchange(&one, &w, 50);
        for (int i = 0; i < 100; i++) {
            send_one(&one);
            for (int depth = 0; depth < 5; depth++) {
                here("sets of sets", depth);
                if (epoll_wait(sets[depth], &event, 1, -1) != 1)
                    die("a set at depth %d", depth);
                if (depth < 4 && event.data.fd != sets[depth + 1])
                    die("not the set at depth %d", depth + 1);
            }
            take(&one);
        }
        if (epoll_ctl(sets[4], EPOLL_CTL_DEL, one.channel->fd, NULL))
            die("EPOLL_CTL_DEL");
        order(SEND, 0, 1, 0);
        here("the kernel's word that the channel is readable", round);
        while (!readable_now(one.channel->fd))
            sched_yield();
        if (epoll_wait(sets[4], &event, 1, 20) != 0)
            die("a channel that was taken out is told of");
        if (take(&one) != 1)
            die("no completion");
    }
    for (int i = 0; i < 5; i++)
        close(sets[i]);
}

/* Arrays of descriptors of all sizes; what the kernel says of each. */
static void arrays(void)
{
    enum { MANY = 1000 };
    static struct pollfd fds[MANY];
    open_one();
    double begin = now();
    here("poll of nothing", 0);
    if (poll(NULL, 0, 20) != 0 || poll(fds, 0, 20) != 0 || now() - begin < 0.04)
        die("poll of nothing");
    for (int i = 0; i < 5; i++)
        fds[i] = (struct pollfd){.fd = -1 - i, .events = POLLIN | POLLOUT, .revents = 5};
    if (poll(fds, 5, 20) != 0 || fds[0].revents || fds[4].revents)
        die("poll of absent ones");
    int ends[2], closed = 0x7fffff;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        die("socketpair");
    static const int sizes[] = {1, 2, 61, 62, 63, 64, 65, MANY};
    for (int k = 0; k < 8; k++) {
        int count = sizes[k];
        /* The channel comes last, behind entries that are not there and sockets without input. */
        for (int i = 0; i < count; i++)
            fds[i] = (struct pollfd){.fd = i % 2 ? -1 : ends[0], .events = POLLIN | POLLPRI, .revents = 9};
        fds[count - 1] = (struct pollfd){.fd = one.channel->fd, .events = POLLIN | POLLOUT, .revents = 9};
        /* An event counter takes a write at any time. */
        if (poll(fds, count, -1) != 1 || fds[count - 1].revents != POLLOUT)
            die("%d: a channel for writing", count);
        fds[count - 1].events = POLLIN;
        for (int i = 0; i < 100; i++) {
            send_one(&one);
            here("poll of many", count);
            if (poll(fds, count, -1) != 1 || fds[count - 1].revents != POLLIN || fds[0].revents > 1)
                die("%d descriptors, revents %#x", count, fds[count - 1].revents);
            take(&one);
        }
        if (poll(fds, count, 10) != 0 || fds[count - 1].revents)
            die("%d: readable without an event", count);
        if (count == 1)
            continue;
        /* Another is ready, for writing, or is no descriptor. */
        fds[0].events = POLLIN | POLLOUT;
        here("poll of a socket for writing", count);
        if (poll(fds, count, -1) != 1 || fds[0].revents != POLLOUT || fds[count - 1].revents)
            die("%d: a socket for writing", count);
        fds[0] = (struct pollfd){.fd = closed, .events = 0};
        here("poll of what is no descriptor", count);
        if (poll(fds, count, -1) != 1 || fds[0].revents != POLLNVAL)
            die("%d: no descriptor", count);
    }
    /* What hangs up ends the wait. */
    fds[0] = (struct pollfd){.fd = one.channel->fd, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = ends[0], .events = 0};
    close(ends[1]);
    here("poll of what hung up", 0);
    if (poll(fds, 2, -1) != 1 || fds[1].revents != POLLHUP)
        die("hung up: %#x", fds[1].revents);
}

/* What cannot be waited for. Each at once, though the time has no end. */
static void errors(void)
{
    open_one();
    struct waiter w = make_waiter(LEVEL, one.channel->fd);
    struct epoll_event event;
    struct timespec bad = {.tv_nsec = 1000000000};
    volatile int too_few = -1, too_many = 0x7fffffff;
    struct pollfd pollfd = {.fd = one.channel->fd, .events = POLLIN};
#define EXPECT(call, error)                                                                                            \
    do {                                                                                                               \
        here(#call, 0);                                                                                                \
        errno = 0;                                                                                                     \
        int result = call;                                                                                             \
        if (result != -1 || errno != error)                                                                            \
            die("%s returns %d", #call, result);                                                                       \
    } while (0)
    EXPECT(epoll_wait(-1, &event, 1, -1), EBADF);
    EXPECT(epoll_wait(one.channel->fd, &event, 1, -1), EINVAL);
    EXPECT(epoll_wait(0x7fffff, &event, 1, -1), EBADF);
    EXPECT(epoll_pwait2(w.set, &event, 1, &bad, NULL), EINVAL);
    EXPECT(ppoll(&pollfd, 1, &bad, NULL), EINVAL);
    bad = (struct timespec){.tv_sec = -1};
    EXPECT(epoll_pwait2(w.set, &event, 1, &bad, NULL), EINVAL);
    EXPECT(ppoll(&pollfd, 1, &bad, NULL), EINVAL);
    EXPECT(epoll_wait(w.set, &event, 0, 0), EINVAL);
    EXPECT(epoll_wait(w.set, &event, 0, -1), EINVAL);
    EXPECT(epoll_wait(w.set, &event, too_few, -1), EINVAL);
    EXPECT(epoll_wait(w.set, &event, too_many, -1), EINVAL);
    EXPECT(epoll_pwait(w.set, &event, 0, -1, NULL), EINVAL);
    EXPECT(epoll_pwait2(w.set, &event, 0, NULL, NULL), EINVAL);
    exchange(&one, &w, 20);
}

/* Other programs are started between, and while another thread waits. */
static void started_programs(void)
{
    open_one();
    struct waiter w = make_waiter(LEVEL, one.channel->fd);
    char *words[] = {"true", NULL}, *no_environment[] = {NULL};
    for (int i = 0; i < 10; i++) {
        exchange(&one, &w, 20);
        /* SIGCHLD may interrupt it, though no handler runs: the thread that starts the program holds signals meanwhile. */
        struct sleeper s = {.waiter = make_waiter(i % WAYS, one.channel->fd), .ms = -1, .goes_on = 1};
        pthread_t thread = start(sleep_there, &s);
        until_it_waits(&s);
        pid_t child;
        here("starting a program", i);
        if (i % 2) {
            if ((errno = posix_spawnp(&child, "true", NULL, NULL, words, i % 4 == 1 ? no_environment : environ)))
                die("posix_spawnp");
        } else {
            child = vfork();
            if (child == 0) {
                execvp("true", words);
                _exit(9);
            }
        }
        int status;
        if (waitpid(child, &status, 0) != child || status)
            die("true ended with %#x", status);
        order(SEND, 0, 1, 0);
        join(thread);
        if (s.result != 1)
            die("%s beside a program that starts: %d", way_names[i % WAYS], s.result);
        if (take(&one) != 1)
            die("no completion");
        end_waiter(&s.waiter);
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"ways", ways},
    {"before", before},
    {"several", several},
    {"threads", threads},
    {"shared", shared},
    {"duplicates", duplicates},
    {"duplicates_are_known", duplicates_are_known},
    {"moved", moved},
    {"inherited", inherited},
    {"io_uring", io_uring},
    {"beside_polls", beside_polls},
    {"forked", forked},
    {"renumbered_channel", renumbered_channel},
    {"renumbered_set", renumbered_set},
    {"set_becomes_socket", set_becomes_socket},
    {"timeouts", timeouts},
    {"timeouts_in_traffic", timeouts_in_traffic},
    {"interrupted", interrupted},
    {"interrupted_in_traffic", interrupted_in_traffic},
    {"masks", masks},
    {"handler_waits_for_others", handler_waits_for_others},
    {"handler_waits_for_the_channel", handler_waits_for_the_channel},
    {"cancelled", cancelled},
    {"others", others},
    {"arrays", arrays},
    {"exceptions", exceptions},
    {"many_channels", many_channels},
    {"sets_of_sets", sets_of_sets},
    {"errors", errors},
    {"started_programs", started_programs},
};

int main(int argc, char **argv)
{
    int ends[2];
    if (argc != 3)
        die("usage: waits CASE GID_INDEX");
    gid_index = atoi(argv[2]);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        die("socketpair");
    pid_t child = fork();
    if (child < 0)
        die("fork");
    close(ends[child == 0 ? 0 : 1]);
    if (child == 0)
        be_peer(ends[1]);
    peer_fd = ends[0];
    start(watch, NULL);
    open_pd();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(argv[1], cases[i].name)) {
            cases[i].run();
            order(END, 0, 0, 0);
            say("%s: well", argv[1]);
            return 0;
        }
    die("no case %s", argv[1]);
}
