/* A program that is refused something, and fails.
 *
 * refused probe     asks for what the device lacks, and for less and less room until it has a completion queue; then fails of itself
 * refused fatal     the same, and then asks for what the device lacks and cannot do without it
 */
#include "rc.h"

static struct ibv_qp *raw_packets(struct ibv_pd *pd, struct ibv_cq *cq)
{
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .cap = {.max_send_wr = 1, .max_recv_wr = 1}, .qp_type = IBV_QPT_RAW_PACKET};
    return ibv_create_qp(pd, &init);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        die("usage: refused probe|fatal");
    struct ibv_context *context = open_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *first = ibv_create_cq(context, 16, NULL, NULL, 0), *cq = NULL;
    if (!pd || !first)
        die("objects");
    if (raw_packets(pd, first))
        die("raw packets");
    for (int entries = 1 << 30; !cq; entries /= 2)
        cq = ibv_create_cq(context, entries, NULL, NULL, 0);
    if (!strcmp(argv[1], "fatal") && !raw_packets(pd, first))
        return 4;
    return 3;
}
