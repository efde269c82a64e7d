/* A process that is stopped (SIGSTOP, as a debugger does) for longer than its peer's ACK timeout and retries last.
 *
 * stopped GID_INDEX
 *
 * A sender and a receiver, and this process, which stops the one, the other or both in the middle of an operation. A card goes
 * on working for a stopped program, so nothing may fail: what needs no time of the receiver is done meanwhile, all else when
 * it goes on. A receiver that is killed while it is stopped is gone: status 12. Prints a line for each case, and "all done".
 *
 * stopped GID_INDEX unreliable
 *
 * UC and UD wait for nobody: all completes while the receiver is stopped. What it has room for comes when it goes on; more than that is
 * lost, and delays the sender by a moment.
 *
 * stopped GID_INDEX waits [killed]
 *
 * The receiver is stopped for good: the sender (this process) prints "waits" and waits for it. killed: until it is killed.
 */
#include "rc.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* 34 ms, 67 ms, 134 ms: then a peer that does not answer has failed. */
enum { TIMEOUT = 13, RETRIES = 2, STOPPED_MS = 700 };
enum { LENGTH = 4096, RECEIVES = 32, LONG = 1 << 20 };

enum operation { SEND, WRITE, WRITE_IMM, READ, FETCH_ADD, COMPARE_SWAP, LONG_WRITE, OPERATIONS };
static const char *const names[] = {"SEND",          "WRITE",            "WRITE_IMM", "READ",
                                    "FETCH_AND_ADD", "COMPARE_AND_SWAP", "long WRITE"};

struct side {
    int fd; /* to the controller */
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    struct ibv_qp *qp;
    struct endpoint peer;
    uint8_t *data;
};

/* A queue pair, connected through the controller, which hands the endpoints on. */
static struct side connect_side(int fd, int gid_index)
{
    struct side side = {.fd = fd};
    struct ibv_context *context = open_device();
    side.pd = ibv_alloc_pd(context);
    side.channel = ibv_create_comp_channel(context);
    side.cq = ibv_create_cq(context, 128, NULL, side.channel, 0);
    side.data = aligned_alloc(4096, 2 * LONG);
    side.mr = ibv_reg_mr(side.pd, memset(side.data, 0, 2 * LONG), 2 * LONG, ALL_MR_ACCESS);
    if (!side.pd || !side.channel || !side.cq || !side.mr)
        die("set up");
    side.qp = make_qp(side.pd, side.cq, ALL_QP_ACCESS);
    struct endpoint own = {.qpn = side.qp->qp_num, .psn = 77, .address = (uintptr_t)side.data, .rkey = side.mr->rkey};
    if (ibv_query_gid(context, 1, gid_index, &own.gid))
        die("ibv_query_gid");
    put(fd, &own, sizeof own);
    if (!get(fd, &side.peer, sizeof side.peer))
        die("no peer");
    ack_timeout = TIMEOUT;
    retry_cnt = RETRIES;
    connect_qp(side.qp, gid_index, own.psn, &side.peer, 7);
    return side;
}

