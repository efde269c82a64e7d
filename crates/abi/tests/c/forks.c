/* Children of every kind: the parent's objects go on in the parent, under traffic, whatever the child does and however it
 * was made. A child that goes on with the parent's context and domain makes objects of its own. */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"

extern char **environ;

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct side left, right;

static void connect_sides(struct ibv_pd *owner, struct side *a, struct side *b)
{
	*a = make_side(owner, NULL);
	*b = make_side(owner, NULL);
	to_rts(a->qp, b->qp->qp_num);
	to_rts(b->qp, a->qp->qp_num);
}

static void exchange(struct side *a, struct side *b)
{
	struct ibv_sge sge = { (uintptr_t)a->buffer, 4096, a->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge,
		.num_sge = 1 }, *bad;
	static unsigned char round;
	memset(a->buffer, ++round, 4096);
	CHECK(!post_recv(b, 2, 4096, 4096));
	CHECK(!ibv_post_send(a->qp, &wr, &bad));
	expect_success(b->cq, 2, IBV_WC_RECV);
	expect_success(a->cq, 1, IBV_WC_SEND);
	CHECK(!memcmp(b->buffer + 4096, a->buffer, 4096));
}

/* A device of the child's own. */
static void own_device(void)
{
	struct ibv_context *own = open_device();
	struct ibv_pd *domain = ibv_alloc_pd(own);
	struct side a, b;
	connect_sides(domain, &a, &b);
	for (int i = 0; i < 10; i++)
		exchange(&a, &b);
	destroy_side(&a);
	destroy_side(&b);
	CHECK(!ibv_dealloc_pd(domain) && !ibv_close_device(own));
}

/* The parent's context and domain are names, which the child may go on with: what it makes of them is its own. */
static void goes_on(void)
{
	struct side a, b;
	connect_sides(pd, &a, &b);
	CHECK(a.qp->context == context && a.qp->pd == pd);
	for (int i = 0; i < 3; i++)
		exchange(&a, &b);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	destroy_side(&a);

	/* A domain of a domain, another domain, and what hangs on the context alone. */
	struct ibv_parent_domain_init_attr attr = { .pd = pd };
	struct ibv_pd *parent_domain = ibv_alloc_parent_domain(context, &attr), *other = ibv_alloc_pd(context);
	struct ibv_td *td = ibv_alloc_td(context, &(struct ibv_td_init_attr){ 0 });
	struct ibv_dm *memory = ibv_alloc_dm(context, &(struct ibv_alloc_dm_attr){ .length = 64 });
	struct ibv_mr *mr = ibv_reg_dm_mr(parent_domain, memory, 0, 64, IBV_ACCESS_ZERO_BASED);
	CHECK(parent_domain && other && td && memory && mr && other->handle != pd->handle);
	CHECK(!ibv_dereg_mr(mr) && !ibv_free_dm(memory) && !ibv_dealloc_td(td));
	CHECK(!ibv_dealloc_pd(parent_domain) && !ibv_dealloc_pd(other));

	/* An event of the child's own queue pair, and nobody else's. */
	struct ibv_async_event event;
	struct ibv_qp_attr sqd = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	CHECK(!ibv_modify_qp(b.qp, &sqd, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
	CHECK(!ibv_get_async_event(context, &event));
	CHECK(event.event_type == IBV_EVENT_SQ_DRAINED && event.element.qp == b.qp);
	ibv_ack_async_event(&event);
	destroy_side(&b);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
}

/* What the parent made does nothing in the child, and its destruction harms nobody. */
static void dead_objects(void)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad = NULL;
	struct ibv_recv_wr recv = { 0 }, *bad_recv = NULL;
	struct ibv_wc wc;
	CHECK(ibv_post_send(left.qp, &wr, &bad) && bad == &wr);
	CHECK(ibv_post_recv(left.qp, &recv, &bad_recv) && bad_recv == &recv);
	CHECK(ibv_poll_cq(left.cq, 1, &wc) <= 0);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	CHECK(ibv_modify_qp(left.qp, &attr, IBV_QP_STATE));
	/* Nor do new objects stand on it, but for contexts and domains. */
	struct ibv_qp_init_attr init = { .send_cq = left.cq, .recv_cq = left.cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	CHECK(!ibv_create_qp(pd, &init) && errno == ENODEV);
	struct ibv_qp_init_attr unused;
	CHECK(ibv_query_qp(left.qp, &attr, IBV_QP_STATE, &unused) == ENODEV);
	CHECK(ibv_rereg_mr(left.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) && errno == ENODEV);
	ibv_destroy_qp(left.qp);
	ibv_destroy_cq(left.cq);
	ibv_dereg_mr(left.mr);
	ibv_dealloc_pd(pd);
	ibv_close_device(context);
}

static void child_exits(void)
{
	dead_objects();
	exit(0);
}

/* Whatever of the parent's it destroys before, and after. */
static void child_goes_on(void)
{
	ibv_destroy_qp(left.qp);
	ibv_destroy_cq(left.cq);
	goes_on();
	ibv_dereg_mr(left.mr);
	exit(0);
}

/* Children of children that go on. */
static void grandchild_goes_on(void)
{
	struct side a, b;
	connect_sides(pd, &a, &b);
	exchange(&a, &b);
	fflush(NULL);
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad = NULL;
		CHECK(ibv_post_send(a.qp, &wr, &bad) == ENODEV);
		goes_on();
		exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && !status);
	exchange(&a, &b);
	destroy_side(&a);
	destroy_side(&b);
	goes_on();
	exit(0);
}

/* All threads of the child come at once. */
static void *makes_a_region(void *nothing)
{
	char buffer[64];
	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, sizeof buffer, 0);
	CHECK(mr && !ibv_dereg_mr(mr));
	return nothing;
}

