/* Writes and reads back the memory of another process for as long as one likes, and verifies every byte.
 *
 * stream server PORT GID-INDEX         registers memory, then only waits on a TCP socket
 * stream client PORT GID-INDEX HOST    works until its standard input ends, then has the server check its memory, too
 * stream hold GID-INDEX                makes a queue pair, prints its number, and waits for its standard input to end
 *
 * Prints "qpn N", "round N" now and then, "verified N rounds" at the end; at a failed completion "status N TEXT", and ends
 * with status 3.
 */
#include "rc.h"
#include "tcp.h"

enum { LENGTH = 1 << 20, CHUNK = 1 << 16, ROUNDS_PER_LINE = 8 };

/* Posts one request per chunk and waits for all. */
static void transfer(struct ibv_qp *qp, struct ibv_cq *cq, enum ibv_wr_opcode opcode, struct ibv_mr *mr,
                     const struct endpoint *peer)
{
    for (int i = 0; i < LENGTH / CHUNK; i++) {
        struct ibv_sge sge = {.addr = (uintptr_t)mr->addr + i * CHUNK, .length = CHUNK, .lkey = mr->lkey};
        struct ibv_send_wr wr = {.opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1}, *bad;
        wr.wr.rdma.remote_addr = peer->address + i * CHUNK;
        wr.wr.rdma.rkey = peer->rkey;
        if ((errno = ibv_post_send(qp, &wr, &bad)))
            die("ibv_post_send");
    }
    for (int i = 0; i < LENGTH / CHUNK; i++) {
        struct ibv_wc wc = next_completion(cq);
        if (wc.status != IBV_WC_SUCCESS) {
            say("status %d %s", wc.status, ibv_wc_status_str(wc.status));
            _exit(3);
        }
    }
}

static int input_ended(void)
{
    struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&fd, 1, 0) == 1;
}

int main(int argc, char **argv)
{
    int server = argc == 4 && !strcmp(argv[1], "server");
    int client = argc == 5 && !strcmp(argv[1], "client");
    int hold = argc == 3 && !strcmp(argv[1], "hold");
    if (!server && !client && !hold)
        die("usage: stream server PORT GID-INDEX | stream client PORT GID-INDEX HOST | stream hold GID-INDEX");
    int gid_index = atoi(argv[hold ? 2 : 3]);

    struct ibv_context *context = open_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 256, NULL, NULL, 0);
    uint8_t *memory;
    if (!pd || !cq || posix_memalign((void **)&memory, 4096, LENGTH))
        die("set up");
    memset(memory, 0, LENGTH);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, LENGTH, ALL_MR_ACCESS);
    if (!mr)
        die("ibv_reg_mr");
    struct ibv_qp *qp = make_qp(pd, cq, ALL_QP_ACCESS);
    say("qpn %u", qp->qp_num);
    if (hold) {
        char byte;
        while (read(STDIN_FILENO, &byte, 1) > 0)
            ;
        return 0;
    }

    int fd = server ? listen_and_accept(atoi(argv[2])) : connect_to(argv[4], atoi(argv[2]));
    struct endpoint own = {.qpn = qp->qp_num, .psn = 0xfffff0, .address = (uintptr_t)memory, .rkey = mr->rkey}, peer;
    if (ibv_query_gid(context, 1, gid_index, &own.gid))
        die("ibv_query_gid");
    retry_cnt = 6;
    put(fd, &own, sizeof own);
    if (!get(fd, &peer, sizeof peer))
        die("the peer is gone");
    connect_qp(qp, gid_index, own.psn, &peer, 7);
    meet(fd);

    uint32_t rounds = 0;
    if (server) {
        /* Asleep while its memory is written and read. */
        if (!get(fd, &rounds, sizeof rounds))
            die("the client is gone");
        if (differs(memory, LENGTH, rounds) >= 0)
            die("byte %ld is wrong", differs(memory, LENGTH, rounds));
        meet(fd);
    } else {
        do {
            rounds++;
            fill(memory, LENGTH, rounds);
            transfer(qp, cq, IBV_WR_RDMA_WRITE, mr, &peer);
            memset(memory, 0, LENGTH);
            transfer(qp, cq, IBV_WR_RDMA_READ, mr, &peer);
            if (differs(memory, LENGTH, rounds) >= 0)
                die("round %u: byte %ld is wrong", rounds, differs(memory, LENGTH, rounds));
            if (rounds % ROUNDS_PER_LINE == 0)
                say("round %u", rounds);
        } while (!input_ended());
        put(fd, &rounds, sizeof rounds);
        meet(fd);
    }
    say("verified %u rounds", rounds);
    if (ibv_destroy_qp(qp) || ibv_dereg_mr(mr) || ibv_destroy_cq(cq) || ibv_dealloc_pd(pd) || ibv_close_device(context))
        die("something is still in use");
    return 0;
}
