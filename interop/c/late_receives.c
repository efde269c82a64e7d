/* Receives that are posted late: the requester is told "receiver not ready" and has to come again, as often as it takes. */
#include "peer.h"

enum { MESSAGES = 20, LENGTH = 5000 };

int main(int argc, char **argv)
{
    struct end end = open_end(argc, argv, LENGTH, ALL_MR_ACCESS);
    /* An rnr_retry of 7 is without end. */
    join(&end, ALL_QP_ACCESS, end.mr->rkey, 7);
    for (int i = 0; i < MESSAGES; i++) {
        /* Odd ones are WRITEs, whose immediate value takes the receive after their last packet. */
        if (end.client) {
            fill(end.memory, LENGTH, i);
            enum ibv_wr_opcode opcode = i % 2 ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND;
            EXPECT(transfer(&end, opcode, end.peer.address, end.peer.rkey, LENGTH) == IBV_WC_SUCCESS);
        } else {
            /* Late, most probably; if not, it has to work as well. */
            usleep(3000);
            receive(&end, i, 0, LENGTH);
            struct ibv_wc wc = next_completion(end.cq);
            EXPECT(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uint64_t)i && wc.byte_len == LENGTH);
            EXPECT(differs(end.memory, LENGTH, i) < 0);
        }
        meet(end.fd);
    }
    say("verified");
    return 0;
}