static void threads_go_on(void)
{
	pthread_t threads[8];
	for (int i = 0; i < 8; i++)
		CHECK(!pthread_create(&threads[i], NULL, makes_a_region, NULL));
	for (int i = 0; i < 8; i++)
		CHECK(!pthread_join(threads[i], NULL));
	goes_on();
	exit(0);
}

/* A program that opens the device and then becomes a daemon: what had opened it is gone. */
static void daemon_goes_on(void)
{
	int pipes[2];
	char told = 0;
	CHECK(!pipe(pipes));
	fflush(NULL);
	pid_t launcher = fork();
	CHECK(launcher >= 0);
	if (!launcher) {
		struct ibv_context *own = open_device();
		context = own;
		pd = ibv_alloc_pd(own);
		CHECK(pd && !daemon(1, 1));
		goes_on();
		CHECK(write(pipes[1], "d", 1) == 1);
		_exit(0);
	}
	close(pipes[1]);
	int status;
	CHECK(waitpid(launcher, &status, 0) == launcher && !status);
	CHECK(read(pipes[0], &told, 1) == 1 && told == 'd');
	close(pipes[0]);
}

static void child_leaves(void)
{
	_exit(0);
}

static void child_opens(void)
{
	own_device();
	exit(0);
}

static void child_opens_and_leaves(void)
{
	own_device();
	open_device();
	_exit(0);
}

static void grandchild(void)
{
	dead_objects();
	own_device();
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child)
		child_opens();
	int status;
	CHECK(waitpid(child, &status, 0) == child && !status);
	exit(0);
}

/* No lock that another thread of the parent had is left taken in the child. */
static void child_makes_the_same(void)
{
	struct ibv_context *own = open_device();
	struct ibv_pd *domain = ibv_alloc_pd(own);
	struct ibv_dm *memory = ibv_alloc_dm(own, &(struct ibv_alloc_dm_attr){ .length = 64 });
	CHECK(domain && memory && !ibv_free_dm(memory) && !ibv_dealloc_pd(domain) && !ibv_close_device(own));
	_exit(0);
}

static void child_is_killed(void)
{
	struct side a, b;
	struct ibv_context *own = open_device();
	connect_sides(ibv_alloc_pd(own), &a, &b);
	raise(SIGKILL);
}

static void child_of_fork(void (*run)(void), int expected)
{
	fflush(NULL);
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child)
		run();
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == expected);
}

