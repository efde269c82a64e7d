/* ibv_import_*: a child owns a domain, a region and device memory; the parent, which was sent the child's cmd_fd, uses
 * them. */
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "pair.h"

/* What the child has, and what the parent asks of it. */
struct objects { uint32_t pid, pd, mr, key, dm, second, elsewhere; uint64_t address; };
enum command { PEEK, BUSY, REREGISTER, DEREGISTER, FREE, QUIT };
struct question { enum command command; uint32_t offset; };
struct answer { char bytes[64]; };

static void send_objects(int socket, const struct objects *objects, int fd)
{
	union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control = { { 0 } };
	struct iovec iov = { (void *)objects, sizeof *objects };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
		.msg_controllen = sizeof control };
	struct cmsghdr *c = CMSG_FIRSTHDR(&message);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	CHECK(sendmsg(socket, &message, 0) == sizeof *objects);
}

static int receive_objects(int socket, struct objects *objects)
{
	union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control;
	struct iovec iov = { objects, sizeof *objects };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
		.msg_controllen = sizeof control };
	CHECK(recvmsg(socket, &message, 0) == sizeof *objects);
	struct cmsghdr *c = CMSG_FIRSTHDR(&message);
	CHECK(c && c->cmsg_type == SCM_RIGHTS);
	int fd;
	memcpy(&fd, CMSG_DATA(c), sizeof fd);
	return fd;
}

static void own(int socket)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	char *buffer = aligned_alloc(4096, BUFFER);
	memset(buffer, 0x11, BUFFER);
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, BUFFER, access);
	struct ibv_mr *second = ibv_reg_mr(pd, aligned_alloc(4096, 4096), 4096, access);
	struct ibv_alloc_dm_attr dm_attr = { .length = 64 };
	struct ibv_dm *dm = ibv_alloc_dm(context, &dm_attr);
	/* That of another context, whose cmd_fd the parent is not sent. */
	struct ibv_dm *elsewhere = ibv_alloc_dm(open_device(), &dm_attr);
	uint32_t word = 77;
	CHECK(pd && mr && second && dm && elsewhere && !ibv_memcpy_to_dm(dm, 8, &word, 4));
	struct objects objects = { getpid(), pd->handle, mr->handle, mr->lkey, dm->handle, second->handle,
		elsewhere->handle, (uintptr_t)buffer };
	send_objects(socket, &objects, context->cmd_fd);
	struct question q;
	while (read(socket, &q, sizeof q) == sizeof q && q.command != QUIT) {
		struct answer a = { { 0 } };
		switch (q.command) {
		case PEEK:
			memcpy(a.bytes, buffer + q.offset, sizeof a.bytes);
			break;
		case BUSY:
			CHECK(ibv_free_dm(dm) == EBUSY);
			CHECK(!ibv_memcpy_from_dm(&word, dm, 16, 4));
			memcpy(a.bytes, &word, 4);
			break;
		case REREGISTER:
			CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, access));
			break;
		case DEREGISTER:
			CHECK(!ibv_dereg_mr(mr) && !ibv_dereg_mr(second));
			CHECK(ibv_dealloc_pd(pd) == EBUSY);
			break;
		case FREE:
			CHECK(!ibv_free_dm(dm) && !ibv_dealloc_pd(pd));
			break;
		case QUIT:
			break;
		}
		CHECK(write(socket, &a, sizeof a) == sizeof a);
	}
	_exit(0);
}

static int child;

static struct answer ask(enum command command, uint32_t offset)
{
	struct question q = { command, offset };
	struct answer a;
	CHECK(write(child, &q, sizeof q) == sizeof q && read(child, &a, sizeof a) == sizeof a);
	return a;
}

/* Starts a child; what it has, and its descriptor. */
static struct objects start(int *fd)
{
	int sockets[2];
	CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets));
	if (!fork()) {
		close(sockets[0]);
		own(sockets[1]);
	}
	close(sockets[1]);
	child = sockets[0];
	struct objects objects;
	*fd = receive_objects(child, &objects);
	return objects;
}

