/* UD on a network that loses, repeats, reorders and damages packets (RNIC_FAULTS): each message that arrives is one that
 * was sent, whole; nothing fails. */
#include "datagram.h"

enum { MESSAGES = 400, WINDOW = 8 };

static uint32_t length_of(uint32_t message)
{
	return 4 * (1 + message * 37 % 256);
}

/* Every message is its number over and over, and its length follows from it. */
static void fill(char *at, uint32_t message)
{
	for (uint32_t k = 0; k < length_of(message); k += 4)
		memcpy(at + k, &message, 4);
}

static int times[MESSAGES];

static void take_messages(struct datagrams *to)
{
	static char expected[1024];
	struct ibv_wc wc;
	while (ibv_poll_cq(to->cq, 1, &wc) > 0) {
		CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV);
		char *at = to->buffer + wc.wr_id * 4096 + GRH;
		uint32_t message;
		memcpy(&message, at, 4);
		CHECK(message < MESSAGES && wc.byte_len == GRH + length_of(message));
		fill(expected, message);
		CHECK(!memcmp(at, expected, length_of(message)));
		times[message]++;
		expect_datagram(to, wc.wr_id, wc.wr_id * 4096, 1024);
	}
}

/* Sends to another queue pair until something arrives there: what was sent before has come then, or is lost, or late. */
static void settle(struct datagrams *from, struct ibv_ah *ah, struct datagrams *other, struct datagrams *to)
{
	struct ibv_wc wc;
	do {
		CHECK(!send_datagram(from, ah, other->qp->qp_num, QKEY, 0));
		expect_success(from->cq, 1000, IBV_WC_SEND);
		take_messages(to);
	} while (ibv_poll_cq(other->cq, 1, &wc) == 0);
	do {
		CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == GRH);
		expect_datagram(other, 0, 0, 0);
	} while (ibv_poll_cq(other->cq, 1, &wc) > 0);
	take_messages(to);
}

int main(void)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct datagrams a = make_datagrams(pd, QKEY), b = make_datagrams(pd, QKEY), other = make_datagrams(pd, QKEY);
	struct ibv_ah *ah = make_ah(pd, NULL);
	/* Twice as many as messages may be under way: each may come twice. */
	for (int i = 0; i < 2 * WINDOW; i++)
		expect_datagram(&b, i, i * 4096, 1024);
	expect_datagram(&other, 0, 0, 0);
	for (uint32_t i = 0; i < MESSAGES; i++) {
		fill(a.buffer, i);
		CHECK(!send_datagram(&a, ah, b.qp->qp_num, QKEY, length_of(i)));
		expect_success(a.cq, 1000 + length_of(i), IBV_WC_SEND);
		if (i % WINDOW == WINDOW - 1)
			settle(&a, ah, &other, &b);
	}
	int arrived = 0, repeated = 0;
	for (int i = 0; i < MESSAGES; i++) {
		arrived += times[i] > 0;
		repeated += times[i] > 1;
		/* No fault makes three of one. */
		CHECK(times[i] <= 2);
	}
	CHECK(!ibv_destroy_ah(ah));
	destroy_datagrams(&a);
	destroy_datagrams(&b);
	destroy_datagrams(&other);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	printf("%d of %d messages arrived, %d of them twice\n", arrived, MESSAGES, repeated);
	puts("ud_faults: ok");
	return 0;
}
