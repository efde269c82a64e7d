/* Traffic class and hop limit of an address vector.
 *
 * hop GID-INDEX HOP-LIMIT TRAFFIC-CLASS
 *
 * A datagram goes from one queue pair of this process to the other, and an RDMA WRITE over RC. Prints what the receive's GRH says:
 *
 *   grh TTL TRAFFIC-CLASS
 */
#include "rc.h"

#include <netinet/ip.h>

enum { SIZE = 4096, QKEY = 0x1111 };

static struct ibv_ah_attr address;

static void to_rts(struct ibv_qp *qp, uint32_t peer)
{
    int ud = qp->qp_type == IBV_QPT_UD;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
    if ((errno = ibv_modify_qp(qp, &attr, mask)))
        die("to INIT");
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .max_dest_rd_atomic = 1,
                                .min_rnr_timer = 12, .ah_attr = address};
    mask = IBV_QP_STATE;
    if (!ud)
        mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    if ((errno = ibv_modify_qp(qp, &attr, mask)))
        die("to RTR");
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
    mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (!ud)
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    if ((errno = ibv_modify_qp(qp, &attr, mask)))
        die("to RTS");
}

static void done(struct ibv_cq *cq, int count)
{
    struct ibv_wc wc;
    for (double end = now() + 30; count;) {
        int n = ibv_poll_cq(cq, 1, &wc);
        if (n && wc.status)
            die("status %d", wc.status);
        count -= n;
        if (now() > end)
            die("no completion");
    }
}

int main(int argc, char **argv)
{
    if (argc != 4)
        die("usage: hop GID-INDEX HOP-LIMIT TRAFFIC-CLASS");
    int gid_index = atoi(argv[1]);
    struct ibv_context *context = open_device();
    union ibv_gid gid;
    if (ibv_query_gid(context, 1, gid_index, &gid))
        die("ibv_query_gid");
    address = (struct ibv_ah_attr){
        .is_global = 1,
        .port_num = 1,
        .grh = {.dgid = gid, .sgid_index = gid_index, .hop_limit = atoi(argv[2]), .traffic_class = atoi(argv[3])}};
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    uint8_t *memory = calloc(1, SIZE);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (!cq || !mr)
        die("set up");
    struct ibv_qp *qp[4];
    for (int i = 0; i < 4; i++) {
        struct ibv_qp_init_attr init = {
            .send_cq = cq,
            .recv_cq = cq,
            .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
            .qp_type = i < 2 ? IBV_QPT_UD : IBV_QPT_RC,
        };
        if (!(qp[i] = ibv_create_qp(pd, &init)))
            die("ibv_create_qp");
    }
    for (int i = 0; i < 4; i++)
        to_rts(qp[i], qp[i ^ 1]->qp_num);

    struct ibv_sge into = {.addr = (uintptr_t)memory, .length = 1024, .lkey = mr->lkey};
    struct ibv_recv_wr receive = {.sg_list = &into, .num_sge = 1}, *bad_receive;
    if ((errno = ibv_post_recv(qp[1], &receive, &bad_receive)))
        die("ibv_post_recv");
    struct ibv_ah *ah = ibv_create_ah(pd, &address);
    if (!ah)
        die("ibv_create_ah");
    struct ibv_sge from = {.addr = (uintptr_t)memory + 2048, .length = 8, .lkey = mr->lkey};
    struct ibv_send_wr send = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
                               .wr.ud = {.ah = ah, .remote_qpn = qp[1]->qp_num, .remote_qkey = QKEY}}, *bad;
    if ((errno = ibv_post_send(qp[0], &send, &bad)))
        die("ibv_post_send");
    done(cq, 2);
    /* RoCEv2 over IPv4: the header lies in the last 20 of the 40 bytes. */
    struct ip *ip = (struct ip *)(memory + 20);
    if (memory[0] >> 4 == 6)
        say("grh %d %d", memory[7], (memory[0] & 15) << 4 | memory[1] >> 4);
    else
        say("grh %d %d", ip->ip_ttl, ip->ip_tos);
    send = (struct ibv_send_wr){.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
                                .wr.rdma = {.remote_addr = (uintptr_t)memory + 3072, .rkey = mr->rkey}};
    if ((errno = ibv_post_send(qp[2], &send, &bad)))
        die("ibv_post_send");
    done(cq, 1);
    return 0;
}
