/* Long messages between processes of one host are copied once, by the receiver from the sender's memory. Everything is as with
 * packets; and what the sender has back, since its work request ended or its region is gone, is never taken for the message.
 *
 * The child is mostly the receiver. With REFUSED in the environment the system does not let the one reach the other's memory,
 * and everything must work the same. */
#include <sys/mman.h>
#include <sys/prctl.h>
#include "pair.h"

enum { LONG = 200000 };
enum command { CONNECT, RECEIVE, RESULT, SEEN, STORM, STORM_AND_EXEC, QUIT };
struct question { enum command command; uint32_t a, b, c; };
#include "child.h"
struct answer { uint32_t qpn, ping_qpn, address_low, rkey, status, length, imm; uint64_t address; int value; };

/* What all of these bytes are; -1: not one and the same. */
static int value_of(const char *bytes, uint32_t length)
{
	for (uint32_t i = 1; i < length; i++)
		if (bytes[i] != bytes[0])
			return -1;
	return (unsigned char)bytes[0];
}

static void post_send(struct side *side, uint64_t wr_id, struct ibv_sge *list, int count, enum ibv_wr_opcode opcode,
	uint64_t address, uint32_t rkey)
{
	struct ibv_send_wr wr = { .wr_id = wr_id, .sg_list = list, .num_sge = count, .opcode = opcode, .imm_data = 99,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED }, *bad;
	wr.wr.rdma.remote_addr = address;
	wr.wr.rdma.rkey = rkey;
	CHECK(!ibv_post_send(side->qp, &wr, &bad));
}

/* Sends without end what is in one piece. */
static void storm(struct side *side, int exec)
{
	for (unsigned i = 0;; i++) {
		char *at = side->buffer + i % 4 * LONG;
		if (i >= 4)
			expect_success(side->cq, i - 4, IBV_WC_SEND);
		memset(at, i, LONG);
		struct ibv_sge sge = { (uintptr_t)at, LONG, side->mr->lkey };
		post_send(side, i, &sge, 1, IBV_WR_SEND, 0, 0);
		if (exec && i == 100) {
			execlp("sleep", "sleep", "1000", (char *)NULL);
			_exit(1);
		}
	}
}

static void reconnect(struct side *side, uint32_t qpn)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	struct ibv_wc wc;
	CHECK(!ibv_modify_qp(side->qp, &reset, IBV_QP_STATE));
	while (ibv_poll_cq(side->cq, 1, &wc) > 0)
		;
	to_init(side->qp);
	to_rts(side->qp, qpn);
}

