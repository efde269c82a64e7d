/* XRC across processes: a child owns the shared receive queue, the parent has both ends of the connection whose target
 * takes messages for it. The domain is shared by a file. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"

enum { ROOM = 1 << 18, SLOT = 32768 };

/* What the parent asks of the child, and what it answers. */
enum command { POST, POST_BAD_KEY, WAIT, NOTHING, PEEK, LIMIT, DESTROY, QUIT };
struct question { enum command command; uint32_t wr_id, length, offset; };
struct answer { struct ibv_wc wc; char bytes[64]; };
struct receiver { uint32_t number, rkey, pid; uint64_t address; };

static struct ibv_xrcd *open_xrcd(struct ibv_context *context, int fd, int oflags)
{
	struct ibv_xrcd_init_attr attr = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd,
		.oflags = oflags };
	return ibv_open_xrcd(context, &attr);
}

static struct ibv_srq *make_srq(struct ibv_pd *pd, struct ibv_xrcd *xrcd, struct ibv_cq *cq, uint32_t *number)
{
	struct ibv_srq_init_attr_ex init = { .attr = { .max_wr = DEPTH, .max_sge = 1 }, .srq_type = IBV_SRQT_XRC, .pd = pd,
		.xrcd = xrcd, .cq = cq,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ };
	struct ibv_srq *srq = ibv_create_srq_ex(pd->context, &init);
	CHECK(srq && !ibv_get_srq_num(srq, number));
	return srq;
}

/* The child: owns a queue until it is told to end. */
static void own(int socket, int file)
{
	struct ibv_context *context = open_device();
	struct ibv_xrcd *xrcd = open_xrcd(context, file, O_CREAT | O_EXCL);
	CHECK(xrcd);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
	char *buffer = aligned_alloc(4096, ROOM);
	for (int i = 0; i < ROOM; i++)
		buffer[i] = i % 251;
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, ROOM, access);
	struct receiver me = { .rkey = mr->rkey, .pid = getpid(), .address = (uintptr_t)buffer };
	struct ibv_srq *srq = make_srq(pd, xrcd, cq, &me.number);
	CHECK(write(socket, &me, sizeof me) == sizeof me);
	struct question q;
	while (read(socket, &q, sizeof q) == sizeof q && q.command != QUIT) {
		struct answer a = { .wc.status = IBV_WC_SUCCESS };
		struct ibv_sge sge = { (uintptr_t)buffer + q.offset, q.length, mr->lkey + (q.command == POST_BAD_KEY) };
		struct ibv_recv_wr wr = { .wr_id = q.wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;
		struct ibv_srq_attr limit = { .srq_limit = 1 };
		struct ibv_async_event event;
		switch (q.command) {
		case POST:
		case POST_BAD_KEY:
			CHECK(!ibv_post_srq_recv(srq, &wr, &bad));
			break;
		case WAIT:
			a.wc = wait_wc(cq);
			break;
		case NOTHING:
			CHECK(ibv_poll_cq(cq, 1, &a.wc) == 0);
			break;
		case PEEK:
			memcpy(a.bytes, buffer + q.offset, sizeof a.bytes);
			break;
		case LIMIT:
			CHECK(!ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
			CHECK(!ibv_get_async_event(context, &event) && event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED);
			ibv_ack_async_event(&event);
			break;
		case DESTROY:
			CHECK(!ibv_destroy_srq(srq));
			srq = NULL;
			break;
		case QUIT:
			break;
		}
		CHECK(write(socket, &a, sizeof a) == sizeof a);
	}
	CHECK((!srq || !ibv_destroy_srq(srq)) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
	CHECK(!ibv_close_xrcd(xrcd) && !ibv_close_device(context));
	_exit(0);
}

static struct ibv_context *context;
static struct ibv_pd *pd;
static char *buffer;
static struct ibv_mr *mr;
static int child;

static struct receiver start(int file)
{
	int sockets[2];
	CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets));
	if (!fork())
		own(sockets[1], file);
	close(sockets[1]);
	child = sockets[0];
	struct receiver r;
	CHECK(read(child, &r, sizeof r) == sizeof r);
	return r;
}

