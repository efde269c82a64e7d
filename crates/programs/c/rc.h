/* What the C programs of the tests share: errors that end the program, a reliable connection, waiting with a deadline. */
#ifndef RC_H
#define RC_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef DEADLINE_SECONDS
#define DEADLINE_SECONDS 60
#endif

/* Ends the program with status 1 and a message on standard error. */
static void __attribute__((noreturn, format(printf, 1, 2), unused)) die(const char *format, ...)
{
    int error = errno;
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, " (errno %d: %s)\n", error, strerror(error));
    fflush(stdout);
    _exit(1);
}

/* A line on standard output in one write, so that lines of two processes do not mix. */
static void __attribute__((format(printf, 1, 2), unused)) say(const char *format, ...)
{
    char line[256];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (length < 0 || length >= (int)sizeof line - 1)
        die("line too long");
    line[length++] = '\n';
    if (write(STDOUT_FILENO, line, length) != length)
        die("standard output");
}

static double __attribute__((unused)) now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

/* What a peer has to know. */
struct endpoint {
    union ibv_gid gid;
    uint32_t qpn;
    uint32_t psn;
    uint64_t address;
    uint32_t rkey;
};

static void __attribute__((unused)) put(int fd, const void *data, size_t length)
{
    for (size_t done = 0; done < length;) {
        ssize_t n = write(fd, (const char *)data + done, length - done);
        if (n <= 0)
            die("write to the peer");
        done += n;
    }
}

/* 0 when the peer is gone. */
static int __attribute__((unused)) get(int fd, void *data, size_t length)
{
    for (size_t done = 0; done < length;) {
        ssize_t n = read(fd, (char *)data + done, length - done);
        if (n <= 0)
            return 0;
        done += n;
    }
    return 1;
}

/* Both have come here. */
static void __attribute__((unused)) meet(int fd)
{
    char byte = 0;
    put(fd, &byte, 1);
    if (!get(fd, &byte, 1))
        die("the peer is gone");
}

/* rnic's device, or the one that RC_DEVICE names. */
static struct ibv_context __attribute__((unused)) *open_device(void)
{
    const char *wanted = getenv("RC_DEVICE");
    if (!wanted)
        wanted = "rnic0";
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    if (!list)
        die("ibv_get_device_list");
    struct ibv_context *context = NULL;
    for (int i = 0; i < count; i++)
        if (!strcmp(ibv_get_device_name(list[i]), wanted) && !(context = ibv_open_device(list[i])))
            die("ibv_open_device");
    if (!context)
        die("no device %s among %d", wanted, count);
    ibv_free_device_list(list);
    return context;
}

/* A queue pair in INIT, all completions signaled by request. */
static struct ibv_qp __attribute__((unused)) *make_qp(struct ibv_pd *pd, struct ibv_cq *cq, int access)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 2, .max_recv_sge = 2},
        .qp_type = IBV_QPT_RC,
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    if (!qp)
        die("ibv_create_qp");
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access};
    if ((errno = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)))
        die("ibv_modify_qp to INIT");
    return qp;
}

#define ALL_QP_ACCESS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define ALL_MR_ACCESS (ALL_QP_ACCESS | IBV_ACCESS_LOCAL_WRITE)

/* READs and atomics at once, of the connections made from now on. */
static uint8_t __attribute__((unused)) max_rd_atomic = 4, max_dest_rd_atomic = 4;

/* Of the connections made from now on. Of 7, Soft-RoCE never tires. */
static uint8_t __attribute__((unused)) retry_cnt = 7;

/* 4.096 us * 2^14 = 67 ms. Of the connections made from now on. */
static uint8_t __attribute__((unused)) ack_timeout = 14;

/* From INIT to RTS, or an errno. Without answers retry_cnt + 1 tries, then status 12. */
static int __attribute__((unused)) try_connect_qp(struct ibv_qp *qp, int gid_index, uint32_t own_psn,
                                                  const struct endpoint *peer, int rnr_retry)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = peer->qpn,
        .rq_psn = peer->psn,
        .max_dest_rd_atomic = max_dest_rd_atomic,
        .min_rnr_timer = 12, /* 0.64 ms */
        .ah_attr = {.is_global = 1,
                    .port_num = 1,
                    .grh = {.dgid = peer->gid, .sgid_index = gid_index, .hop_limit = 64}},
    };
    int error = ibv_modify_qp(qp, &attr,
                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (error)
        return error;
    memset(&attr, 0, sizeof attr);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = ack_timeout;
    attr.retry_cnt = retry_cnt;
    attr.rnr_retry = rnr_retry;
    attr.sq_psn = own_psn;
    attr.max_rd_atomic = max_rd_atomic;
    return ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                             IBV_QP_MAX_QP_RD_ATOMIC);
}

static void __attribute__((unused)) connect_qp(struct ibv_qp *qp, int gid_index, uint32_t own_psn,
                                               const struct endpoint *peer, int rnr_retry)
{
    if ((errno = try_connect_qp(qp, gid_index, own_psn, peer, rnr_retry)))
        die("ibv_modify_qp to RTR and RTS");
}

static enum ibv_qp_state __attribute__((unused)) state_of(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    if ((errno = ibv_query_qp(qp, &attr, IBV_QP_STATE, &init)))
        die("ibv_query_qp");
    return attr.qp_state;
}

/* The next completion; the program ends when none comes in time. */
static struct ibv_wc __attribute__((unused)) next_completion(struct ibv_cq *cq)
{
    struct ibv_wc wc;
    double deadline = now() + DEADLINE_SECONDS;
    for (;;) {
        int n = ibv_poll_cq(cq, 1, &wc);
        if (n < 0)
            die("ibv_poll_cq");
        if (n == 1)
            return wc;
        if (now() > deadline) {
            errno = ETIMEDOUT;
            die("no completion");
        }
    }
}

/* A byte that depends on where it is, and on a generation. */
static inline uint8_t pattern(uint64_t index, uint32_t generation)
{
    uint64_t x = (index + 1) * 0x9e3779b97f4a7c15ull ^ generation * 0xc2b2ae3d27d4eb4full;
    return (x >> 29) ^ (x >> 47);
}

static void __attribute__((unused)) fill(uint8_t *data, size_t length, uint32_t generation)
{
    for (size_t i = 0; i < length; i++)
        data[i] = pattern(i, generation);
}

/* The first byte that differs from the pattern, or -1. */
static long __attribute__((unused)) differs(const uint8_t *data, size_t length, uint32_t generation)
{
    for (size_t i = 0; i < length; i++)
        if (data[i] != pattern(i, generation))
            return i;
    return -1;
}

#endif