static void far_side(int socket, int refused)
{
	if (refused)
		CHECK(!prctl(PR_SET_DUMPABLE, 0));
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct side side = make_side(pd, NULL), ping = make_side(pd, NULL);
	struct question q;
	while (read(socket, &q, sizeof q) == sizeof q && q.command != QUIT) {
		struct answer answer = { .qpn = side.qp->qp_num, .ping_qpn = ping.qp->qp_num, .rkey = side.mr->rkey,
			.address = (uintptr_t)side.buffer, .value = -2 };
		struct ibv_wc wc;
		switch (q.command) {
		case CONNECT:
			reconnect(&side, q.a);
			reconnect(&ping, q.b);
			CHECK(!post_recv(&ping, 5, 0, 8));
			break;
		case RECEIVE:
			memset(side.buffer, 0x55, BUFFER);
			CHECK(!post_recv(&side, 6, q.a, q.b));
			break;
		case RESULT:
			wc = wait_wc(side.cq);
			answer.status = wc.status;
			answer.length = wc.byte_len;
			answer.imm = wc.wc_flags & IBV_WC_WITH_IMM ? wc.imm_data : 0;
			answer.value = value_of(side.buffer + q.a, wc.byte_len);
			break;
		case SEEN:
			/* What was sent before this ping has been dealt with. */
			CHECK(wait_wc(ping.cq).status == IBV_WC_SUCCESS);
			if (ibv_poll_cq(side.cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS)
				answer.value = value_of(side.buffer, wc.byte_len);
			break;
		case STORM:
		case STORM_AND_EXEC:
			CHECK(write(socket, &answer, sizeof answer) == sizeof answer);
			storm(&side, q.command == STORM_AND_EXEC);
		case QUIT:
			break;
		}
		CHECK(write(socket, &answer, sizeof answer) == sizeof answer);
	}
	_exit(0);
}

static struct side near, ping;
static struct answer far;

static struct answer ask(enum command command, uint32_t a, uint32_t b)
{
	struct question q = { command, a, b, 0 };
	struct answer answer;
	CHECK(write(child, &q, sizeof q) == sizeof q && read(child, &answer, sizeof answer) == sizeof answer);
	return answer;
}

/* Both ends anew, and a message that shows that they work. */
static void mend(void)
{
	far = ask(CONNECT, near.qp->qp_num, ping.qp->qp_num);
	reconnect(&near, far.qpn);
	reconnect(&ping, far.ping_qpn);
	ask(RECEIVE, 0, BUFFER);
	memset(near.buffer, 0x33, LONG);
	struct ibv_sge sge = sge_of(&near, 0, LONG);
	post_send(&near, 1, &sge, 1, IBV_WR_SEND, 0, 0);
	expect_success(near.cq, 1, IBV_WC_SEND);
	struct answer result = ask(RESULT, 0, 0);
	CHECK(result.status == IBV_WC_SUCCESS && result.length == LONG && result.value == 0x33);
}

static void stop(void)
{
	siginfo_t info;
	CHECK(!kill(pid, SIGSTOP) && !waitid(P_PID, pid, &info, WSTOPPED | WNOWAIT));
}

/* The other side goes on; gives what it got of the message that was sent while it was stopped, -2 if it got none. */
static int go_on(void)
{
	struct ibv_sge sge = sge_of(&ping, 0, 8);
	post_send(&ping, 2, &sge, 1, IBV_WR_SEND, 0, 0);
	CHECK(!kill(pid, SIGCONT));
	int value = ask(SEEN, 0, 0).value;
	expect_success(ping.cq, 2, IBV_WC_SEND);
	return value;
}

enum taking { TO_ERR, TO_RESET, DESTROY, DEREGISTER, REREGISTER };

/* A message is on the way when its sender gets its memory back, and uses it for something else. */
static void taken_back(struct ibv_pd *pd, enum taking how)
{
	struct ibv_qp_attr err = { .qp_state = IBV_QPS_ERR }, reset = { .qp_state = IBV_QPS_RESET };
	mend();
	const size_t size = (LONG + 4095) / 4096 * 4096; /* aligned_alloc(3) gives whole pages. */
	char *memory = aligned_alloc(4096, size), *other = aligned_alloc(4096, size);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, LONG, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	memset(memory, 0x11, LONG);
	ask(RECEIVE, 0, LONG);
	stop();
	struct ibv_sge sge = { (uintptr_t)memory, LONG, mr->lkey };
	post_send(&near, 3, &sge, 1, IBV_WR_SEND, 0, 0);
	switch (how) {
	case TO_ERR:
		CHECK(!ibv_modify_qp(near.qp, &err, IBV_QP_STATE));
		CHECK(wait_wc(near.cq).status == IBV_WC_WR_FLUSH_ERR);
		break;
	case TO_RESET:
		CHECK(!ibv_modify_qp(near.qp, &reset, IBV_QP_STATE));
		break;
	case DESTROY:
		CHECK(!ibv_destroy_qp(near.qp));
		break;
	case DEREGISTER:
		CHECK(!ibv_dereg_mr(mr));
		break;
	case REREGISTER:
		CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, other, LONG, 0));
		break;
	}
	memset(memory, 0xee, LONG);
	int got = go_on();
	if (got != -2 && got != 0x11)
		fprintf(stderr, "%d: got %#x\n", how, got);
	CHECK(got == -2 || got == 0x11);
	if (how == DEREGISTER || how == REREGISTER) {
		/* By packets it was sent before; if its acknowledge was late, not all of it could be sent again. */
		enum ibv_wc_status status = wait_wc(near.cq).status;
		CHECK(status == IBV_WC_LOC_PROT_ERR || (got != -2 && status == IBV_WC_SUCCESS));
	}
	if (how == DESTROY) {
		struct ibv_qp_init_attr init = { .send_cq = near.cq, .recv_cq = near.cq, .qp_type = IBV_QPT_RC,
			.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 2, .max_recv_sge = 2,
				.max_inline_data = 64 } };
		CHECK((near.qp = ibv_create_qp(pd, &init)));
		to_init(near.qp);
	}
	if (how != DEREGISTER)
		CHECK(!ibv_dereg_mr(mr));
	free(memory);
	free(other);
}

/* Memory that is not there any more when the message is fetched: its sender has to say so, and nobody falls. Where packets are
 * copied, the sender itself would when it had to send again. */
static void unmapped(struct ibv_pd *pd)
{
	mend();
	char *memory = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, BUFFER, 0);
	CHECK(mr);
	memset(memory, 0x44, BUFFER);
	ask(RECEIVE, 0, LONG);
	stop();
	struct ibv_sge gone = { (uintptr_t)memory, LONG, mr->lkey };
	post_send(&near, 12, &gone, 1, IBV_WR_SEND, 0, 0);
	CHECK(!munmap(memory, BUFFER));
	int got = go_on();
	CHECK(wait_wc(near.cq).status == (got == -2 ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS));
	CHECK(got == -2 || got == 0x44);
	CHECK(!ibv_dereg_mr(mr));
}

