/* What learners of RDMA get wrong: both queue pairs are in one process.
 *
 * mistakes GID-INDEX CASE
 *
 *   no-receive        a SEND, and the peer has no receive (rnr_retry 3)
 *   imm-no-receive    an RDMA WRITE with immediate, likewise
 *   imm-too-long      a SEND with immediate, longer than the receive
 *   swapped-rkey      an rkey in the wrong byte order
 *   swapped-qpn       a dest_qp_num in the wrong byte order
 *   swapped-address   a remote_addr in the wrong byte order
 *   local-variable    remote_addr is the address of a variable beside the region
 *   unaligned         a fetch-and-add at an address that is not a multiple of 8
 *   no-atomics        a fetch-and-add, and the region lacks IBV_ACCESS_REMOTE_ATOMIC
 *   no-reads          an RDMA READ, and the region lacks IBV_ACCESS_REMOTE_READ
 *   qp-no-atomics     a fetch-and-add, and qp_access_flags lack IBV_ACCESS_REMOTE_ATOMIC
 *   many-reads        RDMA READs, and the peer's max_dest_rd_atomic is 0
 *   other-pd          the buffer's region is of another protection domain
 *   other-pd-peer     the peer's region is of another protection domain than its queue pair
 *   deregistered      the buffer's region was deregistered
 *   bad-lkey          an lkey that no region has
 *   outside           a buffer that ends behind its region
 *   read-into-const   an RDMA READ into a region without IBV_ACCESS_LOCAL_WRITE
 *   receive-const     a receive into a region without IBV_ACCESS_LOCAL_WRITE
 *   inline-long       IBV_SEND_INLINE with more bytes than max_inline_data
 *   many-sges         more scatter/gather entries than max_send_sge
 *   queue-full        more sends than max_send_wr, and none was polled for
 *   receive-full      more receives than max_recv_wr
 *   no-rts            a SEND in RTR: the move to RTS was forgotten
 *   receive-early     a receive posted in RESET
 *   no-rtr            from INIT to RTS, without RTR
 *   bad-port          port_num 2 of a device with one port
 *   bad-gid           an sgid_index that the table does not have
 *   other-family      sgid_index is of an IPv4 address, and dgid an IPv6 one
 *   not-global        ah_attr.is_global is 0
 *   big-mtu           a path_mtu of 7, which no enum ibv_mtu is
 *   cq-in-use         ibv_destroy_cq before its queue pairs are destroyed
 *   pd-in-use         ibv_dealloc_pd before its regions are deregistered
 *   write-const       ibv_reg_mr with IBV_ACCESS_REMOTE_WRITE and without IBV_ACCESS_LOCAL_WRITE
 *   unmapped-memory   ibv_reg_mr of memory that is not mapped
 *   read-only-memory  ibv_reg_mr of a constant for writing
 *   large-cq          a completion queue longer than max_cqe
 *
 * Prints "status N" for the request of A, or "errno N" for a call that was refused. Ends with 3.
 */
#include "rc.h"

#include <arpa/inet.h>
#include <sys/mman.h>

enum { SIZE = 4096 };

static const char *what;

static int is(const char *other)
{
    return !strcmp(what, other);
}

static void __attribute__((noreturn)) refused(int error)
{
    say("errno %d", error);
    exit(3);
}

/* The call that the case is about is refused. */
static void check(int error)
{
    if (error)
        refused(error);
}

static void receive(struct ibv_qp *on, struct ibv_mr *mr, uint32_t length)
{
    struct ibv_sge into = {.addr = (uintptr_t)mr->addr, .length = length, .lkey = mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = 7, .sg_list = &into, .num_sge = 1}, *bad;
    check(ibv_post_recv(on, &wr, &bad));
}

/* Calls that have nothing to do with a connection. */
static void make_something(struct ibv_context *context, struct ibv_pd *pd, void *memory)
{
    static const char constant[SIZE] = "constant";
    struct ibv_device_attr device;
    if (is("write-const") && !ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_REMOTE_WRITE))
        refused(errno);
    if (is("unmapped-memory")) {
        void *at = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        munmap(at, SIZE);
        if (!ibv_reg_mr(pd, at, SIZE, IBV_ACCESS_LOCAL_WRITE))
            refused(errno);
    }
    if (is("read-only-memory") && !ibv_reg_mr(pd, (void *)constant, SIZE, IBV_ACCESS_LOCAL_WRITE))
        refused(errno);
    if (is("large-cq") && !ibv_query_device(context, &device) && !ibv_create_cq(context, device.max_cqe + 1, NULL, NULL, 0))
        refused(errno);
    if (is("pd-in-use"))
        check(ibv_dealloc_pd(pd));
}