static void post_receive(struct side *side)
{
    struct ibv_sge sge = {.addr = (uintptr_t)side->data + LONG, .length = LENGTH, .lkey = side->mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    if ((errno = ibv_post_recv(side->qp, &wr, &bad)))
        die("ibv_post_recv");
}

/* Does what it is told: 'c' waits for a receive, 'w' checks what was written with the generation behind it, 'f' fills. */
static void receiver(int fd, int gid_index)
{
    struct side side = connect_side(fd, gid_index);
    for (int i = 0; i < RECEIVES; i++)
        post_receive(&side);
    put(fd, "r", 1);
    char what[2];
    while (get(fd, what, 2)) {
        long wrong = -1;
        uint8_t *data = side.data;
        if (what[0] == 'c') {
            struct ibv_wc wc = next_completion(side.cq);
            if (wc.status)
                die("the receive: %s", ibv_wc_status_str(wc.status));
            if (wc.opcode == IBV_WC_RECV)
                data += LONG;
            post_receive(&side);
        }
        if (what[0] == 'f')
            fill(side.data, LONG, what[1]);
        else
            wrong = differs(data, what[0] == 'l' ? LONG : LENGTH, what[1]);
        put(fd, &wrong, sizeof wrong);
    }
    _exit(0);
}

static void post(struct side *side, enum operation operation, int generation)
{
    static const enum ibv_wr_opcode codes[] = {
        IBV_WR_SEND,      IBV_WR_RDMA_WRITE,           IBV_WR_RDMA_WRITE_WITH_IMM,   IBV_WR_RDMA_READ,
        IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_RDMA_WRITE};
    int atomic = operation == FETCH_ADD || operation == COMPARE_SWAP;
    struct ibv_sge sge = {.addr = (uintptr_t)side->data,
                          .length = atomic ? 8 : operation == LONG_WRITE ? LONG : LENGTH,
                          .lkey = side->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = generation,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = codes[operation],
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    if (atomic) {
        wr.wr.atomic.remote_addr = side->peer.address;
        wr.wr.atomic.rkey = side->peer.rkey;
        wr.wr.atomic.compare_add = operation == FETCH_ADD ? 1 : 0;
        wr.wr.atomic.swap = 5;
    } else {
        wr.wr.rdma.remote_addr = side->peer.address;
        wr.wr.rdma.rkey = side->peer.rkey;
    }
    if (operation == READ)
        memset(side->data, 0, LENGTH);
    else if (!atomic)
        fill(side->data, LONG, generation);
    if ((errno = ibv_post_send(side->qp, &wr, &bad)))
        die("ibv_post_send");
}

/* Polls, or sleeps until there is an event: then nobody but the device's own thread is awake. */
static struct ibv_wc complete(struct side *side, int sleeps)
{
    struct ibv_wc wc;
    for (int armed = 0; sleeps;) {
        int n = ibv_poll_cq(side->cq, 1, &wc);
        if (n)
            return wc;
        if (armed) {
            struct ibv_cq *cq;
            void *context;
            if (ibv_get_cq_event(side->channel, &cq, &context))
                die("ibv_get_cq_event");
            ibv_ack_cq_events(cq, 1);
        }
        if (ibv_req_notify_cq(side->cq, 0))
            die("ibv_req_notify_cq");
        armed = !armed;
    }
    return next_completion(side->cq);
}

struct order {
    int operation, generation, sleeps;
};

/* Posts what it is told to, says "p", and then with which status that completed. */
static void sender(int fd, int gid_index)
{
    struct side side = connect_side(fd, gid_index);
    put(fd, "r", 1);
    struct order order;
    while (get(fd, &order, sizeof order)) {
        post(&side, order.operation, order.generation);
        put(fd, "p", 1);
        struct ibv_wc wc = complete(&side, order.sleeps);
        int status = wc.status;
        if (!status && order.operation == READ && differs(side.data, LENGTH, order.generation) >= 0)
            die("the READ brought something else");
        put(fd, &status, sizeof status);
    }
    _exit(0);
}

struct child {
    pid_t pid;
    int fd;
};

/* A child stays when this process ends: whoever started it looks what becomes of it. */
static int outlives;

static struct child start(void (*run)(int, int), int gid_index)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        die("socketpair");
    pid_t pid = fork();
    if (pid < 0)
        die("fork");
    if (pid == 0) {
        if (!outlives)
            prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        run(ends[1], gid_index);
    }
    close(ends[1]);
    return (struct child){pid, ends[0]};
}

static void send_signal(struct child child, int signal)
{
    siginfo_t info;
    if (kill(child.pid, signal) || (signal == SIGSTOP && waitid(P_PID, child.pid, &info, WSTOPPED)))
        die("signal %d", signal);
}

/* Connects two children. */
static void introduce(struct child one, struct child other)
{
    struct endpoint its, others;
    char ready[2];
    if (!get(one.fd, &its, sizeof its) || !get(other.fd, &others, sizeof others))
        die("a child ended");
    put(one.fd, &others, sizeof others);
    put(other.fd, &its, sizeof its);
    if (!get(one.fd, ready, 1) || !get(other.fd, ready + 1, 1))
        die("a child ended");
}

static long ask(struct child receiver, char what, int generation)
{
    char order[2] = {what, generation};
    long wrong;
    put(receiver.fd, order, 2);
    if (!get(receiver.fd, &wrong, sizeof wrong))
        die("the receiver ended");
    return wrong;
}

static void post_by(struct child sender, enum operation operation, int generation, int sleeps)
{
    struct order order = {operation, generation, sleeps};
    char posted;
    put(sender.fd, &order, sizeof order);
    if (!get(sender.fd, &posted, 1))
        die("the sender ended");
}

/* Something came from the sender within that time. */
static int says_something(struct child sender, int milliseconds)
{
    struct pollfd fd = {sender.fd, POLLIN, 0};
    return poll(&fd, 1, milliseconds) == 1;
}

static int status_of(struct child sender)
{
    int status;
    if (!says_something(sender, DEADLINE_SECONDS * 1000))
        die("no completion");
    if (!get(sender.fd, &status, sizeof status))
        die("the sender ended");
    return status;
}

enum who { RECEIVER, SENDER, BOTH, WHO };

static void one(struct child send, struct child receive, enum operation operation, enum who who, int number)
{
    static const char *const whose[] = {"the receiver", "the sender", "both"};
    int generation = 1 + number % 100, sleeps = number % 2, early = 0;
    if (operation == READ)
        ask(receive, 'f', generation);
    if (who != SENDER)
        send_signal(receive, SIGSTOP);
    post_by(send, operation, generation, sleeps);
    if (who != RECEIVER)
        send_signal(send, SIGSTOP);
    early = says_something(send, STOPPED_MS);
    /* Whoever sends goes on first, and finds that its time is over. */
    if (who != RECEIVER)
        send_signal(send, SIGCONT);
    if (who != SENDER)
        send_signal(receive, SIGCONT);
    int status = status_of(send);
    if (status)
        die("%s, %s stopped: %s%s", names[operation], whose[who], ibv_wc_status_str(status), early ? ", meanwhile" : "");
    long wrong = -1;
    if (operation == SEND || operation == WRITE_IMM)
        wrong = ask(receive, 'c', generation);
    else if (operation == WRITE || operation == LONG_WRITE)
        wrong = ask(receive, operation == WRITE ? 'w' : 'l', generation);
    if (wrong >= 0)
        die("%s, %s stopped: byte %ld is wrong", names[operation], whose[who], wrong);
    say("%s, %s stopped: %s", names[operation], whose[who], early ? "done meanwhile" : "done");
}

static void end(struct child child)
{
    int status;
    close(child.fd);
    if (waitpid(child.pid, &status, 0) != child.pid || status)
        die("a child ended with %x", status);
}

static void waits(int gid_index, int killed)
{
    outlives = 1;
    struct child receive = start(receiver, gid_index);
    struct endpoint its;
    int ends[2];
    char ready;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) || !get(receive.fd, &its, sizeof its))
        die("the receiver");
    put(ends[1], &its, sizeof its);
    struct side side = connect_side(ends[0], gid_index);
    if (!get(ends[1], &its, sizeof its))
        die("own endpoint");
    put(receive.fd, &its, sizeof its);
    if (!get(receive.fd, &ready, 1))
        die("the receiver");
    /* One that it answers. */
    post(&side, SEND, 1);
    if (next_completion(side.cq).status)
        die("the first SEND");
    send_signal(receive, SIGSTOP);
    post(&side, SEND, 2);
    say("waits %d", (int)receive.pid);
    struct ibv_wc wc;
    double until = now() + (killed ? 1.5 : DEADLINE_SECONDS);
    while (now() < until)
        if (ibv_poll_cq(side.cq, 1, &wc))
            die("it did not wait: %s", ibv_wc_status_str(wc.status));
    send_signal(receive, SIGKILL);
    wc = next_completion(side.cq);
    say("%s", ibv_wc_status_str(wc.status));
    exit(wc.status == IBV_WC_RETRY_EXC_ERR ? 3 : 4);
}

