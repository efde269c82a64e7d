/* Receives of UD that are used up: the next messages wait for an application that posts anew as it polls, with a receive
 * queue and with a shared one; one that does not is waited for no longer than the others can bear. */
#include "datagram.h"

enum { POSTED = 4, SENT = 12, ATTEMPTS = 50 };

static struct ibv_pd *pd;
static struct ibv_srq *srq;

/* In RTS, receiving from `srq`. */
static struct datagrams make_sharing(void)
{
	struct datagrams side = { .cq = ibv_create_cq(pd->context, 2 * DEPTH, NULL, NULL, 0) };
	struct ibv_qp_init_attr init = { .send_cq = side.cq, .recv_cq = side.cq, .srq = srq, .qp_type = IBV_QPT_UD,
		.cap = { .max_send_wr = 1, .max_send_sge = 1 } };
	side.qp = ibv_create_qp(pd, &init);
	CHECK(side.cq && side.qp);
	side.buffer = calloc(1, BUFFER);
	side.mr = ibv_reg_mr(pd, side.buffer, BUFFER, IBV_ACCESS_LOCAL_WRITE);
	CHECK(side.mr);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
	CHECK(!ibv_modify_qp(side.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(side.qp, &attr, IBV_QP_STATE));
	return side;
}

static void post(struct datagrams *side, uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)side->buffer + wr_id * 4096, GRH + 64, side->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(!(side->qp->srq ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(side->qp, &wr, &bad)));
}

static void send_one(struct datagrams *from, struct ibv_ah *ah, struct datagrams *to, char what)
{
	from->buffer[0] = what;
	CHECK(!send_datagram(from, ah, to->qp->qp_num, QKEY, 1));
	expect_success(from->cq, 1001, IBV_WC_SEND);
}

/* Takes one datagram; `again`: its receive is posted anew. */
static char take(struct datagrams *to, int again)
{
	struct ibv_wc wc = wait_wc(to->cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.byte_len == GRH + 1);
	char what = to->buffer[wc.wr_id * 4096 + GRH];
	if (again)
		post(to, wc.wr_id);
	return what;
}

/* Sends more than there are receives for, then what shows that all of it was looked at; gives how many arrived. */
static int burst(struct datagrams *from, struct ibv_ah *ah, struct datagrams *to, struct datagrams *other)
{
	struct ibv_wc none;
	int arrived = 0, what;
	for (int i = 0; i < SENT; i++)
		send_one(from, ah, to, 'a' + i);
	post(other, 0);
	send_one(from, ah, other, '.');
	/* Busy with something else for a moment, in which packets are taken in. */
	for (int i = 0; i < 10 * SENT; i++)
		CHECK(ibv_poll_cq(from->cq, 1, &none) == 0);
	for (int done = 0; !done;) {
		struct ibv_wc wc;
		if (ibv_poll_cq(other->cq, 1, &wc) > 0) {
			CHECK(wc.status == IBV_WC_SUCCESS);
			done = 1;
		}
		/* Behind the last one there is no more. */
		while (ibv_poll_cq(to->cq, 1, &wc) > 0) {
			CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == GRH + 1);
			what = to->buffer[wc.wr_id * 4096 + GRH];
			CHECK(what >= 'a' + arrived && what < 'a' + SENT);
			arrived++;
			post(to, wc.wr_id);
		}
	}
	return arrived;
}

/* An application that is stopped for long between two polls loses messages, as with hardware: it may try again. */
static void reposted(struct datagrams *from, struct ibv_ah *ah, struct datagrams *to, struct datagrams *other)
{
	for (int i = 0; i < POSTED; i++)
		post(to, i);
	int attempts = 0;
	while (burst(from, ah, to, other) < SENT)
		CHECK(++attempts < ATTEMPTS);
	while (ibv_poll_cq(to->cq, 1, &(struct ibv_wc){ 0 }) > 0)
		CHECK(!"more than was sent");
}

/* Who never posted is not waited for; who does not post again, not for ever. */
static void not_reposted(struct datagrams *from, struct ibv_ah *ah, struct datagrams *to, struct datagrams *other)
{
	for (int posted = 0; posted < 2; posted++) {
		if (posted)
			post(to, 0);
		post(other, 0);
		for (int i = 0; i <= posted; i++)
			send_one(from, ah, to, 'l' + i);
		send_one(from, ah, other, '.');
		CHECK(take(other, 0) == '.');
		if (posted)
			CHECK(take(to, 0) == 'l');
		/* What found no receive is lost. */
		post(to, 1);
		send_one(from, ah, to, 'x');
		CHECK(take(to, 0) == 'x');
	}
}

int main(void)
{
	struct ibv_context *context = open_device();
	pd = ibv_alloc_pd(context);
	struct ibv_srq_init_attr init = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };
	srq = ibv_create_srq(pd, &init);
	CHECK(srq);
	struct datagrams from = make_datagrams(pd, QKEY), own = make_datagrams(pd, QKEY), other = make_datagrams(pd, QKEY);
	struct datagrams sharing = make_sharing();
	struct ibv_ah *ah = make_ah(pd, NULL);
	not_reposted(&from, ah, &own, &other);
	reposted(&from, ah, &own, &other);
	not_reposted(&from, ah, &sharing, &other);
	reposted(&from, ah, &sharing, &other);
	CHECK(!ibv_destroy_ah(ah));
	destroy_datagrams(&from);
	destroy_datagrams(&own);
	destroy_datagrams(&other);
	destroy_datagrams(&sharing);
	CHECK(!ibv_destroy_srq(srq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("receives: ok");
	return 0;
}
