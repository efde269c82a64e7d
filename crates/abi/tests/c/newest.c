/* What rdma-core's newest release has and the headers of an older one do not declare: found by name and version, with
 * structures as that release has them. Buffers of the library, and registration by one structure. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include "check.h"

struct ibv_buf;

enum { OF_IOVA = 1, OF_ADDR = 2, OF_FD = 4, OF_OFFSET = 8, OF_DMAH = 16, OF_BUF = 32 };
/* IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC */
enum { ALLOW_UNPROTECTED = 4 };

/* struct ibv_mr_init_attr */
struct init_attr {
	size_t length;
	int access;
	uint64_t comp_mask, iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah;
	struct ibv_buf *buf;
};

static void *(*alloc_buf)(struct ibv_pd *, size_t, struct ibv_buf **);
static void (*free_buf)(struct ibv_buf *);
static struct ibv_mr *(*reg_buf_mr)(struct ibv_pd *, struct ibv_buf *, void *, size_t, int);
static int (*export_buf)(struct ibv_buf *);
static struct ibv_mr *(*reg_mr_ex)(struct ibv_pd *, struct init_attr *);

static void *symbol(const char *name, const char *version)
{
	void *found = dlvsym(RTLD_DEFAULT, name, version);
	CHECK(found);
	return found;
}

static struct side pair[2];

/* The region is what it says: a peer writes to all of it, by that key and at that address. */
static void reached(struct ibv_mr *mr, uint64_t va, char *memory, uint32_t length)
{
	memset(pair[0].buffer, 0x5a, length);
	memset(memory, 0, length);
	struct ibv_sge sge = { (uintptr_t)pair[0].buffer, length, pair[0].mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 3, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge,
		.num_sge = 1, .wr.rdma = { va, mr->rkey } }, *bad;
	CHECK(!ibv_post_send(pair[0].qp, &wr, &bad));
	expect_success(pair[0].cq, 3, IBV_WC_RDMA_WRITE);
	CHECK(memory[0] == 0x5a && memory[length - 1] == 0x5a);
}

#define REFUSED(call, number)                        \
	do {                                         \
		errno = 0;                           \
		CHECK(!(call) && errno == (number)); \
	} while (0)

static void buffers(struct ibv_pd *pd, struct ibv_pd *other)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_buf *buf = NULL;
	char *memory = alloc_buf(pd, 10000, &buf);
	CHECK(memory && buf && !((uintptr_t)memory % 4096));
	struct ibv_mr *whole = reg_buf_mr(pd, buf, memory, 10000, access), *part = reg_buf_mr(pd, buf, memory + 100, 64, access);
	CHECK(whole && part && whole->addr == memory && whole->length == 10000 && whole->pd == pd);
	reached(whole, (uintptr_t)memory, memory, 10000);
	reached(part, (uintptr_t)memory + 100, memory + 100, 64);
	CHECK(!ibv_dereg_mr(whole) && !ibv_dereg_mr(part));

	/* Another domain's; outside of it, by whatever wraps around. */
	REFUSED(reg_buf_mr(other, buf, memory, 64, access), EINVAL);
	REFUSED(reg_buf_mr(pd, buf, memory, 10001, access), EINVAL);
	REFUSED(reg_buf_mr(pd, buf, memory + 9999, 2, access), EINVAL);
	REFUSED(reg_buf_mr(pd, buf, memory - 1, 1, access), EINVAL);
	REFUSED(reg_buf_mr(pd, buf, memory + 1, SIZE_MAX, access), EINVAL);
	REFUSED(reg_buf_mr(pd, NULL, memory, 64, access), EINVAL);
	errno = 0;
	CHECK(export_buf(buf) == -1 && errno == ENODATA);

	/* The same by the structure, with an address of its own for peers. */
	struct init_attr attr = { .length = 4096, .access = access, .comp_mask = OF_BUF | OF_ADDR | OF_IOVA, .iova = 0x10000,
		.addr = memory, .buf = buf };
	whole = reg_mr_ex(pd, &attr);
	CHECK(whole && attr.comp_mask == (OF_BUF | OF_ADDR | OF_IOVA));
	reached(whole, 0x10000, memory, 4096);
	CHECK(!ibv_dereg_mr(whole));
	attr.comp_mask = OF_BUF;
	REFUSED(reg_mr_ex(pd, &attr), EINVAL);
	attr.comp_mask = OF_BUF | OF_ADDR | OF_FD;
	REFUSED(reg_mr_ex(pd, &attr), EINVAL);
	attr.comp_mask = OF_BUF | OF_ADDR | OF_OFFSET;
	REFUSED(reg_mr_ex(pd, &attr), EINVAL);
	free_buf(buf);

	REFUSED(alloc_buf(pd, SIZE_MAX / 2, &buf), ENOMEM);
	REFUSED(alloc_buf(NULL, 1, &buf), EINVAL);
	CHECK(alloc_buf(pd, 0, &buf) && buf);
	free_buf(buf);
}