enum { DATAGRAM = 1024, QKEY = 0x1111, FLOOD = 20000 };

struct unreliable {
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    struct ibv_qp *qps[2];
    struct ibv_ah *ah;
    struct endpoint peers[2];
    uint8_t *data;
};

/* UC, then UD. */
static struct unreliable connect_unreliable(int fd, int gid_index)
{
    struct unreliable side;
    struct ibv_context *context = open_device();
    side.pd = ibv_alloc_pd(context);
    side.cq = ibv_create_cq(context, 256, NULL, NULL, 0);
    side.data = calloc(RECEIVES, 2 * DATAGRAM);
    side.mr = ibv_reg_mr(side.pd, side.data, RECEIVES * 2 * DATAGRAM, ALL_MR_ACCESS);
    if (!side.pd || !side.cq || !side.mr)
        die("set up");
    for (int i = 0; i < 2; i++) {
        struct ibv_qp_init_attr init = {.send_cq = side.cq,
                                        .recv_cq = side.cq,
                                        .cap = {.max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 1, .max_recv_sge = 1},
                                        .qp_type = i ? IBV_QPT_UD : IBV_QPT_UC};
        side.qps[i] = ibv_create_qp(side.pd, &init);
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
        int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (i ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
        if (!side.qps[i] || (errno = ibv_modify_qp(side.qps[i], &attr, mask)))
            die("INIT");
        struct endpoint own = {.qpn = side.qps[i]->qp_num, .psn = 9};
        if (ibv_query_gid(context, 1, gid_index, &own.gid))
            die("ibv_query_gid");
        put(fd, &own, sizeof own);
        if (!get(fd, &side.peers[i], sizeof side.peers[i]))
            die("no peer");
        struct ibv_ah_attr ah = {.is_global = 1,
                                 .port_num = 1,
                                 .grh = {.dgid = side.peers[i].gid, .sgid_index = gid_index, .hop_limit = 64}};
        attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .rq_psn = 9, .ah_attr = ah};
        attr.dest_qp_num = side.peers[i].qpn;
        mask = IBV_QP_STATE | (i ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN);
        if ((errno = ibv_modify_qp(side.qps[i], &attr, mask)))
            die("RTR");
        attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = 9};
        if ((errno = ibv_modify_qp(side.qps[i], &attr, IBV_QP_STATE | IBV_QP_SQ_PSN)) || !(side.ah = ibv_create_ah(side.pd, &ah)))
            die("RTS");
    }
    return side;
}