int main(int argc, char **argv)
{
    if (argc != 3)
        die("usage: mistakes GID-INDEX CASE");
    int gid_index = atoi(argv[1]);
    what = argv[2];
    struct ibv_context *context = open_device();
    struct ibv_pd *pd = ibv_alloc_pd(context), *other = ibv_alloc_pd(context);
    struct ibv_cq *cq[2] = {ibv_create_cq(context, 64, NULL, NULL, 0), ibv_create_cq(context, 64, NULL, NULL, 0)};
    uint8_t *memory = aligned_alloc(SIZE, 4 * SIZE);
    if (!pd || !other || !cq[0] || !cq[1] || !memory)
        die("set up");
    memset(memory, 0, 4 * SIZE);
    int constant = IBV_ACCESS_REMOTE_READ;
    struct ibv_mr *own = ibv_reg_mr(is("other-pd") ? other : pd, memory, SIZE, is("read-into-const") ? constant : ALL_MR_ACCESS);
    int rights = ALL_MR_ACCESS & ~(is("no-atomics") ? IBV_ACCESS_REMOTE_ATOMIC : is("no-reads") ? IBV_ACCESS_REMOTE_READ : 0);
    struct ibv_mr *peers =
        ibv_reg_mr(is("other-pd-peer") ? other : pd, memory + 2 * SIZE, SIZE, is("receive-const") ? constant : rights);
    if (!own || !peers)
        die("ibv_reg_mr");
    make_something(context, pd, memory);

    struct ibv_qp *qp[2];
    for (int i = 0; i < 2; i++) {
        struct ibv_qp_init_attr init = {.send_cq = cq[i], .recv_cq = cq[i], .cap = {4, 4, 1, 1, 16}, .qp_type = IBV_QPT_RC};
        if (!(qp[i] = ibv_create_qp(pd, &init)))
            die("ibv_create_qp");
        if (is("receive-early"))
            receive(qp[i], own, 64);
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                                   .port_num = is("bad-port") ? 2 : 1,
                                   .qp_access_flags = ALL_QP_ACCESS & ~(is("qp-no-atomics") ? IBV_ACCESS_REMOTE_ATOMIC : 0)};
        check(ibv_modify_qp(qp[i], &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    }
    if (is("cq-in-use"))
        check(ibv_destroy_cq(cq[0]));
    union ibv_gid gid;
    if (ibv_query_gid(context, 1, gid_index, &gid))
        die("ibv_query_gid");
    if (is("other-family"))
        gid = (union ibv_gid){.raw = {0xfe, 0x80, [15] = 1}};
    for (int i = 0; i < 2; i++) {
        struct ibv_qp_attr attr = {
            .qp_state = is("no-rtr") ? IBV_QPS_RTS : IBV_QPS_RTR,
            .path_mtu = is("big-mtu") ? 7 : IBV_MTU_1024,
            .dest_qp_num = is("swapped-qpn") ? htonl(qp[!i]->qp_num) : qp[!i]->qp_num,
            .max_dest_rd_atomic = i && is("many-reads") ? 0 : 4,
            .min_rnr_timer = 12,
            .ah_attr = {.is_global = !is("not-global"),
                        .port_num = 1,
                        .grh = {.dgid = gid, .sgid_index = is("bad-gid") ? 77 : gid_index, .hop_limit = 64}},
        };
        int last = is("no-rtr") ? IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
                                : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        check(ibv_modify_qp(qp[i], &attr, IBV_QP_STATE | last));
        if (is("no-rts"))
            continue;
        attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 12, .retry_cnt = 3, .rnr_retry = 3, .max_rd_atomic = 4};
        last = IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
        if ((errno = ibv_modify_qp(qp[i], &attr, IBV_QP_STATE | last)))
            die("to RTS");
    }
    for (int i = 0; i < (is("receive-full") ? 1000 : !strstr(what, "no-receive")); i++)
        receive(qp[1], peers, is("imm-too-long") ? 16 : SIZE);
    if (is("deregistered") && ibv_dereg_mr(own))
        die("ibv_dereg_mr");

    struct ibv_sge from[2] = {{.addr = (uintptr_t)memory, .length = 32, .lkey = own->lkey}, {.addr = (uintptr_t)memory, .length = 32, .lkey = own->lkey}};
    if (is("bad-lkey"))
        from->lkey ^= 0x5500;
    if (is("outside"))
        from->addr += SIZE - 16;
    struct ibv_send_wr wr = {.wr_id = 1, .sg_list = from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)memory + 2 * SIZE;
    wr.wr.rdma.rkey = peers->rkey;
    if (is("imm-no-receive") || strstr(what, "swapped") || is("local-variable") || is("other-pd-peer"))
        wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    if (is("imm-too-long"))
        wr.opcode = IBV_WR_SEND_WITH_IMM;
    if (is("swapped-rkey"))
        wr.wr.rdma.rkey = htonl(peers->rkey);
    if (is("swapped-address"))
        wr.wr.rdma.remote_addr = __builtin_bswap64(wr.wr.rdma.remote_addr);
    if (is("local-variable"))
        wr.wr.rdma.remote_addr = (uintptr_t)&wr;
    if (is("no-reads") || is("many-reads") || is("read-into-const"))
        wr.opcode = IBV_WR_RDMA_READ;
    if (strstr(what, "atomics") || is("unaligned")) {
        wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        from->length = 8;
        wr.wr.atomic.remote_addr = (uintptr_t)memory + 2 * SIZE + (is("unaligned") ? 4 : 0);
        wr.wr.atomic.rkey = peers->rkey;
        wr.wr.atomic.compare_add = 1;
    }
    if (is("inline-long")) {
        wr.send_flags |= IBV_SEND_INLINE;
        from->length = SIZE;
    }
    if (is("many-sges"))
        wr.num_sge = 100;
    for (int i = 0; i < (is("queue-full") ? 1000 : 1); i++)
        check(ibv_post_send(qp[0], &wr, &bad));
    say("status %d", next_completion(cq[0]).status);
    return 3;
}
