/* Batches of ibv_wr_*: posted as a whole, or not at all. */
#include <pthread.h>
#include "check.h"

enum { ROOM = 16, INLINE = 64, THREADS = 4, ROUNDS = 50, RUN = 4 };

static struct ibv_qp_ex *ex;
static struct side peer;
static struct ibv_mr *mr;
static char *memory;

static struct ibv_qp *create(struct ibv_pd *pd, struct ibv_cq *cq, enum ibv_qp_type type, uint64_t ops)
{
	struct ibv_qp_init_attr_ex init = { .send_cq = cq, .recv_cq = cq, .qp_type = type,
		.cap = { .max_send_wr = ROOM, .max_recv_wr = 1, .max_send_sge = 2, .max_recv_sge = 1,
			.max_inline_data = INLINE },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .pd = pd, .send_ops_flags = ops };
	struct ibv_qp *qp = ibv_create_qp_ex(pd->context, &init);
	CHECK(!qp || (init.cap.max_send_wr == ROOM && init.cap.max_inline_data == INLINE));
	return qp;
}

/* Begins a batch with a write of `value` to the peer's byte at `offset`. */
static void begin_write(uint64_t wr_id, uint32_t offset, char value)
{
	ex->wr_id = wr_id;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(ex, peer.mr->rkey, (uintptr_t)peer.buffer + offset);
	ibv_wr_set_inline_data(ex, &value, 1);
}

/* What follows a good write in a batch, and the errno that the whole batch then fails with. */
static void too_much_inline(void)
{
	ibv_wr_send(ex);
	ibv_wr_set_inline_data(ex, memory, INLINE + 1);
}

static void too_much_in_the_list(void)
{
	struct ibv_data_buf parts[3] = { { memory, INLINE }, { NULL, 0 }, { memory, 1 } };
	ibv_wr_send(ex);
	ibv_wr_set_inline_data_list(ex, 3, parts);
}

static void lengths_that_wrap(void)
{
	struct ibv_data_buf parts[2] = { { memory, SIZE_MAX }, { memory, 2 } };
	ibv_wr_send(ex);
	ibv_wr_set_inline_data_list(ex, 2, parts);
}

static void too_many_sges(void)
{
	struct ibv_sge list[3] = { { (uintptr_t)memory, 1, mr->lkey }, { (uintptr_t)memory, 1, mr->lkey },
		{ (uintptr_t)memory, 1, mr->lkey } };
	ibv_wr_send(ex);
	ibv_wr_set_sge_list(ex, 3, list);
}

static void inline_read(void)
{
	ibv_wr_rdma_read(ex, peer.mr->rkey, (uintptr_t)peer.buffer);
	ibv_wr_set_inline_data(ex, memory, 1);
}

static void not_asked_for(void)
{
	ibv_wr_send_imm(ex, 1);
	ibv_wr_set_inline_data(ex, memory, 1);
}

static void more_than_fits(void)
{
	for (int i = 0; i < ROOM; i++)
		begin_write(0, 0, 1);
}

static const struct {
	void (*spoil)(void);
	int error;
} spoilers[] = {
	{ too_much_inline, ENOMEM }, { too_much_in_the_list, ENOMEM }, { lengths_that_wrap, ENOMEM },
	{ too_many_sges, ENOMEM }, { inline_read, EINVAL }, { not_asked_for, EOPNOTSUPP }, { more_than_fits, ENOMEM },
};

static void *post_runs(void *argument)
{
	uint64_t thread = (uintptr_t)argument;
	for (uint64_t round = 0; round < ROUNDS;) {
		ibv_wr_start(ex);
		for (uint64_t i = 0; i < RUN; i++)
			begin_write(thread << 32 | round << 8 | i, 0, 1);
		int status = ibv_wr_complete(ex);
		CHECK(!status || status == ENOMEM);
		round += !status;
	}
	return NULL;
}

int main(void)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd);
	peer = make_side(pd, NULL);
	struct ibv_cq *cq = ibv_create_cq(context, 2 * ROOM, NULL, NULL, 0);
	CHECK(cq);

	/* What a service lacks is refused at creation; so is an unknown flag. */
	CHECK(!create(pd, cq, IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_WRITE) && errno == EOPNOTSUPP);
	CHECK(!create(pd, cq, IBV_QPT_UC, IBV_QP_EX_WITH_RDMA_READ) && errno == EOPNOTSUPP);
	CHECK(!create(pd, cq, IBV_QPT_RC, IBV_QP_EX_WITH_TSO) && errno == EOPNOTSUPP);
	CHECK(!create(pd, cq, IBV_QPT_RC, 1ull << 60) && errno == EOPNOTSUPP);
	CHECK(!ibv_qp_to_qp_ex(peer.qp));

	struct ibv_qp *qp = create(pd, cq, IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND |
		IBV_QP_EX_WITH_RDMA_READ);
	CHECK(qp);
	ex = ibv_qp_to_qp_ex(qp);
	CHECK(ex);
	memory = aligned_alloc(4096, 4096);
	CHECK(memory);
	mr = ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);

	ibv_wr_start(ex);
	begin_write(1, 0, 1);
	CHECK(ibv_wr_complete(ex) == EINVAL); /* RESET */
	to_init(qp);
	to_rts(qp, peer.qp->qp_num);
	to_rts(peer.qp, qp->qp_num);

	/* A bad work request between two good ones: neither is posted. The first error counts. */
	for (size_t i = 0; i < sizeof(spoilers) / sizeof(*spoilers); i++) {
		ibv_wr_start(ex);
		begin_write(1, 100, 1);
		spoilers[i].spoil();
		begin_write(2, 101, 1);
		int status = ibv_wr_complete(ex);
		if (status != spoilers[i].error)
			fprintf(stderr, "case %zu: %d\n", i, status);
		CHECK(status == spoilers[i].error);
	}
	ibv_wr_start(ex);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 1); /* of which work request? */
	CHECK(ibv_wr_complete(ex) == EINVAL);
	ibv_wr_start(ex);
	begin_write(3, 102, 1);
	ibv_wr_abort(ex);
	ibv_wr_start(ex);
	CHECK(!ibv_wr_complete(ex)); /* nothing is not an error */

	/* So the whole queue is free, and nothing of the above has arrived before what is posted now. */
	ibv_wr_start(ex);
	for (int i = 0; i < ROOM; i++)
		begin_write(10 + i, 200 + i, 'a' + i);
	CHECK(!ibv_wr_complete(ex));
	for (int i = 0; i < ROOM; i++) {
		expect_success(cq, 10 + i, IBV_WC_RDMA_WRITE);
		CHECK(peer.buffer[200 + i] == 'a' + i);
	}
	CHECK(!peer.buffer[0] && !peer.buffer[100] && !peer.buffer[101] && !peer.buffer[102]);

	/* Threads take turns by whole batches. */
	pthread_t threads[THREADS];
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, post_runs, (void *)i));
	for (int i = 0; i < THREADS * ROUNDS; i++) {
		struct ibv_wc first = wait_wc(cq);
		CHECK(first.status == IBV_WC_SUCCESS && !(first.wr_id & 0xff));
		for (uint64_t next = 1; next < RUN; next++)
			expect_success(cq, first.wr_id + next, IBV_WC_RDMA_WRITE);
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_join(threads[i], NULL));

	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(mr));
	destroy_side(&peer);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("batch: ok");
	return 0;
}