static void post_unreliable(struct unreliable *side, int which)
{
    struct ibv_sge sge = {.addr = (uintptr_t)side->data, .length = DATAGRAM, .lkey = side->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
    wr.wr.ud.ah = side->ah;
    wr.wr.ud.remote_qpn = side->peers[1].qpn;
    wr.wr.ud.remote_qkey = QKEY;
    if ((errno = ibv_post_send(side->qps[which], &wr, &bad)))
        die("ibv_post_send");
}

static void unreliable_receiver(int fd, int gid_index)
{
    struct unreliable side = connect_unreliable(fd, gid_index);
    for (int which = 0; which < 2; which++)
        for (int i = 0; i < RECEIVES / 2; i++) {
            struct ibv_sge sge = {.addr = (uintptr_t)side.data + (which * RECEIVES / 2 + i) * 2 * DATAGRAM,
                                  .length = 2 * DATAGRAM,
                                  .lkey = side.mr->lkey};
            struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
            if ((errno = ibv_post_recv(side.qps[which], &wr, &bad)))
                die("ibv_post_recv");
        }
    put(fd, "r", 1);
    char what;
    while (get(fd, &what, 1)) {
        for (int i = 0; i < RECEIVES; i++)
            if (next_completion(side.cq).status)
                die("a receive");
        put(fd, &what, 1);
    }
    _exit(0);
}

static void unreliable_sender(int fd, int gid_index)
{
    struct unreliable side = connect_unreliable(fd, gid_index);
    put(fd, "r", 1);
    int count;
    while (get(fd, &count, sizeof count)) {
        int posted = 0, done = 0;
        while (done < count) {
            if (posted < count && posted - done < 64) {
                post_unreliable(&side, posted % 2);
                posted++;
                continue;
            }
            if (next_completion(side.cq).status)
                die("a send");
            done++;
        }
        put(fd, &count, sizeof count);
    }
    _exit(0);
}

static void unreliable(int gid_index)
{
    struct child receive = start(unreliable_receiver, gid_index), send = start(unreliable_sender, gid_index);
    struct endpoint its, others;
    char ready;
    for (int i = 0; i < 2; i++) {
        if (!get(receive.fd, &its, sizeof its) || !get(send.fd, &others, sizeof others))
            die("a child ended");
        put(receive.fd, &others, sizeof others);
        put(send.fd, &its, sizeof its);
    }
    if (!get(receive.fd, &ready, 1) || !get(send.fd, &ready, 1))
        die("a child ended");
    for (int flood = 0; flood < 2; flood++) {
        int count = flood ? FLOOD : RECEIVES;
        send_signal(receive, SIGSTOP);
        double begin = now();
        put(send.fd, &count, sizeof count);
        if (!says_something(send, DEADLINE_SECONDS * 1000) || !get(send.fd, &count, sizeof count))
            die("they do not complete");
        say("%d messages to a stopped process took %.1f s", count, now() - begin);
        send_signal(receive, SIGCONT);
        if (!flood) {
            put(receive.fd, "c", 1);
            if (!get(receive.fd, &ready, 1))
                die("they have not come");
        }
    }
    end(send);
    end(receive);
    say("all done");
    exit(0);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        die("usage: stopped GID_INDEX [unreliable | waits [killed]]");
    int gid_index = atoi(argv[1]);
    if (argc > 2 && !strcmp(argv[2], "unreliable"))
        unreliable(gid_index);
    if (argc > 2)
        waits(gid_index, argc > 3);
    struct child receive = start(receiver, gid_index), send = start(sender, gid_index);
    introduce(send, receive);
    int number = 0;
    for (int operation = 0; operation < OPERATIONS; operation++)
        one(send, receive, operation, RECEIVER, number++);
    for (int who = SENDER; who < WHO; who++)
        for (int operation = SEND; operation <= FETCH_ADD; operation++)
            one(send, receive, operation, who, number++);
    /* One that is killed while it is stopped is gone. */
    send_signal(receive, SIGSTOP);
    post_by(send, SEND, 1, 0);
    if (says_something(send, STOPPED_MS))
        die("killed while stopped: it failed, or was done, before: status %d", status_of(send));
    send_signal(receive, SIGKILL);
    int status = status_of(send);
    if (status != IBV_WC_RETRY_EXC_ERR)
        die("killed while stopped: %s", ibv_wc_status_str(status));
    say("SEND, the receiver killed while it was stopped: %s", ibv_wc_status_str(status));
    waitpid(receive.pid, NULL, 0);
    end(send);
    say("all done");
    return 0;
}
