/* A thousand queue pairs in one process, connected in pairs, on one completion queue: each sends and receives. */
#include "check.h"

enum { QPS = 1000, LENGTH = 512 };

static char outbox[QPS][LENGTH], inbox[QPS][LENGTH];
static struct ibv_qp *qps[QPS];

static void fill(char *message, int qp)
{
	for (int i = 0; i < LENGTH; i++)
		message[i] = (char)(qp * 31 + i);
}

int main(void)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 2 * QPS, NULL, NULL, 0);
	struct ibv_mr *out = ibv_reg_mr(pd, outbox, sizeof(outbox), 0);
	struct ibv_mr *in = ibv_reg_mr(pd, inbox, sizeof(inbox), IBV_ACCESS_LOCAL_WRITE);
	CHECK(cq && out && in);
	static unsigned char used[1 << 24];
	for (int i = 0; i < QPS; i++) {
		struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
			.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
		qps[i] = ibv_create_qp(pd, &init);
		CHECK(qps[i] && qps[i]->qp_num > 1 && qps[i]->qp_num < 1 << 24 && !used[qps[i]->qp_num]);
		used[qps[i]->qp_num] = 1;
		to_init(qps[i]);
		struct ibv_sge sge = { (uintptr_t)inbox[i], LENGTH, in->lkey };
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;
		CHECK(!ibv_post_recv(qps[i], &wr, &bad));
	}
	for (int i = 0; i < QPS; i++)
		to_rts(qps[i], qps[i ^ 1]->qp_num);
	for (int i = 0; i < QPS; i++) {
		fill(outbox[i], i);
		struct ibv_sge sge = { (uintptr_t)outbox[i], LENGTH, out->lkey };
		struct ibv_send_wr wr = { .wr_id = i, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge,
			.num_sge = 1 }, *bad;
		CHECK(!ibv_post_send(qps[i], &wr, &bad));
	}
	for (int i = 0; i < 2 * QPS; i++) {
		struct ibv_wc wc = wait_wc(cq);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id < QPS && wc.qp_num == qps[wc.wr_id]->qp_num);
	}
	for (int i = 0; i < QPS; i++) {
		char expected[LENGTH];
		fill(expected, i ^ 1);
		CHECK(!memcmp(inbox[i], expected, LENGTH));
		CHECK(!ibv_destroy_qp(qps[i]));
	}
	CHECK(!ibv_destroy_cq(cq) && !ibv_dereg_mr(in) && !ibv_dereg_mr(out) && !ibv_dealloc_pd(pd));
	CHECK(!ibv_close_device(context));
	puts("thousand: ok");
	return 0;
}