int main(void)
{
	int refused = getenv("REFUSED") != NULL;
	start(far_side, refused);
	if (refused) {
		give_up_ptrace();
		/* The child has to be kept from it as well. */
		CHECK(!prctl(PR_SET_DUMPABLE, 0));
	}
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	near = make_side(pd, NULL);
	ping = make_side(pd, NULL);
	mend();

	/* All lengths, lists and alignments; into two pieces, too. */
	for (uint32_t length = 1000; length < BUFFER / 2; length = length * 7 / 4 + 3) {
		uint32_t first = length / 3, at = length % 61;
		for (int imm = 0; imm < 3; imm++) {
			ask(RECEIVE, at, length);
			memset(near.buffer, length ^ imm, BUFFER);
			struct ibv_sge list[2] = { sge_of(&near, at * 3, first), sge_of(&near, BUFFER / 2, length - first) };
			near.buffer[at * 3 + first] = ~near.buffer[0];
			near.buffer[BUFFER / 2 + length - first] = ~near.buffer[0];
			enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM };
			post_send(&near, 7, list, 2, opcodes[imm], far.address + at, far.rkey);
			expect_success(near.cq, 7, imm == 2 ? IBV_WC_RDMA_WRITE : IBV_WC_SEND);
			struct answer result = ask(RESULT, at, 0);
			CHECK(result.status == IBV_WC_SUCCESS && result.length == length && result.imm == (imm ? 99 : 0));
			CHECK(result.value == ((length ^ imm) & 0xff));
		}
	}

	/* No receive is there yet: the message waits for it. */
	struct ibv_sge sge = sge_of(&near, 0, LONG);
	memset(near.buffer, 0x21, LONG);
	post_send(&near, 8, &sge, 1, IBV_WR_SEND, 0, 0);
	usleep(2000);
	ask(RECEIVE, 0, LONG);
	expect_success(near.cq, 8, IBV_WC_SEND);
	CHECK(ask(RESULT, 0, 0).value == 0x21);

	/* Too long for the receive, and where the key grants nothing. */
	ask(RECEIVE, 0, LONG - 1);
	post_send(&near, 9, &sge, 1, IBV_WR_SEND, 0, 0);
	CHECK(wait_wc(near.cq).status == IBV_WC_REM_INV_REQ_ERR);
	CHECK(ask(RESULT, 0, 0).status == IBV_WC_LOC_LEN_ERR);
	mend();
	ask(RECEIVE, 0, 8);
	post_send(&near, 10, &sge, 1, IBV_WR_RDMA_WRITE_WITH_IMM, far.address + BUFFER - LONG + 1, far.rkey);
	CHECK(wait_wc(near.cq).status == IBV_WC_REM_ACCESS_ERR);
	mend();
	struct ibv_sge beyond = sge_of(&near, BUFFER - LONG + 1, LONG);
	post_send(&near, 11, &beyond, 1, IBV_WR_SEND, 0, 0);
	CHECK(wait_wc(near.cq).status == IBV_WC_LOC_PROT_ERR);

	/* Memory that its owner has back. */
	for (enum taking how = TO_ERR; how <= REREGISTER; how++)
		taken_back(pd, how);

	if (!refused && !getenv("RNIC_HOST_PATH")) {
		/* To another process the first packets go by reference for sure; later ones may go by value, which reads the memory here. */
		end(0);
		start(far_side, refused);
		unmapped(pd);
	}
	mend();
	end(0);

	/* A sender that is killed, or runs another program, in the middle of many messages: what comes of them is whole. */
	for (int i = 0; i < 6; i++) {
		start(far_side, refused);
		mend();
		int count = 4;
		for (int r = 0; r < count; r++)
			CHECK(!post_recv(&near, r, r * LONG, LONG));
		ask(i % 2 ? STORM_AND_EXEC : STORM, 0, 0);
		struct ibv_wc wc;
		char end_of_file;
		int left = i % 2 ? 95 : 50 + i * 10, ended = 0;
		for (int idle = 0; !ended || idle < 100000;) {
			if (ibv_poll_cq(near.cq, 1, &wc) == 1) {
				CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == LONG);
				CHECK(value_of(near.buffer + wc.wr_id * LONG, LONG) >= 0);
				CHECK(!post_recv(&near, wc.wr_id, wc.wr_id * LONG, LONG));
				left--;
				idle = 0;
			} else {
				idle++;
			}
			if (left > 0 || ended)
				continue;
			/* Its end of the socket is closed by the exec. */
			if (i % 2)
				ended = recv(child, &end_of_file, 1, MSG_DONTWAIT) == 0;
			else
				ended = !kill(pid, SIGKILL);
		}
		end(SIGKILL);
	}
	destroy_side(&near);
	destroy_side(&ping);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("by_reference: ok");
	return 0;
}
