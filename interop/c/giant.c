/* Messages of one GiB: a WRITE, a READ back, a SEND. Every byte is checked. */
/* Of each completion: the machine may be emulated. */
#define DEADLINE_SECONDS 600
#include "peer.h"

enum { GIB = 1 << 30 };

int main(int argc, char **argv)
{
    struct end end = open_end(argc, argv, GIB, ALL_MR_ACCESS);
    join(&end, ALL_QP_ACCESS, end.mr->rkey, 7);
    if (end.client) {
        fill(end.memory, GIB, 1);
        EXPECT(transfer(&end, IBV_WR_RDMA_WRITE, end.peer.address, end.peer.rkey, GIB) == IBV_WC_SUCCESS);
        say("written");
        memset(end.memory, 0, GIB);
        EXPECT(transfer(&end, IBV_WR_RDMA_READ, end.peer.address, end.peer.rkey, GIB) == IBV_WC_SUCCESS);
        EXPECT(differs(end.memory, GIB, 1) < 0);
        say("read");
        meet(end.fd);
        EXPECT(transfer(&end, IBV_WR_SEND, 0, 0, GIB) == IBV_WC_SUCCESS);
    } else {
        char byte;
        EXPECT(get(end.fd, &byte, 1));
        EXPECT(differs(end.memory, GIB, 1) < 0);
        memset(end.memory, 0, GIB);
        receive(&end, 1, 0, GIB);
        put(end.fd, "", 1);
        struct ibv_wc wc = next_completion(end.cq);
        EXPECT(wc.status == IBV_WC_SUCCESS && wc.byte_len == GIB);
        EXPECT(differs(end.memory, GIB, 1) < 0);
    }
    say("sent");
    meet(end.fd);
    return 0;
}
