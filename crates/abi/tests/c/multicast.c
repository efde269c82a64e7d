/* Multicast: one datagram reaches every attached queue pair of two processes, the sender's own included. */
#include <sys/wait.h>
#include <unistd.h>
#include "datagram.h"

/* Exported, but in a private header. */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

enum { GROUP_QPN = 0xffffff, MESSAGES = 12 };

/* 239.1.2.3, as RoCE v2 over IPv4 names it, and a group of a program's own invention. */
static const union ibv_gid mapped = { .raw = { [10] = 0xff, 0xff, 239, 1, 2, 3 } };
static const union ibv_gid invented = { .raw = { 0xff, 0x01, [5] = 2, 0xc9, 0x85, [15] = 9 } };

static void attach(struct datagrams *side, const union ibv_gid *group)
{
	CHECK(!ibv_attach_mcast(side->qp, group, 0));
	/* Once more is no more. */
	CHECK(!ibv_attach_mcast(side->qp, group, 0));
}

/* What the port has counted. */
static uint64_t counter(struct ibv_context *context, const char *name)
{
	char file[64], text[64] = "";
	snprintf(file, sizeof(file), "ports/1/counters/%s", name);
	CHECK(ibv_read_sysfs_file(context->device->ibdev_path, file, text, sizeof(text)) > 0);
	return strtoull(text, NULL, 10);
}

/* Every message, in order, and the group as the destination in the GRH. */
static void expect_all(struct datagrams *side, uint32_t sender)
{
	for (int i = 0; i < MESSAGES; i++) {
		struct ibv_wc wc = wait_wc(side->cq);
		while (wc.opcode == IBV_WC_SEND)
			wc = wait_wc(side->cq);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == GRH + 4 && (wc.wc_flags & IBV_WC_GRH));
		CHECK(!sender || wc.src_qp == sender);
		const char *at = side->buffer + 4096 + wc.wr_id * 64;
		int number;
		memcpy(&number, at + GRH, 4);
		CHECK(number == i);
		const uint8_t *destination = (const uint8_t *)at + 36;
		CHECK(destination[0] == 239);
		/* The address of a group is nobody's to answer from. */
		struct ibv_ah_attr attr;
		CHECK(ibv_init_ah_from_wc(side->qp->context, 1, &wc, (struct ibv_grh *)at, &attr) == -1 && errno == EINVAL);
	}
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(side->cq, 1, &wc) == 0);
}

static void post_all(struct datagrams *side)
{
	for (int i = 0; i < MESSAGES; i++)
		expect_datagram(side, i, 4096 + i * 64, 4);
}

/* Another process: says when it is ready, receives, and ends. */
static void member(const union ibv_gid *group, int ready)
{
	struct ibv_pd *pd = ibv_alloc_pd(open_device());
	struct datagrams side = make_datagrams(pd, QKEY), deaf = make_datagrams(pd, QKEY + 1);
	post_all(&side);
	attach(&side, group);
	/* The queue key holds for groups too. */
	expect_datagram(&deaf, 0, 4096, 4);
	attach(&deaf, group);
	CHECK(write(ready, "", 1) == 1);
	expect_all(&side, 0);
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(deaf.cq, 1, &wc) == 0);
	/* A queue pair that is attached cannot be destroyed. */
	CHECK(ibv_destroy_qp(side.qp) == EBUSY);
	CHECK(!ibv_detach_mcast(side.qp, group, 0) && !ibv_detach_mcast(deaf.qp, group, 0));
	destroy_datagrams(&side);
	destroy_datagrams(&deaf);
	exit(0);
}

static void run(const union ibv_gid *group)
{
	int ready[2];
	char byte;
	CHECK(!pipe(ready));
	pid_t child = fork();
	if (!child)
		member(group, ready[1]);
	CHECK(read(ready[0], &byte, 1) == 1);

	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct datagrams sender = make_datagrams(pd, QKEY), other = make_datagrams(pd, QKEY), outside = make_datagrams(pd, QKEY);
	struct ibv_ah *ah = make_ah(pd, group);
	CHECK(ah);
	attach(&sender, group);
	attach(&other, group);
	post_all(&sender);
	post_all(&other);
	uint64_t sent = counter(context, "multicast_xmit_packets"), came = counter(context, "multicast_rcv_packets");
	expect_datagram(&outside, 0, 4096, 4);
	for (int i = 0; i < MESSAGES; i++) {
		memcpy(sender.buffer, &i, 4);
		CHECK(!send_datagram(&sender, ah, GROUP_QPN, QKEY, 4));
		/* Its own copy comes through the same queue. */
		struct ibv_wc wc = wait_wc(sender.cq);
		CHECK(wc.status == IBV_WC_SUCCESS && (wc.opcode == IBV_WC_SEND || wc.opcode == IBV_WC_RECV));
		if (wc.opcode == IBV_WC_RECV)
			expect_success(sender.cq, 1004, IBV_WC_SEND);
		else
			CHECK(wait_wc(sender.cq).opcode == IBV_WC_RECV);
	}
	expect_all(&other, sender.qp->qp_num);
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);

	/* Detached: no more copies. */
	CHECK(!ibv_detach_mcast(other.qp, group, 0));
	CHECK(ibv_detach_mcast(other.qp, group, 0) == EINVAL);
	expect_datagram(&other, 50, 4096, 4);
	expect_datagram(&sender, 51, 4096, 4);
	CHECK(!send_datagram(&sender, ah, GROUP_QPN, QKEY, 4));
	for (int i = 0; i < 2; i++)
		CHECK(wait_wc(sender.cq).status == IBV_WC_SUCCESS);
	/* One packet each, whoever gets copies; nothing else was sent or came. */
	CHECK(counter(context, "multicast_xmit_packets") - sent == MESSAGES + 1);
	CHECK(counter(context, "multicast_rcv_packets") - came == MESSAGES + 1);
	CHECK(counter(context, "unicast_xmit_packets") == 0 && counter(context, "unicast_rcv_packets") == 0);
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(other.cq, 1, &wc) == 0 && ibv_poll_cq(outside.cq, 1, &wc) == 0);
	CHECK(!ibv_detach_mcast(sender.qp, group, 0));
	destroy_datagrams(&sender);
	destroy_datagrams(&other);
	destroy_datagrams(&outside);
	CHECK(!ibv_destroy_ah(ah) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	close(ready[0]);
	close(ready[1]);
}

static void refusals(void)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct datagrams side = make_datagrams(pd, QKEY);
	struct side connected = make_side(pd, NULL);
	union ibv_gid unicast;
	loopback_gid(context, &unicast);
	CHECK(ibv_attach_mcast(side.qp, &unicast, 0) == EINVAL);
	CHECK(ibv_attach_mcast(connected.qp, &mapped, 0) == EINVAL);
	CHECK(ibv_detach_mcast(side.qp, &mapped, 0) == EINVAL);
	CHECK(ibv_attach_mcast(side.qp, NULL, 0) == EINVAL);
	destroy_side(&connected);
	destroy_datagrams(&side);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
}

int main(void)
{
	run(&mapped);
	run(&invented);
	refusals();
	puts("multicast: ok");
	return 0;
}
