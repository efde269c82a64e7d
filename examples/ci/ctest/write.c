/* What a project has: a test that needs an RDMA device. A queue pair is connected with itself.
 * With SAMPLE_BREAK the project has a defect: it writes one byte past the end of its memory. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEED(what) \
    do { \
        if (!(what)) { \
            perror(#what); \
            return 1; \
        } \
    } while (0)

static int connect_with_itself(struct ibv_qp *qp, int access)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access};
    struct ibv_gid_entry gids[64];
    ssize_t count = ibv_query_gid_table(qp->context, gids, 64, 0), use = 0;
    int status;

    status = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
        IBV_QP_ACCESS_FLAGS);
    if (status || count <= 0)
        return -1;
    while (use < count - 1 && gids[use].gid.raw[0] == 0xfe)
        use++;
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
        .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1,
            .grh = {.dgid = gids[use].gid, .sgid_index = gids[use].gid_index, .hop_limit = 64}},
    };
    status = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
        IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (status)
        return -1;
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1,
    };
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
        IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

int main(void)
{
    static char memory[128];
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_device **devices = ibv_get_device_list(NULL);
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    struct ibv_qp *qp;
    struct ibv_wc wc;
    struct ibv_send_wr *bad;
    int count, past = getenv("SAMPLE_BREAK") != NULL;

    NEED(devices && devices[0]);
    NEED((context = ibv_open_device(devices[0])));
    NEED((pd = ibv_alloc_pd(context)));
    NEED((cq = ibv_create_cq(context, 16, NULL, NULL, 0)));
    NEED((mr = ibv_reg_mr(pd, memory, sizeof memory, access)));
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
    };
    NEED((qp = ibv_create_qp(pd, &init)));
    NEED(connect_with_itself(qp, access) == 0);

    memset(memory, 7, 64);
    struct ibv_sge entry = {.addr = (uintptr_t)memory, .length = 64, .lkey = mr->lkey};
    struct ibv_send_wr request = {
        .wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
        .sg_list = &entry, .num_sge = 1,
        .wr.rdma = {.remote_addr = (uintptr_t)memory + 64 + past, .rkey = mr->rkey},
    };
    NEED(ibv_post_send(qp, &request, &bad) == 0);
    while ((count = ibv_poll_cq(cq, 1, &wc)) == 0)
        ;
    if (count < 0 || wc.status != IBV_WC_SUCCESS) {
        fprintf(stderr, "RDMA WRITE: %s\n", ibv_wc_status_str(wc.status));
        return 1;
    }
    if (memcmp(memory, memory + 64, 64) != 0) {
        fprintf(stderr, "the bytes have not arrived\n");
        return 1;
    }
    puts("64 bytes have arrived");
    return 0;
}
