/*
 * A libibverbs with one device, fake0, that does nothing. FAKE_VERBS says how it behaves:
 * good, receives (as said below), no_post_send, old_abi, gone (every call is EIO), nonsense (answers that cannot be), vague
 * (refuses to post, and does not say what). Else it takes whatever is posted. In the mood "receives"
 * each receive completes with 48 bytes and, as of Soft-RoCE, with the flag of a network header.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#undef ibv_query_port
#undef ibv_reg_mr

enum { MAX_CQE = 1000 };

static int mood(const char *name) {
  const char *now = getenv("FAKE_VERBS");
  return now && !strcmp(now, name);
}

static int answer(void) { return mood("gone") ? EIO : 0; }

static void *object(size_t size) {
  if (mood("gone")) {
    errno = EIO;
    return NULL;
  }
  return calloc(1, size);
}

static struct ibv_device device = {.name = "fake0", .dev_name = "fake0"};

struct ibv_device **ibv_get_device_list(int *count) {
  struct ibv_device **list = calloc(2, sizeof *list);
  list[0] = &device;
  /* One that is not there: the list ends where a pointer is NULL. */
  *count = 2;
  return list;
}

void ibv_free_device_list(struct ibv_device **list) { free(list); }
const char *ibv_get_device_name(struct ibv_device *of) { return of->name; }
__be64 ibv_get_device_guid(struct ibv_device *of) { return of ? 0 : 1; }

/* The latest receive, if it has not completed. */
static struct {
  int waits;
  uint64_t id;
} received;

static int poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc) {
  (void)cq;
  if (mood("gone") || mood("nonsense"))
    return mood("gone") ? -1 : count + 1000;
  if (!mood("receives") || !received.waits || count < 1)
    return 0;
  received.waits = 0;
  memset(wc, 0, sizeof *wc);
  wc->wr_id = received.id;
  wc->opcode = IBV_WC_RECV;
  wc->byte_len = 48;
  wc->wc_flags = IBV_WC_GRH;
  return 1;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited) {
  (void)cq, (void)solicited;
  return answer();
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
  (void)qp;
  if (!mood("vague"))
    *bad = mood("nonsense") ? (void *)16 : wr;
  return mood("nonsense") || mood("vague") ? ENOMEM : answer();
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
  (void)qp;
  received.waits = 1;
  received.id = wr->wr_id;
  if (!mood("vague"))
    *bad = mood("nonsense") ? (void *)16 : wr;
  return mood("nonsense") || mood("vague") ? ENOMEM : answer();
}

struct ibv_context *ibv_open_device(struct ibv_device *of) {
  struct verbs_context *whole = calloc(1, sizeof *whole);
  whole->sz = sizeof *whole;
  whole->context.device = of;
  whole->context.async_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  whole->context.abi_compat = mood("old_abi") ? NULL : (void *)UINTPTR_MAX;
  whole->context.ops.poll_cq = poll_cq;
  whole->context.ops.req_notify_cq = req_notify_cq;
  whole->context.ops.post_send = mood("no_post_send") ? NULL : post_send;
  whole->context.ops.post_recv = post_recv;
  return &whole->context;
}

int ibv_close_device(struct ibv_context *context) {
  free((char *)context - offsetof(struct verbs_context, context));
  return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr) {
  (void)context;
  memset(attr, 0, sizeof *attr);
  attr->max_qp_rd_atom = attr->max_qp_init_rd_atom = 1;
  attr->max_cqe = MAX_CQE;
  return answer();
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr) {
  (void)context, (void)port;
  if (!answer())
    ((struct ibv_port_attr *)attr)->gid_tbl_len = 1 << 30;
  return answer();
}

int ibv_query_gid(struct ibv_context *c, uint8_t port, int index, union ibv_gid *gid) {
  (void)c, (void)port, (void)index, (void)gid;
  return -1;
}

int ibv_query_pkey(struct ibv_context *c, uint8_t port, int index, __be16 *pkey) {
  (void)c, (void)port, (void)index, (void)pkey;
  return -1;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event) {
  static int taken;
  (void)context;
  if (!mood("nonsense") || taken == 3) {
    errno = EAGAIN;
    return -1;
  }
  memset(event, 0, sizeof *event);
  /* An event that nobody knows, one of a queue pair that there is not, and one of a port. */
  const int kinds[] = {999, IBV_EVENT_QP_FATAL, IBV_EVENT_PORT_ERR};
  event->event_type = kinds[taken++];
  if (event->event_type == IBV_EVENT_PORT_ERR)
    event->element.port_num = 1;
  return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event) { (void)event; }

#define MAKE(type, name, ...)                                                                     \
  struct type *name(__VA_ARGS__) { return object(sizeof(struct type)); }
#define END(type, name)                                                                           \
  int name(struct type *it) {                                                                     \
    if (mood("nonsense"))                                                                         \
      return EBUSY;                                                                               \
    if (!answer())                                                                                \
      free(it);                                                                                   \
    return answer();                                                                              \
  }
#define ANSWER(name, ...)                                                                         \
  int name(__VA_ARGS__) { return answer(); }

MAKE(ibv_pd, ibv_alloc_pd, struct ibv_context *c)
END(ibv_pd, ibv_dealloc_pd)
MAKE(ibv_mr, ibv_reg_mr, struct ibv_pd *pd, void *addr, size_t length, int access)
END(ibv_mr, ibv_dereg_mr)
MAKE(ibv_comp_channel, ibv_create_comp_channel, struct ibv_context *c)
END(ibv_comp_channel, ibv_destroy_comp_channel)

struct ibv_cq *ibv_create_cq(struct ibv_context *c, int n, void *ctx, struct ibv_comp_channel *ch,
                             int vector) {
  (void)c, (void)ctx, (void)ch, (void)vector;
  errno = EINVAL;
  return n > MAX_CQE ? NULL : object(sizeof(struct ibv_cq));
}

END(ibv_cq, ibv_destroy_cq)
MAKE(ibv_srq, ibv_create_srq, struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
END(ibv_srq, ibv_destroy_srq)
ANSWER(ibv_modify_srq, struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
ANSWER(ibv_query_srq, struct ibv_srq *srq, struct ibv_srq_attr *attr)
MAKE(ibv_qp, ibv_create_qp, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
END(ibv_qp, ibv_destroy_qp)

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) {
  if (!answer() && mask & IBV_QP_STATE)
    qp->state = attr->qp_state;
  return answer();
}

MAKE(ibv_ah, ibv_create_ah, struct ibv_pd *pd, struct ibv_ah_attr *attr)
END(ibv_ah, ibv_destroy_ah)
ANSWER(ibv_attach_mcast, struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
ANSWER(ibv_detach_mcast, struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                 struct ibv_qp_init_attr *init) {
  (void)mask, (void)init;
  attr->qp_state = mood("nonsense") ? 77 : qp->state;
  return answer();
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context) {
  (void)channel, (void)cq, (void)context;
  errno = EAGAIN;
  return -1;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count) { (void)cq, (void)count; }
