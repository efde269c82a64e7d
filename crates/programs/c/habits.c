/* A stream of WRITEs between two queue pairs of one process, with good or bad habits, for `rnic advise`.
 *
 * habits GID-INDEX LENGTH COUNT DEPTH LIST SIGNAL INLINE REGISTER
 *
 * COUNT WRITEs of LENGTH bytes, at most DEPTH under way, LIST of them in one post, one in SIGNAL signaled. INLINE 1: with
 * IBV_SEND_INLINE. REGISTER 1: the memory is registered for each WRITE, and deregistered when that is done (DEPTH 1).
 * Prints how many WRITEs there were in a second. */
#include "rc.h"

enum { MOST = 512 };

static struct ibv_qp *make(struct ibv_pd *pd, struct ibv_cq *cq, int depth, int length, int is_inline)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = depth, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1,
                .max_inline_data = is_inline ? length : 0},
        .qp_type = IBV_QPT_RC,
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    if (!qp)
        die("ibv_create_qp");
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL_QP_ACCESS};
    if ((errno = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)))
        die("ibv_modify_qp to INIT");
    return qp;
}

int main(int argc, char **argv)
{
    if (argc != 9)
        die("usage: habits GID-INDEX LENGTH COUNT DEPTH LIST SIGNAL INLINE REGISTER");
    int gid_index = atoi(argv[1]), length = atoi(argv[2]), count = atoi(argv[3]), depth = atoi(argv[4]);
    int list = atoi(argv[5]), each = atoi(argv[6]), is_inline = atoi(argv[7]), registers = atoi(argv[8]);
    if (length < 1 || depth < 1 || list < 1 || list > depth || list > MOST || each < 1 || each > depth || count % each)
        die("no such habits");
    struct ibv_context *context = open_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, depth + 1, NULL, NULL, 0);
    uint8_t *memory = calloc(2, length);
    fill(memory, length, 1);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, 2 * (size_t)length, ALL_MR_ACCESS);
    union ibv_gid gid;
    if (!pd || !cq || !mr || ibv_query_gid(context, 1, gid_index, &gid))
        die("set up");
    struct ibv_qp *from = make(pd, cq, depth, length, is_inline), *to = make(pd, cq, 1, length, 0);
    struct endpoint ends[] = {{.gid = gid, .qpn = to->qp_num, .psn = 2}, {.gid = gid, .qpn = from->qp_num, .psn = 1}};
    connect_qp(from, gid_index, 1, &ends[0], 7);
    connect_qp(to, gid_index, 2, &ends[1], 7);

    struct ibv_sge sges[MOST];
    struct ibv_send_wr wrs[MOST];
    double began = now();
    int posted = 0, done = 0, since = 0;
    while (done < count) {
        while (posted < count && posted - done + list <= depth) {
            struct ibv_mr *own = registers ? ibv_reg_mr(pd, memory, length, 0) : mr;
            if (!own)
                die("ibv_reg_mr");
            int now_posted = list < count - posted ? list : count - posted;
            for (int i = 0; i < now_posted; i++) {
                sges[i] = (struct ibv_sge){.addr = (uintptr_t)memory, .length = length, .lkey = own->lkey};
                int signaled = ++since == each;
                if (signaled)
                    since = 0;
                wrs[i] = (struct ibv_send_wr){
                    .next = i + 1 < now_posted ? &wrs[i + 1] : NULL,
                    .sg_list = &sges[i],
                    .num_sge = 1,
                    .opcode = IBV_WR_RDMA_WRITE,
                    .send_flags = (signaled ? IBV_SEND_SIGNALED : 0) | (is_inline ? IBV_SEND_INLINE : 0),
                    .wr.rdma = {.remote_addr = (uintptr_t)(memory + length), .rkey = mr->rkey},
                };
            }
            struct ibv_send_wr *bad;
            if ((errno = ibv_post_send(from, wrs, &bad)))
                die("ibv_post_send");
            posted += now_posted;
            if (registers) {
                /* It is done before its memory goes. */
                struct ibv_wc wc = next_completion(cq);
                if (wc.status)
                    die("status %d", wc.status);
                done += each;
                if (ibv_dereg_mr(own))
                    die("ibv_dereg_mr");
            }
        }
        if (!registers && done < count) {
            struct ibv_wc wc = next_completion(cq);
            if (wc.status)
                die("status %d", wc.status);
            done += each;
        }
    }
    double took = now() - began;
    if (memcmp(memory, memory + length, length))
        die("other bytes");
    printf("%.0f WRITEs per second\n", count / took);
    return 0;
}