static void end(struct receiver r, int status)
{
	int how;
	close(child);
	CHECK(waitpid(r.pid, &how, 0) == (pid_t)r.pid && how == status);
}

static struct answer ask(enum command command, uint32_t wr_id, uint32_t offset, uint32_t length)
{
	struct question q = { command, wr_id, length, offset };
	struct answer a;
	CHECK(write(child, &q, sizeof q) == sizeof q && read(child, &a, sizeof a) == sizeof a);
	return a;
}

/* One connection, both ends here. */
struct connection { struct ibv_qp *initiator, *target; struct ibv_cq *cq; };

static struct connection make_connection(struct ibv_xrcd *xrcd)
{
	struct connection c = { .cq = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0) };
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_XRC_SEND, .send_cq = c.cq, .pd = pd,
		.cap = { .max_send_wr = 4 * DEPTH, .max_send_sge = 1 }, .comp_mask = IBV_QP_INIT_ATTR_PD };
	c.initiator = ibv_create_qp_ex(context, &init);
	struct ibv_qp_init_attr_ex recv = { .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = xrcd };
	c.target = ibv_create_qp_ex(context, &recv);
	CHECK(c.initiator && c.target);
	to_init(c.initiator);
	to_init(c.target);
	to_rts(c.initiator, c.target->qp_num);
	to_rts(c.target, c.initiator->qp_num);
	return c;
}

static void destroy(struct connection *c)
{
	CHECK(!ibv_destroy_qp(c->initiator) && !ibv_destroy_qp(c->target) && !ibv_destroy_cq(c->cq));
}

static void begin(struct connection *c, enum ibv_wr_opcode opcode, uint32_t srqn, uint32_t length, uint64_t address,
	uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)buffer, length, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 3, .opcode = opcode, .sg_list = &sge, .num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED, .imm_data = 77, .qp_type.xrc.remote_srqn = srqn }, *bad;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = address;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 5;
	} else {
		wr.wr.rdma.remote_addr = address;
		wr.wr.rdma.rkey = rkey;
	}
	CHECK(!ibv_post_send(c->initiator, &wr, &bad));
}

static enum ibv_wc_status finish(struct connection *c)
{
	struct ibv_wc wc = wait_wc(c->cq);
	CHECK(wc.wr_id == 3 && wc.qp_num == c->initiator->qp_num);
	return wc.status;
}

/* Something has completed before that time is over. */
static int completes_within(struct connection *c, int milliseconds)
{
	struct timespec begin, now;
	struct ibv_wc wc;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		if (ibv_poll_cq(c->cq, 1, &wc))
			return 1;
		usleep(1000);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < milliseconds);
	return 0;
}

static enum ibv_wc_status work(struct connection *c, enum ibv_wr_opcode opcode, uint32_t srqn, uint32_t length,
	uint64_t address, uint32_t rkey)
{
	begin(c, opcode, srqn, length, address, rkey);
	return finish(c);
}

static enum ibv_wc_status send_to(struct connection *c, uint32_t srqn, uint32_t length)
{
	return work(c, IBV_WR_SEND, srqn, length, 0, 0);
}

static void expect_received(struct connection *c, uint32_t wr_id, enum ibv_wc_opcode opcode, uint32_t length)
{
	struct ibv_wc wc = ask(WAIT, 0, 0, 0).wc;
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == wr_id && wc.opcode == opcode && wc.byte_len == length);
	CHECK(wc.qp_num == c->target->qp_num && wc.src_qp == c->initiator->qp_num);
}

