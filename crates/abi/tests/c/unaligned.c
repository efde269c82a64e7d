/* Scatter and gather lists at addresses that no compiler would choose: libiscsi has its own in packed structures, and a
 * processor reads them. */
#include "pair.h"

static char room[2 * sizeof(struct ibv_sge) + 1];

/* A list of `count` pieces at an odd address: `each` bytes in a row, beginning at `offset` of the buffer. */
static struct ibv_sge *list(struct side *side, int count, uint32_t offset, uint32_t each)
{
	for (int i = 0; i < count; i++) {
		struct ibv_sge sge = { (uintptr_t)side->buffer + offset + i * each, each, side->mr->lkey };
		memcpy(room + 1 + i * sizeof sge, &sge, sizeof sge);
	}
	return (struct ibv_sge *)(void *)(room + 1);
}

static void exchange(struct pair *pair, uint32_t bytes, int count, unsigned flags)
{
	memset(pair->far.buffer, 0, bytes);
	for (uint32_t i = 0; i < bytes; i++)
		pair->near.buffer[i] = i + bytes;
	struct ibv_recv_wr recv = { .wr_id = 1, .num_sge = 1, .sg_list = list(&pair->far, 1, 0, bytes) }, *bad_recv;
	CHECK(!ibv_post_recv(pair->far.qp, &recv, &bad_recv));
	struct ibv_send_wr send = { .wr_id = 2, .num_sge = count, .sg_list = list(&pair->near, count, 0, bytes / count),
		.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED | flags }, *bad_send;
	CHECK(!ibv_post_send(pair->near.qp, &send, &bad_send));
	CHECK(wait_wc(pair->near.cq).status == IBV_WC_SUCCESS);
	CHECK(wait_wc(pair->far.cq).status == IBV_WC_SUCCESS);
	CHECK(!memcmp(pair->near.buffer, pair->far.buffer, bytes));
}

int main(void)
{
	struct pair pair = make_pair();
	exchange(&pair, 16, 1, 0);
	exchange(&pair, 16, 1, IBV_SEND_INLINE);
	exchange(&pair, 2048, 2, 0);
	exchange(&pair, 32, 2, IBV_SEND_INLINE);
	/* Of several requests the list of each is read, too. */
	struct ibv_recv_wr second = { .wr_id = 4, .num_sge = 1, .sg_list = list(&pair.far, 1, 0, 16) };
	struct ibv_recv_wr first = { .wr_id = 3, .num_sge = 1, .sg_list = second.sg_list, .next = &second }, *bad;
	CHECK(!ibv_post_recv(pair.far.qp, &first, &bad));
	struct ibv_mr *registered = pair.far.mr;
	pair.far.mr = ibv_reg_mr(pair.pd, pair.far.buffer, BUFFER, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	CHECK(pair.far.mr);
	CHECK(!ibv_advise_mr(pair.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, list(&pair.far, 1, 0, 16), 1));
	CHECK(!ibv_dereg_mr(pair.far.mr));
	pair.far.mr = registered;
	destroy_pair(&pair);
	puts("unaligned: ok");
	return 0;
}
