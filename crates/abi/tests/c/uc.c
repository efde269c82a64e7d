/* UC: messages arrive whole or not at all and nobody is told, in order and once, on a network that loses (RNIC_FAULTS);
 * what the peer does not allow is dropped as silently. */
#include "check.h"

enum { MESSAGES = 400, SIZE = 3000, WINDOW = 8 };

static struct side make_uc(struct ibv_pd *pd)
{
	struct side side = { .cq = ibv_create_cq(pd->context, 4 * DEPTH, NULL, NULL, 0) };
	struct ibv_qp_init_attr init = { .send_cq = side.cq, .recv_cq = side.cq, .qp_type = IBV_QPT_UC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 2, .max_recv_sge = 2 } };
	side.qp = ibv_create_qp(pd, &init);
	CHECK(side.cq && side.qp && side.qp->qp_type == IBV_QPT_UC);
	side.buffer = calloc(1, BUFFER);
	side.mr = ibv_reg_mr(pd, side.buffer, BUFFER, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(side.mr);
	return side;
}

static void connect_uc(struct side *side, uint32_t peer, int access)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access };
	CHECK(!ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .rq_psn = 5 };
	attr.ah_attr = (struct ibv_ah_attr){ .is_global = 1, .port_num = 1 };
	attr.ah_attr.grh.sgid_index = loopback_gid(side->qp->context, &attr.ah_attr.grh.dgid);
	/* Neither timeouts nor retries, nor READs: nothing is acknowledged. */
	CHECK(ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MIN_RNR_TIMER) == EINVAL);
	CHECK(!ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .sq_psn = 5 };
	CHECK(!ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

static void post(struct side *side, struct ibv_send_wr wr, uint32_t offset, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)side->buffer + offset, length, side->mr->lkey };
	struct ibv_send_wr *bad;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.send_flags = IBV_SEND_SIGNALED;
	CHECK(!ibv_post_send(side->qp, &wr, &bad));
}

/* What arrived so far: every message is one number over and over, greater than all before it. */
static int arrived, last = -1;

static void take_messages(struct side *to)
{
	struct ibv_wc wc;
	while (ibv_poll_cq(to->cq, 1, &wc) > 0) {
		CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.byte_len == SIZE);
		CHECK((int)wc.imm_data > last);
		last = wc.imm_data;
		for (int k = 0; k < SIZE / 4; k++)
			CHECK(!memcmp(to->buffer + wc.wr_id * 4096 + 4 * k, &last, 4));
		CHECK(!post_recv(to, wc.wr_id, wc.wr_id * 4096, SIZE));
		arrived++;
	}
}

static void write_to(struct side *from, uintptr_t address, uint32_t key)
{
	struct ibv_send_wr wr = { .wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .wr.rdma = { address, key } };
	post(from, wr, 0, SIZE);
	/* Lost, refused or not, for the sender it is done. */
	expect_success(from->cq, 1, IBV_WC_RDMA_WRITE);
}

/* Writes until one write arrives: then all that was sent before has come, or never will. */
static void settle(struct side *from, struct side *to)
{
	static char mark;
	char *at = to->buffer + BUFFER / 2;
	memset(from->buffer, ++mark, SIZE);
	do {
		write_to(from, (uintptr_t)at, to->mr->rkey);
		take_messages(to);
	} while (((volatile char *)at)[SIZE - 1] != mark);
	take_messages(to);
}

static void lossy_stream(struct side *from, struct side *to)
{
	for (int i = 0; i < WINDOW; i++)
		CHECK(!post_recv(to, i, i * 4096, SIZE));
	for (int i = 0; i < MESSAGES; i++) {
		for (int k = 0; k < SIZE / 4; k++)
			memcpy(from->buffer + 4 * k, &i, 4);
		post(from, (struct ibv_send_wr){ .wr_id = i, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = i }, 0, SIZE);
		expect_success(from->cq, i, IBV_WC_SEND);
		/* No more than there are receives for: nobody tells the sender to wait. */
		if (i % WINDOW == WINDOW - 1)
			settle(from, to);
	}
}

/* Nothing of it shows, and the connection lives. */
static void refused_writes(struct ibv_pd *pd, struct side *from, struct side *to)
{
	struct ibv_mr *closed = ibv_reg_mr(pd, to->buffer, BUFFER, IBV_ACCESS_LOCAL_WRITE);
	char *at = to->buffer + BUFFER / 2 + SIZE, *end = to->buffer + BUFFER - 100;
	memset(from->buffer, 7, SIZE);
	for (int i = 0; i < 10; i++) {
		write_to(from, (uintptr_t)at, closed->rkey);
		write_to(from, (uintptr_t)at, to->mr->rkey + 1);
		write_to(from, (uintptr_t)end, to->mr->rkey);
	}
	settle(from, to);
	for (int i = 0; i < SIZE; i++)
		CHECK(at[i] == 0);
	for (int i = 0; i < 100; i++)
		CHECK(end[i] == 0);
	CHECK(!ibv_dereg_mr(closed));
}

/* A send that cannot be done flushes the send queue alone. */
static void send_error(struct side *from)
{
	struct ibv_sge sge = { (uintptr_t)from->buffer, 8, from->mr->lkey + 1 };
	struct ibv_send_wr second = { .wr_id = 2, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr first = { .wr_id = 1, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1, .next = &second }, *bad;
	CHECK(!ibv_post_send(from->qp, &first, &bad));
	struct ibv_wc wc = wait_wc(from->cq);
	CHECK(wc.status == IBV_WC_LOC_PROT_ERR && wc.wr_id == 1);
	wc = wait_wc(from->cq);
	CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == 2);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(!ibv_query_qp(from->qp, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_SQE);
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(from->qp, &attr, IBV_QP_STATE));
	/* What UC does not have is refused when it is posted. */
	struct ibv_send_wr read = { .opcode = IBV_WR_RDMA_READ };
	CHECK(ibv_post_send(from->qp, &read, &bad) == EINVAL && bad == &read);
}

static void destroy(struct side *side)
{
	CHECK(!ibv_destroy_qp(side->qp) && !ibv_destroy_cq(side->cq) && !ibv_dereg_mr(side->mr));
	free(side->buffer);
}

int main(void)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct side a = make_uc(pd), b = make_uc(pd);
	connect_uc(&a, b.qp->qp_num, 0);
	connect_uc(&b, a.qp->qp_num, IBV_ACCESS_REMOTE_WRITE);
	lossy_stream(&a, &b);
	refused_writes(pd, &a, &b);
	send_error(&a);
	destroy(&a);
	destroy(&b);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	printf("%d of %d messages arrived\n", arrived, MESSAGES);
	puts("uc: ok");
	return 0;
}
