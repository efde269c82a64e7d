/* RDMA WRITE and READ between processes of one host need no time of the target, and stay within what it allows: at the moment
 * at which ibv_dereg_mr, ibv_rereg_mr, ibv_modify_qp or ibv_destroy_qp return there, nothing is touched any more.
 *
 * The child is the target. With REFUSED in the environment the system does not let the parent reach its memory, and everything
 * must work the same but for what a stopped process does. */
#include <pthread.h>
#include <sys/prctl.h>
#include "pair.h"

/* The far side, as the child says it. */
struct far { uint32_t qpn, rkey, other_rkey; uint64_t address, other; };
enum command { CONNECT, PEEK, DEREGISTER, REGISTER, REREGISTER, TO_ERR, DESTROY, UNTOUCHED, EXEC, QUIT };
struct question { enum command command; uint32_t argument; };
#include "child.h"

static const int REMOTE = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

/* From now on whatever is written is seen. */
static void mark(struct side *side)
{
	memset(side->buffer, 0x55, BUFFER);
}

static int untouched(struct side *side)
{
	for (int i = 0; i < BUFFER; i++)
		if (side->buffer[i] != 0x55)
			return 0;
	return 1;
}

static void target(int socket, int refused)
{
	if (refused)
		CHECK(!prctl(PR_SET_DUMPABLE, 0));
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct side side = make_side(pd, NULL);
	char *other = aligned_alloc(4096, BUFFER);
	memset(other, 0x66, BUFFER);
	/* May only be read. */
	struct ibv_mr *other_mr = ibv_reg_mr(pd, other, BUFFER, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	CHECK(other_mr);
	struct question q;
	while (read(socket, &q, sizeof q) == sizeof q && q.command != QUIT) {
		struct far far = { side.qp ? side.qp->qp_num : 0, side.mr ? side.mr->rkey : 0, other_mr->rkey,
			(uintptr_t)side.buffer, (uintptr_t)other };
		struct ibv_qp_attr err = { .qp_state = IBV_QPS_ERR }, reset = { .qp_state = IBV_QPS_RESET };
		switch (q.command) {
		case CONNECT:
			CHECK(!ibv_modify_qp(side.qp, &reset, IBV_QP_STATE));
			to_init(side.qp);
			to_rts(side.qp, q.argument);
			break;
		case PEEK:
			far.address = (unsigned char)((volatile char *)side.buffer)[q.argument];
			break;
		case DEREGISTER:
			CHECK(!ibv_dereg_mr(side.mr));
			side.mr = NULL;
			mark(&side);
			break;
		case REGISTER:
			side.mr = ibv_reg_mr(pd, side.buffer, BUFFER, REMOTE);
			CHECK(side.mr);
			far.rkey = side.mr->rkey;
			break;
		case REREGISTER:
			/* The key now stands for the other memory. */
			CHECK(!ibv_rereg_mr(side.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, other, BUFFER, 0));
			mark(&side);
			break;
		case TO_ERR:
			CHECK(!ibv_modify_qp(side.qp, &err, IBV_QP_STATE));
			mark(&side);
			break;
		case DESTROY:
			CHECK(!ibv_destroy_qp(side.qp));
			side.qp = NULL;
			mark(&side);
			break;
		case UNTOUCHED:
			far.address = untouched(&side);
			break;
		case EXEC:
			execlp("sleep", "sleep", "1000", (char *)NULL);
			_exit(1);
		case QUIT:
			break;
		}
		CHECK(write(socket, &far, sizeof far) == sizeof far);
	}
	_exit(0);
}

static struct far ask(enum command command, uint32_t argument)
{
	struct question q = { command, argument };
	struct far far;
	CHECK(write(child, &q, sizeof q) == sizeof q && read(child, &far, sizeof far) == sizeof far);
	return far;
}

static struct side near;
static struct far far;

static void connect_to(struct far to)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	CHECK(!ibv_modify_qp(near.qp, &reset, IBV_QP_STATE));
	to_init(near.qp);
	to_rts(near.qp, to.qpn);
}

/* Both ends anew. */
static void mend(void)
{
	struct ibv_wc wc;
	far = ask(CONNECT, near.qp->qp_num);
	connect_to(far);
	while (ibv_poll_cq(near.cq, 1, &wc) > 0)
		;
}

static enum ibv_wc_status do_it(enum ibv_wr_opcode opcode, uint32_t length, uint64_t address, uint32_t rkey)
{
	return do_one(&near, opcode, sge_of(&near, 0, length), address, rkey);
}

/* After the first ones, which show the target that this side knows the keys. */
static void warm_up(void)
{
	for (int i = 0; i < 3; i++) {
		CHECK(do_it(IBV_WR_RDMA_WRITE, 8, far.address, far.rkey) == IBV_WC_SUCCESS);
		CHECK(do_it(IBV_WR_RDMA_READ, 8, far.other, far.other_rkey) == IBV_WC_SUCCESS);
	}
}

/* Writes until it fails, short ones and long ones; gives the status. */
static void *storm(void *out)
{
	static const uint32_t lengths[] = { 1, 8, 100, 5000, 100000, BUFFER };
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	for (unsigned i = 0; status == IBV_WC_SUCCESS; i++) {
		uint32_t length = lengths[i % 6];
		memset(near.buffer, 0x80 | (i & 0x3f), 8);
		status = do_it(IBV_WR_RDMA_WRITE, length, far.address + (BUFFER - length), far.rkey);
	}
	*(enum ibv_wc_status *)out = status;
	return NULL;
}