static void expect_event(enum ibv_event_type type, struct ibv_qp *qp)
{
	struct ibv_async_event event;
	do {
		struct pollfd readable = { .fd = context->async_fd, .events = POLLIN };
		CHECK(poll(&readable, 1, 60000) == 1 && !ibv_get_async_event(context, &event));
		ibv_ack_async_event(&event);
	} while (event.event_type == IBV_EVENT_COMM_EST || event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
	CHECK(event.event_type == type && event.element.qp == qp);
}

/* All operations of one connection. */
static void operations(struct ibv_xrcd *xrcd, struct receiver r)
{
	struct connection c = make_connection(xrcd);
	ask(POST, 1, 0, SLOT);
	strcpy(buffer, "across");
	CHECK(send_to(&c, r.number, 8) == IBV_WC_SUCCESS);
	expect_received(&c, 1, IBV_WC_RECV, 8);
	CHECK(!strcmp(ask(PEEK, 0, 0, 0).bytes, "across"));

	/* Many packets. */
	for (int i = 0; i < SLOT; i++)
		buffer[i] = i % 127;
	ask(POST, 2, 0, SLOT);
	CHECK(work(&c, IBV_WR_SEND_WITH_IMM, r.number, SLOT - 100, 0, 0) == IBV_WC_SUCCESS);
	struct ibv_wc wc = ask(WAIT, 0, 0, 0).wc;
	CHECK(wc.wc_flags & IBV_WC_WITH_IMM && wc.imm_data == 77 && wc.byte_len == SLOT - 100);
	CHECK(!memcmp(ask(PEEK, 0, 20000, 0).bytes, buffer + 20000, 64));

	/* WRITE, READ and atomics work in the protection domain of the queue, and so in its process. */
	CHECK(work(&c, IBV_WR_RDMA_WRITE, r.number, 30000, r.address + 64, r.rkey) == IBV_WC_SUCCESS);
	CHECK(!memcmp(ask(PEEK, 0, 64 + 29900, 0).bytes, buffer + 29900, 64));
	memset(buffer, 0, ROOM);
	CHECK(work(&c, IBV_WR_RDMA_READ, r.number, ROOM - 65536, r.address + 65536, r.rkey) == IBV_WC_SUCCESS);
	for (int i = 0; i < ROOM - 65536; i++)
		CHECK(buffer[i] == (char)((i + 65536) % 251));
	ask(POST, 4, 0, SLOT);
	CHECK(work(&c, IBV_WR_RDMA_WRITE_WITH_IMM, r.number, 3000, r.address + 4096, r.rkey) == IBV_WC_SUCCESS);
	expect_received(&c, 4, IBV_WC_RECV_RDMA_WITH_IMM, 3000);
	memset(buffer, 0, 8);
	CHECK(work(&c, IBV_WR_RDMA_WRITE, r.number, 8, r.address, r.rkey) == IBV_WC_SUCCESS);
	for (uint64_t i = 0; i < 3; i++) {
		CHECK(work(&c, IBV_WR_ATOMIC_FETCH_AND_ADD, r.number, 8, r.address, r.rkey) == IBV_WC_SUCCESS);
		CHECK(*(uint64_t *)buffer == 5 * i);
	}
	/* What a READ saw before is not what it sees now. */
	CHECK(work(&c, IBV_WR_RDMA_READ, r.number, 8, r.address, r.rkey) == IBV_WC_SUCCESS && *(uint64_t *)buffer == 15);

	/* An empty queue puts the sender off; the limit event is the owner's. */
	begin(&c, IBV_WR_SEND, r.number, 8, 0, 0);
	usleep(5000);
	CHECK(ibv_poll_cq(c.cq, 1, &wc) == 0);
	ask(NOTHING, 0, 0, 0);
	ask(POST, 6, 0, SLOT);
	expect_received(&c, 6, IBV_WC_RECV, 8);
	CHECK(finish(&c) == IBV_WC_SUCCESS);
	ask(LIMIT, 0, 0, 0);
	destroy(&c);
}

/* Messages for a queue here and for one there, in turn: they come in the order in which they were sent. */
static void interleaved(struct ibv_xrcd *xrcd, struct receiver r)
{
	struct connection c = make_connection(xrcd);
	struct ibv_cq *cq = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
	uint32_t number;
	struct ibv_srq *srq = make_srq(pd, xrcd, cq, &number);
	CHECK(number != r.number);
	for (int i = 0; i < 8; i++) {
		struct ibv_sge sge = { (uintptr_t)buffer + SLOT, SLOT, mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;
		CHECK(!ibv_post_srq_recv(srq, &wr, &bad));
		ask(POST, i, 0, SLOT);
	}
	for (int i = 0; i < 16; i++)
		begin(&c, IBV_WR_SEND, i % 2 ? number : r.number, 1000 * i + 1, 0, 0);
	for (int i = 0; i < 16; i++)
		CHECK(finish(&c) == IBV_WC_SUCCESS);
	for (uint32_t i = 0; i < 8; i++) {
		expect_received(&c, i, IBV_WC_RECV, 2000 * i + 1);
		struct ibv_wc wc = wait_wc(cq);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == i && wc.byte_len == 2000 * i + 1001);
	}
	destroy(&c);
	CHECK(!ibv_destroy_srq(srq) && !ibv_destroy_cq(cq));
}

/* What the owner refuses. */
static void refusals(struct ibv_xrcd *xrcd, struct receiver r)
{
	struct connection c = make_connection(xrcd);
	ask(POST, 1, 0, 4);
	CHECK(send_to(&c, r.number, 8) == IBV_WC_REM_INV_REQ_ERR);
	struct ibv_wc wc = ask(WAIT, 0, 0, 0).wc;
	CHECK(wc.status == IBV_WC_LOC_LEN_ERR && wc.wr_id == 1 && wc.qp_num == c.target->qp_num);
	destroy(&c);

	c = make_connection(xrcd);
	ask(POST_BAD_KEY, 2, 0, SLOT);
	CHECK(send_to(&c, r.number, 8) == IBV_WC_REM_OP_ERR);
	wc = ask(WAIT, 0, 0, 0).wc;
	CHECK(wc.status == IBV_WC_LOC_PROT_ERR && wc.wr_id == 2);
	destroy(&c);

	c = make_connection(xrcd);
	CHECK(work(&c, IBV_WR_RDMA_WRITE, r.number, 8, r.address, mr->rkey) == IBV_WC_REM_ACCESS_ERR);
	expect_event(IBV_EVENT_QP_ACCESS_ERR, c.target);
	destroy(&c);
	c = make_connection(xrcd);
	CHECK(work(&c, IBV_WR_RDMA_READ, r.number, 8, r.address + ROOM, r.rkey) == IBV_WC_REM_ACCESS_ERR);
	destroy(&c);

	/* A domain of one's own has no queues of others. */
	struct ibv_xrcd *bare = open_xrcd(context, -1, O_CREAT);
	c = make_connection(bare);
	CHECK(send_to(&c, r.number, 8) == IBV_WC_REM_INV_REQ_ERR);
	destroy(&c);
	CHECK(!ibv_close_xrcd(bare));
	/* Another file is another domain. */
	char name[] = "/tmp/rnic-xrcd-XXXXXX";
	int fd = mkstemp(name);
	CHECK(fd >= 0 && !unlink(name));
	struct ibv_xrcd *foreign = open_xrcd(context, fd, O_CREAT);
	c = make_connection(foreign);
	CHECK(send_to(&c, r.number, 8) == IBV_WC_REM_INV_REQ_ERR);
	expect_event(IBV_EVENT_QP_REQ_ERR, c.target);
	destroy(&c);
	CHECK(!ibv_close_xrcd(foreign) && !close(fd));

	/* A target that fails in the middle of a message gives the receive back. */
	c = make_connection(xrcd);
	ask(POST, 3, 0, SLOT);
	CHECK(send_to(&c, r.number, 8) == IBV_WC_SUCCESS);
	expect_received(&c, 3, IBV_WC_RECV, 8);
	ask(DESTROY, 0, 0, 0);
	CHECK(send_to(&c, r.number, 8) == IBV_WC_REM_INV_REQ_ERR);
	destroy(&c);
}

int main(void)
{
	char name[] = "/tmp/rnic-xrcd-XXXXXX";
	int file = mkstemp(name);
	CHECK(file >= 0 && !unlink(name));
	struct receiver r = start(file);
	context = open_device();
	pd = ibv_alloc_pd(context);
	buffer = aligned_alloc(4096, ROOM);
	mr = ibv_reg_mr(pd, buffer, ROOM, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(pd && mr);

	CHECK(!open_xrcd(context, file, O_CREAT | O_EXCL) && errno == EINVAL);
	struct ibv_xrcd *xrcd = open_xrcd(context, file, 0);
	CHECK(xrcd);
	operations(xrcd, r);
	interleaved(xrcd, r);
	refusals(xrcd, r);
	struct question quit = { QUIT };
	CHECK(write(child, &quit, sizeof quit) == sizeof quit);
	end(r, 0);
	struct connection c = make_connection(xrcd);
	CHECK(send_to(&c, r.number, 8) == IBV_WC_REM_INV_REQ_ERR);
	destroy(&c);

	/* The domain ends with its last opener, be that killed. */
	CHECK(!ibv_close_xrcd(xrcd));
	CHECK(!open_xrcd(context, file, 0) && errno == EAGAIN);
	r = start(file);
	xrcd = open_xrcd(context, file, O_CREAT);
	c = make_connection(xrcd);
	ask(POST, 1, 0, SLOT);
	CHECK(send_to(&c, r.number, 8) == IBV_WC_SUCCESS);
	expect_received(&c, 1, IBV_WC_RECV, 8);
	/* Killed while a message waits for a receive. */
	begin(&c, IBV_WR_SEND, r.number, 8, 0, 0);
	CHECK(!kill(r.pid, SIGKILL));
	CHECK(finish(&c) == IBV_WC_REM_INV_REQ_ERR);
	end(r, SIGKILL);
	destroy(&c);
	CHECK(!ibv_close_xrcd(xrcd) && !open_xrcd(context, file, 0) && errno == EAGAIN);

	/* Stopped: a card would go on, so nothing fails. It is waited for, for longer than a process that runs is, and than the
	 * ACK timeout and its retries last. */
	r = start(file);
	xrcd = open_xrcd(context, file, 0);
	c = make_connection(xrcd);
	ask(POST, 1, 0, SLOT);
	CHECK(send_to(&c, r.number, 8) == IBV_WC_SUCCESS);
	CHECK(!kill(r.pid, SIGSTOP));
	begin(&c, IBV_WR_SEND, r.number, 8, 0, 0);
	CHECK(!completes_within(&c, 4500));
	CHECK(!kill(r.pid, SIGCONT));
	/* It has no receive, and then one. */
	ask(POST, 1, 0, SLOT);
	CHECK(finish(&c) == IBV_WC_SUCCESS);
	expect_received(&c, 1, IBV_WC_RECV, 8);
	/* And killed in the end. */
	CHECK(!kill(r.pid, SIGSTOP));
	begin(&c, IBV_WR_SEND, r.number, 8, 0, 0);
	CHECK(!completes_within(&c, 500));
	CHECK(!kill(r.pid, SIGKILL));
	enum ibv_wc_status status = finish(&c);
	CHECK(status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_RETRY_EXC_ERR);
	destroy(&c);
	end(r, SIGKILL);
	CHECK(!ibv_close_xrcd(xrcd) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("xrc_processes: ok");
	return 0;
}
