/* What the ten judges share; see harness.h. */
#include "harness.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int verdicts = -1;
static pid_t other;
static bool failed;

static void line(char sign, const char *format, va_list arguments)
{
	char text[400];
	text[0] = sign;
	int length = vsnprintf(text + 1, sizeof(text) - 2, format, arguments) + 1;
	if (length > (int)sizeof(text) - 2)
		length = sizeof(text) - 2;
	text[length] = '\n';
	if (write(verdicts, text, length + 1) < 0)
		_exit(3);
}

void right(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	line('+', format, arguments);
	va_end(arguments);
}

void wrong(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	line('-', format, arguments);
	va_end(arguments);
	failed = true;
}

/* The last line: without it the program ended before it was judged. */
static void end(void)
{
	if (write(verdicts, ".\n", 2) < 0)
		_exit(3);
	if (other > 0)
		kill(other, SIGKILL);
	fflush(NULL);
}

void stop(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	line('-', format, arguments);
	va_end(arguments);
	end();
	_exit(1);
}

void tell(int fd, const void *bytes, size_t length)
{
	if (send(fd, bytes, length, MSG_NOSIGNAL) != (ssize_t)length)
		_exit(4);
}

void hear(int fd, void *bytes, size_t length)
{
	/* Nobody is there any more: that side has said why. */
	if (recv(fd, bytes, length, MSG_WAITALL) != (ssize_t)length)
		_exit(4);
}

void tell_number(int fd, int64_t number)
{
	tell(fd, &number, sizeof(number));
}

int64_t hear_number(int fd)
{
	int64_t number;
	hear(fd, &number, sizeof(number));
	return number;
}

unsigned int fresh_seed(void)
{
	unsigned int seed = 1;
	if (getrandom(&seed, sizeof(seed), 0) < 0)
		seed = (unsigned int)time(NULL);
	return seed;
}

static unsigned char nth(size_t index, unsigned int seed)
{
	unsigned int x = (unsigned int)index * 2654435761u + seed;
	return (unsigned char)(x >> 13 ^ x);
}

void fill(char *bytes, size_t length, unsigned int seed)
{
	for (size_t i = 0; i < length; i++)
		bytes[i] = (char)nth(i, seed);
}

long differs(const char *bytes, size_t length, unsigned int seed)
{
	for (size_t i = 0; i < length; i++)
		if ((unsigned char)bytes[i] != nth(i, seed))
			return (long)i;
	return -1;
}

int completion(struct ibv_cq *cq, struct ibv_wc *wc, int milliseconds)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	int64_t until = now.tv_sec * 1000 + now.tv_nsec / 1000000 + milliseconds;
	for (;;) {
		int n = ibv_poll_cq(cq, 1, wc);
		if (n)
			return n;
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec * 1000 + now.tv_nsec / 1000000 > until)
			return 0;
		usleep(100);
	}
}

static int (*real_post)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
static int (*real_poll)(struct ibv_cq *, int, struct ibv_wc *);
struct watched watched;

static int post_hook(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int error = real_post(qp, wr, bad);
	for (; wr && !(error && wr == *bad); wr = wr->next) {
		watched.posted++;
		watched.last_signaled = (wr->send_flags & IBV_SEND_SIGNALED) != 0;
		watched.signaled += watched.last_signaled;
		bool writes = wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
		for (int i = 0; writes && i < wr->num_sge; i++)
			watched.written += wr->sg_list[i].length;
		if (wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM || wr->opcode == IBV_WR_SEND_WITH_IMM) {
			if (!watched.told)
				watched.written_before = watched.written;
			watched.told++;
		}
	}
	return error;
}

static int poll_hook(struct ibv_cq *cq, int entries, struct ibv_wc *wc)
{
	int n = real_poll(cq, entries, wc);
	for (int i = 0; i < n; i++)
		watched.polled += !(wc[i].opcode & IBV_WC_RECV);
	return n;
}

void watch(struct course *course)
{
	memset(&watched, 0, sizeof(watched));
	real_post = course->context->ops.post_send;
	real_poll = course->context->ops.poll_cq;
	course->context->ops.post_send = post_hook;
	course->context->ops.poll_cq = poll_hook;
}

void unwatch(struct course *course)
{
	course->context->ops.post_send = real_post;
	course->context->ops.poll_cq = real_poll;
}

bool knew_all(struct course *course, const char *function)
{
	unwatch(course);
	if (watched.posted && !watched.last_signaled)
		wrong("%s() returned, and its last request was not signaled: nothing tells when it is done", function);
	else if (watched.polled < watched.signaled)
		wrong("%s() returned before it was done: it polled %d of %d completions", function, watched.polled,
		      watched.signaled);
	else
		return true;
	return false;
}

/* A failure of the course itself, or of the machine. */
static void must(bool done, const char *what)
{
	if (!done)
		stop("the course cannot go on: %s: %s", what, strerror(errno));
}