int main(void)
{
	int fd, status;
	struct objects theirs = start(&fd);
	/* The far side of this pair is made anew in the imported domain. */
	struct pair pair = make_pair();
	struct ibv_context *context = ibv_import_device(fd);
	CHECK(context && context->cmd_fd == fd);
	CHECK(!ibv_import_pd(context, theirs.pd + 1000) && errno == ENOENT);
	struct ibv_pd *pd = ibv_import_pd(context, theirs.pd);
	CHECK(pd && pd->context == context && pd->handle == theirs.pd);
	CHECK(!ibv_import_mr(pd, theirs.mr ^ 1) && errno == ENOENT);
	struct ibv_mr *mr = ibv_import_mr(pd, theirs.mr);
	CHECK(mr && mr->lkey == theirs.key && mr->rkey == theirs.key && mr->length == BUFFER && !mr->addr);
	CHECK(ibv_dereg_mr(mr) == EINVAL);
	struct side far = make_side(pd, NULL);
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	CHECK(!ibv_modify_qp(pair.near.qp, &reset, IBV_QP_STATE));
	to_init(pair.near.qp);
	to_rts(pair.near.qp, far.qp->qp_num);
	to_rts(far.qp, pair.near.qp->qp_num);

	/* A peer writes to and reads from the child's memory. */
	struct ibv_sge here = { (uintptr_t)pair.near.buffer, 100000, pair.near.mr->lkey };
	memset(pair.near.buffer, 0x42, BUFFER);
	CHECK(do_one(&pair.near, IBV_WR_RDMA_WRITE, here, theirs.address + 4, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(ask(PEEK, 0).bytes[3] == 0x11 && ask(PEEK, 0).bytes[4] == 0x42 && ask(PEEK, 99990).bytes[13] == 0x42 &&
		ask(PEEK, 99990).bytes[14] == 0x11);
	CHECK(do_one(&pair.near, IBV_WR_RDMA_READ, here, theirs.address + 50000, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(pair.near.buffer[50003] == 0x42 && pair.near.buffer[50004] == 0x11);
	/* Local work requests name it as well: a message goes out of it, and one into it. */
	struct ibv_sge there = { theirs.address + 49968, 64, mr->lkey };
	CHECK(!post_recv(&pair.near, 5, 0, 64));
	CHECK(do_one(&far, IBV_WR_SEND, there, 0, 0) == IBV_WC_SUCCESS);
	expect_success(pair.near.cq, 5, IBV_WC_RECV);
	CHECK(pair.near.buffer[0] == 0x42);
	struct ibv_recv_wr receive = { .wr_id = 6, .sg_list = &there, .num_sge = 1 }, *bad;
	memset(pair.near.buffer, 0x55, 64);
	here.length = 64;
	CHECK(!ibv_post_recv(far.qp, &receive, &bad));
	CHECK(do_one(&pair.near, IBV_WR_SEND, here, 0, 0) == IBV_WC_SUCCESS);
	expect_success(far.cq, 6, IBV_WC_RECV);
	CHECK(ask(PEEK, 49968).bytes[63] == 0x55);

	/* Device memory; it stays as long as somebody uses it. */
	CHECK(!ibv_import_dm(context, theirs.dm + 1000) && errno == ENOENT);
	CHECK(!ibv_import_dm(context, theirs.elsewhere) && errno == ENOENT);
	struct ibv_dm *dm = ibv_import_dm(context, theirs.dm);
	uint32_t word = 0;
	CHECK(dm && !ibv_memcpy_from_dm(&word, dm, 8, 4) && word == 77);
	word = 78;
	CHECK(!ibv_memcpy_to_dm(dm, 16, &word, 4) && ibv_memcpy_to_dm(dm, 64, &word, 4) == EFAULT);
	word = 0;
	memcpy(&word, ask(BUSY, 0).bytes, 4);
	CHECK(word == 78);

	/* Nobody executes atomics in another process. */
	here.length = 8;
	CHECK(do_one(&pair.near, IBV_WR_ATOMIC_FETCH_AND_ADD, here, theirs.address, mr->rkey) == IBV_WC_REM_ACCESS_ERR);
	struct ibv_qp *qps[2] = { pair.near.qp, far.qp };
	for (int i = 0; i < 2; i++) {
		CHECK(!ibv_modify_qp(qps[i], &reset, IBV_QP_STATE));
		to_init(qps[i]);
	}
	to_rts(pair.near.qp, far.qp->qp_num);
	to_rts(far.qp, pair.near.qp->qp_num);

	/* What the child deregisters is out of reach when ibv_dereg_mr returns. */
	CHECK(do_one(&pair.near, IBV_WR_RDMA_WRITE, here, theirs.address, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(ask(PEEK, 0).bytes[0] == 0x55);
	ask(DEREGISTER, 0);
	memset(pair.near.buffer, 0x66, 64);
	CHECK(do_one(&pair.near, IBV_WR_RDMA_WRITE, here, theirs.address, mr->rkey) == IBV_WC_REM_ACCESS_ERR);
	CHECK(ask(PEEK, 0).bytes[0] == 0x55);
	CHECK(!ibv_import_mr(pd, theirs.mr) && errno == ENOENT);
	ibv_unimport_mr(mr);
	destroy_side(&far);
	ibv_unimport_dm(dm);
	ibv_unimport_pd(pd);
	ask(FREE, 0);
	CHECK(!ibv_close_device(context) && fcntl(fd, F_GETFD) < 0);
	struct question quit = { QUIT, 0 };
	CHECK(write(child, &quit, sizeof quit) == sizeof quit);
	CHECK(waitpid(theirs.pid, &status, 0) == (pid_t)theirs.pid && status == 0);

	/* Killed while it is imported: its memory is gone, nobody else's is touched. */
	theirs = start(&fd);
	int again = dup(fd);
	context = ibv_import_device(fd);
	pd = ibv_import_pd(context, theirs.pd);
	mr = ibv_import_mr(pd, theirs.mr);
	CHECK(mr);
	far = make_side(pd, NULL);
	CHECK(!ibv_modify_qp(pair.near.qp, &reset, IBV_QP_STATE));
	to_init(pair.near.qp);
	to_rts(pair.near.qp, far.qp->qp_num);
	to_rts(far.qp, pair.near.qp->qp_num);
	CHECK(do_one(&pair.near, IBV_WR_RDMA_WRITE, here, theirs.address, mr->rkey) == IBV_WC_SUCCESS);

	/* What is registered anew is another region: the import of before stays closed, whatever is imported after it. */
	ask(REREGISTER, 0);
	CHECK(!ibv_import_mr(pd, theirs.mr) && errno == EBUSY);
	struct ibv_mr *second = ibv_import_mr(pd, theirs.second);
	CHECK(second);
	CHECK(do_one(&pair.near, IBV_WR_RDMA_WRITE, here, theirs.address, mr->rkey) == IBV_WC_REM_ACCESS_ERR);
	ibv_unimport_mr(mr);
	mr = ibv_import_mr(pd, theirs.mr);
	CHECK(mr);
	qps[1] = far.qp;
	for (int i = 0; i < 2; i++) {
		CHECK(!ibv_modify_qp(qps[i], &reset, IBV_QP_STATE));
		to_init(qps[i]);
	}
	to_rts(pair.near.qp, far.qp->qp_num);
	to_rts(far.qp, pair.near.qp->qp_num);
	CHECK(do_one(&pair.near, IBV_WR_RDMA_WRITE, here, theirs.address, mr->rkey) == IBV_WC_SUCCESS);

	CHECK(!kill(theirs.pid, SIGKILL));
	CHECK(waitpid(theirs.pid, &status, 0) == (pid_t)theirs.pid);
	CHECK(do_one(&pair.near, IBV_WR_RDMA_WRITE, here, theirs.address, mr->rkey) == IBV_WC_REM_ACCESS_ERR);
	CHECK(!ibv_import_pd(context, theirs.pd) && errno == ENODEV);
	CHECK(!ibv_import_device(again) && errno == ENODEV);
	ibv_unimport_mr(mr);
	ibv_unimport_mr(second);
	destroy_side(&far);
	ibv_unimport_pd(pd);
	CHECK(!ibv_close_device(context));
	destroy_pair(&pair);
	puts("import_processes: ok");
	return 0;
}
