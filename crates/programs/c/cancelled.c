/* Threads that wait for events of the three kinds are cancelled, in their wait or just before it, again and again; then the
 * same objects are used as if nothing had been, and given back. What was cancelled has left no descriptor behind. A thread
 * that has its cancellation before it finishes other verbs first.
 */
#include "rc.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <rdma/rdma_cma.h>
#include <sys/syscall.h>

static struct rdma_event_channel *channel;
static struct ibv_context *context;
static struct ibv_comp_channel *completions;
static _Atomic pid_t waiting;

static void *wait_for_cm_event(void *unused)
{
    struct rdma_cm_event *event;
    waiting = syscall(SYS_gettid);
    rdma_get_cm_event(channel, &event);
    return unused;
}

static void *wait_for_completion(void *unused)
{
    struct ibv_cq *cq;
    void *cq_context;
    waiting = syscall(SYS_gettid);
    ibv_get_cq_event(completions, &cq, &cq_context);
    return unused;
}

static void *wait_for_async_event(void *unused)
{
    struct ibv_async_event event;
    waiting = syscall(SYS_gettid);
    ibv_get_async_event(context, &event);
    return unused;
}

/* Verbs that open, read, write and close: that is no place to be unwound. */
static _Atomic int finished;

static void *work_with_cancellation_ahead(void *unused)
{
    if ((errno = pthread_cancel(pthread_self())))
        die("pthread_cancel");
    for (int i = 0; i < 3; i++) {
        int count;
        struct ibv_device **list = ibv_get_device_list(&count);
        struct ibv_context *own = list && count ? ibv_open_device(list[0]) : NULL;
        struct ibv_comp_channel *events = own ? ibv_create_comp_channel(own) : NULL;
        struct ibv_cq *cq = events ? ibv_create_cq(own, 4, NULL, events, 0) : NULL;
        struct ibv_port_attr port;
        struct ibv_wc wc;
        for (int polls = 0; cq && polls < 10000; polls++)
            ibv_poll_cq(cq, 1, &wc);
        struct rdma_event_channel *cm_events = rdma_create_event_channel();
        if (!cq || !cm_events || ibv_query_port(own, 1, &port) || ibv_destroy_cq(cq) ||
            ibv_destroy_comp_channel(events) || ibv_close_device(own))
            return unused;
        rdma_destroy_event_channel(cm_events);
        ibv_free_device_list(list);
    }
    finished = 1;
    return wait_for_cm_event(unused);
}

/* The thread sleeps; its only sleep is that for the event. */
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

static void cancel_one(void *(*wait)(void *), int asleep)
{
    pthread_t thread;
    waiting = 0;
    if ((errno = pthread_create(&thread, NULL, wait, NULL)))
        die("pthread_create");
    while (!waiting || (asleep && !sleeps(waiting)))
        sched_yield();
    void *result = NULL;
    if ((errno = pthread_cancel(thread)) || (errno = pthread_join(thread, &result)))
        die("pthread_cancel, pthread_join");
    if (result != PTHREAD_CANCELED)
        die("the wait ended by itself");
}

static int descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

int main(int argc, char **argv)
{
    if (!(channel = rdma_create_event_channel()))
        die("rdma_create_event_channel");
    context = open_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    if (!pd || !(completions = ibv_create_comp_channel(context)))
        die("ibv_create_comp_channel");
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, completions, 0);
    if (!cq)
        die("ibv_create_cq");

    int before = descriptors();
    for (int i = 0; i < 30; i++) {
        cancel_one(wait_for_cm_event, i % 2);
        cancel_one(wait_for_completion, i % 2);
        cancel_one(wait_for_async_event, i % 2);
    }
    pthread_t thread;
    void *result = NULL;
    if ((errno = pthread_create(&thread, NULL, work_with_cancellation_ahead, NULL)) ||
        (errno = pthread_join(thread, &result)))
        die("pthread_create, pthread_join");
    if (!finished || result != PTHREAD_CANCELED)
        die("verbs were not finished before the cancellation, or it was lost");
    if (descriptors() != before)
        die("%d descriptors before, %d after", before, descriptors());

    /* An event of the connection manager. */
    struct rdma_addrinfo *addr, hints = {.ai_port_space = RDMA_PS_TCP};
    struct rdma_cm_id *id;
    struct rdma_cm_event *event;
    if (rdma_getaddrinfo(argc > 1 ? argv[1] : "127.0.0.1", "7471", &hints, &addr) ||
        rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) || rdma_resolve_addr(id, NULL, addr->ai_dst_addr, 2000) ||
        rdma_get_cm_event(channel, &event))
        die("rdma_resolve_addr");
    if (event->event != RDMA_CM_EVENT_ADDR_RESOLVED)
        die("%s", rdma_event_str(event->event));
    rdma_ack_cm_event(event);

    /* A completion, of a write of nothing to oneself. */
    struct ibv_qp *qp = make_qp(pd, cq, ALL_QP_ACCESS);
    struct endpoint self = {.qpn = qp->qp_num, .psn = 7};
    if (ibv_query_gid(context, 1, 0, &self.gid))
        die("ibv_query_gid");
    connect_qp(qp, 0, 7, &self, 7);
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED}, *bad;
    struct ibv_cq *which = NULL;
    void *cq_context;
    if ((errno = ibv_req_notify_cq(cq, 0)) || (errno = ibv_post_send(qp, &wr, &bad)))
        die("ibv_post_send");
    if (ibv_get_cq_event(completions, &which, &cq_context) || which != cq)
        die("ibv_get_cq_event");
    ibv_ack_cq_events(cq, 1);
    if (next_completion(cq).status != IBV_WC_SUCCESS)
        die("the write failed");

    /* An asynchronous event. */
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
    struct ibv_async_event drained;
    if ((errno = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY)))
        die("ibv_modify_qp to SQD");
    if (ibv_get_async_event(context, &drained) || drained.event_type != IBV_EVENT_SQ_DRAINED)
        die("ibv_get_async_event");
    ibv_ack_async_event(&drained);

    if ((errno = ibv_destroy_qp(qp)) || (errno = ibv_destroy_cq(cq)) ||
        (errno = ibv_destroy_comp_channel(completions)) || (errno = ibv_dealloc_pd(pd)) || ibv_close_device(context) ||
        rdma_destroy_id(id))
        die("destroy");
    rdma_freeaddrinfo(addr);
    rdma_destroy_event_channel(channel);
    say("all well");
    return 0;
}