void open_device(struct course *course, struct wishes wishes)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	must(list && list[0], "there is no device");
	course->context = ibv_open_device(list[0]);
	must(course->context, "the device cannot be opened");
	ibv_free_device_list(list);
	course->pd = ibv_alloc_pd(course->context);
	course->channel = ibv_create_comp_channel(course->context);
	must(course->pd && course->channel, "no objects");
	uint32_t sends = wishes.sends ? wishes.sends : 64, receives = wishes.receives ? wishes.receives : 64;
	course->cq = ibv_create_cq(course->context, (int)(sends + receives), NULL, course->channel, 0);
	course->length = BUFFER;
	course->buffer = aligned_alloc(4096, PEER_BYTES);
	must(course->cq && course->buffer, "no completion queue");
	memset(course->buffer, 0, PEER_BYTES);
	course->mr = ibv_reg_mr(course->pd, course->buffer, PEER_BYTES,
				IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	must(course->mr, "no memory region");
	struct ibv_qp_init_attr attr = {
		.send_cq = course->cq,
		.recv_cq = course->cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = sends,
			 .max_recv_wr = receives,
			 .max_send_sge = 1,
			 .max_recv_sge = 1,
			 .max_inline_data = 32 },
	};
	course->qp = ibv_create_qp(course->pd, &attr);
	must(course->qp, "no queue pair");
}

struct course_end own_end(struct course *course)
{
	struct course_end own = { .qpn = course->qp->qp_num, .psn = fresh_seed() & 0xffffff };
	struct ibv_port_attr port;
	must(!ibv_query_port(course->context, 1, &port), "no port");
	static const union ibv_gid none;
	for (own.gid_index = 0; own.gid_index < port.gid_tbl_len; own.gid_index++)
		if (!ibv_query_gid(course->context, 1, own.gid_index, &own.gid) &&
		    memcmp(&own.gid, &none, sizeof(none)))
			return own;
	stop("the GID table is empty: `ip link set lo up`, and see `rnic devices`");
}

void to_rts(struct ibv_qp *qp, const struct course_end *mine, const struct course_end *peer, uint8_t rnr_retry)
{
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};
	must(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = peer->gid, .sgid_index = (uint8_t)mine->gid_index, .hop_limit = 64 } },
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
	};
	must(!ibv_modify_qp(qp, &rtr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
	     "RTR");
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = mine->psn,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = rnr_retry,
		.max_rd_atomic = 1,
	};
	must(!ibv_modify_qp(qp, &rts,
			    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_MAX_QP_RD_ATOMIC),
	     "RTS");
}

void connect_over(struct course *course, int fd, struct wishes wishes)
{
	struct course_end mine = own_end(course), theirs;
	uint64_t memory[3] = { (uintptr_t)course->buffer, PEER_BYTES, course->mr->rkey }, remote[3];
	tell(fd, &mine, sizeof(mine));
	tell(fd, memory, sizeof(memory));
	hear(fd, &theirs, sizeof(theirs));
	hear(fd, remote, sizeof(remote));
	course->peer.addr = remote[0];
	course->peer.length = remote[1];
	course->peer.rkey = (uint32_t)remote[2];
	to_rts(course->qp, &mine, &theirs, wishes.rnr_retry);
}

void set_up(struct course *course, int fd, struct wishes wishes)
{
	memset(course, 0, sizeof(*course));
	open_device(course, wishes);
	connect_over(course, fd, wishes);
	/* Both are in RTS. */
	tell_number(fd, 0);
	hear_number(fd);
}

void tear_down(struct course *course)
{
	ibv_destroy_qp(course->qp);
	ibv_dereg_mr(course->mr);
	ibv_destroy_cq(course->cq);
	free(course->buffer);
	/* The others may have objects of the learner's, and would say so: the process ends soon. */
}

void post_receive(struct course *course, uint64_t id, size_t offset, size_t length)
{
	struct ibv_sge sge = { (uintptr_t)course->buffer + offset, (uint32_t)length, course->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = length ? 1 : 0 }, *bad;
	must(!ibv_post_recv(course->qp, &wr, &bad), "a receive");
}

int post(struct course *course, enum ibv_wr_opcode opcode, size_t length)
{
	struct ibv_sge sge = { (uintptr_t)course->buffer, (uint32_t)length, course->mr->lkey };
	struct ibv_send_wr wr = { .opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1 };
	struct ibv_send_wr *bad;
	wr.wr.rdma.remote_addr = course->peer.addr;
	wr.wr.rdma.rkey = course->peer.rkey;
	return ibv_post_send(course->qp, &wr, &bad);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	verdicts = open(argv[1], O_WRONLY | O_APPEND | O_CLOEXEC);
	int fds[2];
	if (verdicts < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
		return 3;
	setvbuf(stdout, NULL, _IOLBF, 0);
	pid_t before = getpid();
	pid_t child = fork();
	if (child < 0)
		return 3;
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, "peer");
		if (getppid() != before)
			_exit(4);
		close(fds[0]);
		peer(fds[1]);
		fflush(NULL);
		exit(failed);
	}
	other = child;
	/* So that the report can say which of the two it speaks of. */
	dprintf(verdicts, "=%d %d\n", (int)before, (int)child);
	close(fds[1]);
	learner(fds[0]);
	close(fds[0]);
	/* The peer's report is written when it ends. */
	int status = 1;
	waitpid(child, &status, 0);
	other = 0;
	end();
	/* So that rnic says what its NIC saw. */
	return failed || status;
}
