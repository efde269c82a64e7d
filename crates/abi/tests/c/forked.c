/* fork(2): the parent's objects go on in the parent, are dead in the child, and the child may open the device anew. */
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"

static void exchange(struct side *a, struct side *b)
{
	struct ibv_send_wr wr = { .wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	CHECK(!post_recv(b, 2, 0, 64));
	CHECK(!ibv_post_send(a->qp, &wr, &bad));
	expect_success(b->cq, 2, IBV_WC_RECV);
	expect_success(a->cq, 1, IBV_WC_SEND);
}

static void work(void)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct side a = make_side(pd, NULL), b = make_side(pd, NULL);
	to_rts(a.qp, b.qp->qp_num);
	to_rts(b.qp, a.qp->qp_num);
	exchange(&a, &b);
	destroy_side(&a);
	destroy_side(&b);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
}

int main(void)
{
	CHECK(!ibv_fork_init());
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct side a = make_side(pd, NULL), b = make_side(pd, NULL);
	to_rts(a.qp, b.qp->qp_num);
	to_rts(b.qp, a.qp->qp_num);
	exchange(&a, &b);
	fflush(NULL);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		struct ibv_send_wr wr = { .wr_id = 1, .opcode = IBV_WR_SEND }, *bad = NULL;
		CHECK(ibv_post_send(a.qp, &wr, &bad) != 0 && bad == &wr);
		struct ibv_wc wc;
		CHECK(ibv_poll_cq(a.cq, 1, &wc) <= 0);
		work();
		exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	exchange(&a, &b);
	destroy_side(&a);
	destroy_side(&b);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("forked: ok");
	return 0;
}