/* The target takes something away in the middle of it: no byte changes after that. */
static void taken_away(enum command command, enum ibv_wc_status expected)
{
	pthread_t thread;
	enum ibv_wc_status status;
	warm_up();
	CHECK(!pthread_create(&thread, NULL, storm, &status));
	/* It is under way. */
	while (ask(PEEK, BUFFER - 1).address == 0)
		;
	ask(command, 0);
	CHECK(!pthread_join(thread, NULL));
	if (status != expected)
		fprintf(stderr, "%d: %s\n", command, ibv_wc_status_str(status));
	CHECK(status == expected);
	CHECK(ask(UNTOUCHED, 0).address);
}

int main(void)
{
	int refused = getenv("REFUSED") != NULL;
	start(target, refused);
	if (refused)
		give_up_ptrace();
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	near = make_side(pd, NULL);
	mend();

	/* What was written is there, and what is read is that. */
	for (uint32_t length = 1; length <= BUFFER; length = 3 * length + 1) {
		for (uint32_t i = 0; i < length; i++)
			near.buffer[i] = i * 7 + length;
		CHECK(do_it(IBV_WR_RDMA_WRITE, length, far.address + BUFFER - length, far.rkey) == IBV_WC_SUCCESS);
		CHECK(ask(PEEK, BUFFER - 1).address == (unsigned char)((length - 1) * 7 + length));
		memset(near.buffer, 0, length);
		CHECK(do_it(IBV_WR_RDMA_READ, length, far.address + BUFFER - length, far.rkey) == IBV_WC_SUCCESS);
		for (uint32_t i = 0; i < length; i++)
			CHECK(near.buffer[i] == (char)(i * 7 + length));
	}

	/* A target that is stopped, whole as it is, is written to and read from all the same. */
	if (!refused) {
		warm_up();
		CHECK(!kill(pid, SIGSTOP));
		memset(near.buffer, 0x37, BUFFER);
		CHECK(do_it(IBV_WR_RDMA_WRITE, BUFFER, far.address, far.rkey) == IBV_WC_SUCCESS);
		CHECK(do_it(IBV_WR_RDMA_WRITE, 10, far.address, far.rkey) == IBV_WC_SUCCESS);
		CHECK(do_it(IBV_WR_RDMA_READ, BUFFER, far.other, far.other_rkey) == IBV_WC_SUCCESS);
		CHECK(near.buffer[0] == 0x66 && near.buffer[BUFFER - 1] == 0x66);
		CHECK(!kill(pid, SIGCONT));
		CHECK(ask(PEEK, 0).address == 0x37 && ask(PEEK, BUFFER - 1).address == 0x37);
	}

	/* Wrong ones fail as ever. */
	struct { enum ibv_wr_opcode opcode; uint32_t length; int64_t at; int other, key; } wrong[] = {
		{ IBV_WR_RDMA_WRITE, 8, BUFFER - 7, 0, 0 },
		{ IBV_WR_RDMA_WRITE, BUFFER, 1, 0, 0 },
		{ IBV_WR_RDMA_READ, 8, -1, 0, 0 },
		{ IBV_WR_RDMA_WRITE, 8, 0, 0, 1 },
		{ IBV_WR_RDMA_WRITE, 8, 0, 1, 0 },
	};
	for (int i = 0; i < 5; i++) {
		warm_up();
		uint64_t base = wrong[i].other ? far.other : far.address;
		uint32_t key = (wrong[i].other ? far.other_rkey : far.rkey) ^ wrong[i].key;
		CHECK(do_it(wrong[i].opcode, wrong[i].length, base + wrong[i].at, key) == IBV_WC_REM_ACCESS_ERR);
		CHECK(state_of(near.qp) == IBV_QPS_ERR);
		mend();
	}
	struct ibv_sge beyond = sge_of(&near, BUFFER - 4, 8);
	warm_up();
	CHECK(do_one(&near, IBV_WR_RDMA_WRITE, beyond, far.address, far.rkey) == IBV_WC_LOC_PROT_ERR);
	mend();

	/* What is taken away is not touched any more. */
	taken_away(DEREGISTER, IBV_WC_REM_ACCESS_ERR);
	ask(REGISTER, 0);
	mend();
	taken_away(TO_ERR, IBV_WC_RETRY_EXC_ERR);
	mend();
	warm_up();
	taken_away(REREGISTER, IBV_WC_REM_ACCESS_ERR);
	mend();
	/* The key stands for other memory now. */
	CHECK(do_it(IBV_WR_RDMA_WRITE, 8, far.other, far.rkey) == IBV_WC_SUCCESS);
	CHECK(ask(UNTOUCHED, 0).address);
	ask(DEREGISTER, 0);
	ask(REGISTER, 0);
	mend();
	taken_away(DESTROY, IBV_WC_RETRY_EXC_ERR);
	end(0);

	/* A target that is killed, or runs another program, is gone. */
	for (int exec = 0; exec < 2; exec++) {
		start(target, refused);
		mend();
		warm_up();
		if (exec) {
			struct question q = { EXEC, 0 };
			char end_of_file;
			CHECK(write(child, &q, sizeof q) == sizeof q);
			/* Closed by the exec. */
			CHECK(read(child, &end_of_file, 1) == 0);
		} else {
			siginfo_t info;
			CHECK(!kill(pid, SIGKILL) && !waitid(P_PID, pid, &info, WEXITED | WNOWAIT));
		}
		CHECK(do_it(IBV_WR_RDMA_WRITE, 100000, far.address, far.rkey) == IBV_WC_RETRY_EXC_ERR);
		connect_to(far);
		CHECK(do_it(IBV_WR_RDMA_READ, 8, far.address, far.rkey) == IBV_WC_RETRY_EXC_ERR);
		end(SIGKILL);
	}
	destroy_side(&near);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("one_sided: ok");
	return 0;
}