/* Without the C library's knowledge: no fork handler runs. */
static void child_of_clone(void)
{
	fflush(NULL);
	pid_t child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	CHECK(child >= 0);
	if (!child) {
		struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad = NULL;
		struct ibv_wc wc;
		CHECK(ibv_post_send(left.qp, &wr, &bad) && bad == &wr);
		CHECK(ibv_poll_cq(left.cq, 1, &wc) <= 0);
		own_device();
		goes_on();
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void child_of_vfork(void)
{
#ifdef SANITIZED
	/* A program without the runtime does not start with a library that needs it. */
	CHECK(!unsetenv("LD_PRELOAD"));
#endif
	char *argv[] = { "true", NULL };
	pid_t child = vfork();
	CHECK(child >= 0);
	if (!child) {
		execvp("true", argv);
		_exit(1);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(!posix_spawnp(&child, "true", NULL, NULL, argv, environ));
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(!system("exit 0"));
}

static atomic_int stop;

/* Traffic of the parent's that never rests while the children come and go. */
static void *traffic(void *sides)
{
	struct side *pair = sides;
	long rounds = 0;
	while (!atomic_load(&stop)) {
		struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .num_sge = 1 }, *bad;
		struct ibv_sge sge = { (uintptr_t)pair[0].buffer, 65536, pair[0].mr->lkey };
		wr.sg_list = &sge;
		wr.wr.rdma.remote_addr = (uintptr_t)pair[1].buffer;
		wr.wr.rdma.rkey = pair[1].mr->rkey;
		memset(pair[0].buffer, (int)rounds, 65536);
		CHECK(!ibv_post_send(pair[0].qp, &wr, &bad));
		expect_success(pair[0].cq, 0, IBV_WC_RDMA_WRITE);
		CHECK(!memcmp(pair[0].buffer, pair[1].buffer, 65536));
		rounds++;
	}
	return (void *)rounds;
}

/* Domains, device memory and contexts that come and go. */
static void *churn(void *nothing)
{
	while (!atomic_load(&stop))
		for (int i = 0; i < 200; i++) {
			CHECK(!ibv_dealloc_pd(ibv_alloc_pd(context)));
			CHECK(!ibv_free_dm(ibv_alloc_dm(context, &(struct ibv_alloc_dm_attr){ .length = 64 })));
			if (i % 20 == 0)
				CHECK(!ibv_close_device(open_device()));
		}
	return nothing;
}

int main(void)
{
	CHECK(!ibv_fork_init());
	context = open_device();
	pd = ibv_alloc_pd(context);
	connect_sides(pd, &left, &right);
	exchange(&left, &right);
	child_of_clone();
	exchange(&left, &right);

	struct side pair[2];
	connect_sides(pd, &pair[0], &pair[1]);
	pthread_t thread;
	CHECK(!pthread_create(&thread, NULL, churn, NULL));
	for (int i = 0; i < 40; i++)
		child_of_fork(child_makes_the_same, 0);
	atomic_store(&stop, 1);
	CHECK(!pthread_join(thread, NULL));
	atomic_store(&stop, 0);

	CHECK(!pthread_create(&thread, NULL, traffic, pair));
	child_of_fork(child_exits, 0);
	exchange(&left, &right);
	child_of_fork(child_leaves, 0);
	child_of_fork(child_opens, 0);
	child_of_fork(child_goes_on, 0);
	exchange(&left, &right);
	child_of_fork(threads_go_on, 0);
	child_of_fork(grandchild_goes_on, 0);
	daemon_goes_on();
	exchange(&left, &right);
	child_of_fork(child_opens_and_leaves, 0);
	child_of_fork(grandchild, 0);
	child_of_fork(child_is_killed, SIGKILL);
	child_of_vfork();
	exchange(&left, &right);
	for (int i = 0; i < 20; i++)
		child_of_fork(i % 2 ? child_exits : child_leaves, 0);
	atomic_store(&stop, 1);
	void *rounds;
	CHECK(!pthread_join(thread, &rounds) && rounds);
	exchange(&left, &right);
	destroy_side(&pair[0]);
	destroy_side(&pair[1]);
	destroy_side(&left);
	destroy_side(&right);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("forks: ok");
	return 0;
}
