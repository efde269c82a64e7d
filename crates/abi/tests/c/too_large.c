/* What is far larger than the machine's memory is refused at once, and nothing of it is filled; what need not be there is not
 * asked for. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <unistd.h>
#include "pair.h"

enum { ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

static const size_t HUGE_LENGTH = 1ull << 40;

/* Bytes of this process that are in memory. */
static size_t resident(void)
{
	char text[64] = "";
	int fd = open("/proc/self/statm", O_RDONLY);
	CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
	close(fd);
	char *second;
	strtoul(text, &second, 10);
	return strtoul(second, NULL, 10) * 4096;
}

static char *map(size_t length, int rights)
{
	char *at = mmap(NULL, length, rights, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(at != MAP_FAILED);
	return at;
}

int main(void)
{
	struct pair pair = make_pair();
	struct ibv_pd *pd = pair.pd;
	char *wide = map(HUGE_LENGTH, PROT_READ | PROT_WRITE);
	size_t before = resident();
	static const int rights[] = { 0, IBV_ACCESS_LOCAL_WRITE, ALL };
	for (int i = 0; i < 3; i++) {
		errno = 0;
		CHECK(!ibv_reg_mr(pd, wide, HUGE_LENGTH, rights[i]) && errno == ENOMEM);
		errno = 0;
		CHECK(!ibv_reg_mr_iova(pd, wide, HUGE_LENGTH, 0x1000, rights[i]) && errno == ENOMEM);
	}
	/* A file as long, of which nothing is there. */
	int fd = memfd_create("wide", MFD_CLOEXEC);
	CHECK(fd >= 0 && !ftruncate(fd, HUGE_LENGTH));
	char *file = mmap(NULL, HUGE_LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	CHECK(file != MAP_FAILED);
	errno = 0;
	CHECK(!ibv_reg_mr(pd, file, HUGE_LENGTH, ALL) && errno == ENOMEM);
	CHECK(resident() < before + (64 << 20));
	CHECK(!munmap(file, HUGE_LENGTH) && !close(fd));
	/* Registered anew, it is lost, as ibv_rereg_mr(3) has it, and what it was stays the program's. */
	struct ibv_mr *mr = ibv_reg_mr(pd, wide, 4096, ALL);
	CHECK(mr);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, wide, HUGE_LENGTH, 0));
	CHECK(!ibv_dereg_mr(mr));
	CHECK(resident() < before + (64 << 20));

	/* Nothing is mapped there with those rights. */
	char *forbidden = map(HUGE_LENGTH, PROT_NONE);
	errno = 0;
	CHECK(!ibv_reg_mr(pd, forbidden, HUGE_LENGTH, 0) && errno == EFAULT);
	CHECK(!munmap(forbidden, HUGE_LENGTH));
	/* No such range. */
	errno = 0;
	CHECK(!ibv_reg_mr(pd, wide, SIZE_MAX - 4096, 0) && errno == EINVAL);

	/* Pages on demand: those that are used are there. */
	mr = ibv_reg_mr(pd, wide, HUGE_LENGTH, ALL | IBV_ACCESS_ON_DEMAND);
	CHECK(mr && mr->length == HUGE_LENGTH);
	pair.near.buffer[0] = 0x5a;
	EXPECT_REACHED(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)wide + HUGE_LENGTH - 64, 64, mr->rkey);
	CHECK(wide[HUGE_LENGTH - 64] == 0x5a && !ibv_dereg_mr(mr));
	CHECK(resident() < before + (64 << 20));
	/* What is there may be as long as it likes, if the machine has it. */
	mr = ibv_reg_mr(pd, wide, 48 << 20, ALL);
	CHECK(mr && resident() >= before + (48 << 20) && !ibv_dereg_mr(mr));
	CHECK(!munmap(wide, HUGE_LENGTH));

	/* Sizes beyond the device's are no matter of memory. */
	errno = 0;
	CHECK(!ibv_create_cq(pair.context, INT_MAX, NULL, NULL, 0) && errno == EINVAL);
	struct ibv_qp_init_attr init = { .send_cq = pair.near.cq, .recv_cq = pair.near.cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = UINT_MAX, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	errno = 0;
	CHECK(!ibv_create_qp(pd, &init) && errno == EINVAL);
	errno = 0;
	CHECK(!ibv_create_srq(pd, &(struct ibv_srq_init_attr){ .attr = { .max_wr = UINT_MAX, .max_sge = 1 } }) && errno == EINVAL);
	errno = 0;
	CHECK(!ibv_alloc_dm(pair.context, &(struct ibv_alloc_dm_attr){ .length = SIZE_MAX }) && errno == EINVAL);
	destroy_pair(&pair);
	puts("too_large: ok");
	return 0;
}