static void one_structure(struct ibv_pd *pd)
{
	char *memory = aligned_alloc(4096, 4096);
	CHECK(memory);
	struct init_attr attr = { .length = 4096, .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
		.comp_mask = OF_ADDR, .addr = memory, .iova = 0x999, .fd = -1 };
	struct ibv_mr *mr = reg_mr_ex(pd, &attr);
	CHECK(mr && mr->addr == memory && mr->length == 4096 && mr->context == pd->context);
	reached(mr, (uintptr_t)memory, memory, 4096);
	CHECK(!ibv_dereg_mr(mr));

	/* Neither memory nor descriptor, both, half a descriptor; not a dmabuf; what nobody knows. */
	static const struct {
		uint64_t mask;
		int number;
	} wrong[] = { { 0, EINVAL }, { OF_IOVA, EINVAL }, { OF_ADDR | OF_OFFSET, EINVAL }, { OF_ADDR | OF_FD, EINVAL },
		{ OF_FD, EINVAL }, { OF_FD | OF_OFFSET, EINVAL }, { OF_FD | OF_IOVA, EINVAL },
		{ OF_FD | OF_OFFSET | OF_IOVA, EBADF }, { OF_ADDR | OF_DMAH, EOPNOTSUPP }, { OF_ADDR | 64, EOPNOTSUPP },
		{ OF_ADDR | 1ull << 40, EOPNOTSUPP } };
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		attr.comp_mask = wrong[i].mask;
		REFUSED(reg_mr_ex(pd, &attr), wrong[i].number);
	}
	attr.comp_mask = OF_ADDR;
	attr.access = IBV_ACCESS_REMOTE_WRITE;
	REFUSED(reg_mr_ex(pd, &attr), EINVAL);
	/* What may be left out, is. */
	attr.access = IBV_ACCESS_LOCAL_WRITE | 1 << 20;
	CHECK((mr = reg_mr_ex(pd, &attr)) && !ibv_dereg_mr(mr));
	REFUSED(reg_mr_ex(pd, NULL), EINVAL);
	REFUSED(reg_mr_ex(NULL, &attr), EINVAL);
	free(memory);
}

int main(void)
{
	alloc_buf = symbol("ibv_alloc_buf", "IBVERBS_1.17");
	free_buf = symbol("ibv_free_buf", "IBVERBS_1.17");
	reg_buf_mr = symbol("ibv_reg_buf_mr", "IBVERBS_1.17");
	export_buf = symbol("ibv_export_buf_dmabuf_fd", "IBVERBS_1.18");
	reg_mr_ex = symbol("ibv_reg_mr_ex", "IBVERBS_1.15");
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context), *other = ibv_alloc_pd(context);
	CHECK(pd && other);
	pair[0] = make_side(pd, NULL);
	pair[1] = make_side(pd, NULL);
	to_rts(pair[0].qp, pair[1].qp->qp_num);
	to_rts(pair[1].qp, pair[0].qp->qp_num);
	buffers(pd, other);
	one_structure(pd);
	/* A device without bounce buffers takes the flag, and ordinary memory. */
	struct ibv_parent_domain_init_attr attr = { .pd = pd, .comp_mask = ALLOW_UNPROTECTED };
	struct ibv_pd *parent_domain = ibv_alloc_parent_domain(context, &attr);
	CHECK(parent_domain);
	buffers(parent_domain, pd);
	CHECK(!ibv_dealloc_pd(parent_domain));
	attr.comp_mask = ALLOW_UNPROTECTED << 1;
	REFUSED(ibv_alloc_parent_domain(context, &attr), EINVAL);
	destroy_side(&pair[0]);
	destroy_side(&pair[1]);
	CHECK(!ibv_dealloc_pd(other) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("newest: ok");
	return 0;
}
