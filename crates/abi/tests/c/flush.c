/* ibv_wr_flush: earlier writes are visible at the peer, or in a file on its disk, before the flush completes. */
#define _GNU_SOURCE
#include "check.h"
#include <sys/mman.h>
#include <unistd.h>

/* Of headers that may be newer than the installed ones. */
enum { FLUSH_GLOBAL = 1, FLUSH_PERSISTENT = 2, FLUSH_RANGE = 0, FLUSH_MR = 1, WITH_FLUSH = 1 << 11, WR_FLUSH = 14, WC_FLUSH = 8,
	ACCESS_GLOBAL = 1 << 8, ACCESS_PERSISTENT = 1 << 9, PAGES = 16, SIZE = PAGES * 4096 };
#define DEVICE_FLUSH (3ull << 38)

typedef void flush_call(struct ibv_qp_ex *, uint32_t rkey, uint64_t addr, size_t len, uint8_t type, uint8_t level);

/* What newer headers name `qp->wr_flush`: the member behind the last one of older headers. */
static flush_call *flush_of(struct ibv_qp_ex *ex)
{
	return *(flush_call **)((char *)ex + 352);
}

static struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq, enum ibv_qp_type type, uint64_t operations)
{
	struct ibv_qp_init_attr_ex init = { .send_cq = cq, .recv_cq = cq, .qp_type = type,
		.cap = { .max_send_wr = 8, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .pd = pd, .send_ops_flags = operations };
	return ibv_create_qp_ex(pd->context, &init);
}

static void flush(struct ibv_qp_ex *ex, uint64_t wr_id, uint32_t rkey, void *addr, size_t len, int type, int level)
{
	ibv_wr_start(ex);
	ex->wr_id = wr_id;
	ex->wr_flags = IBV_SEND_SIGNALED;
	flush_of(ex)(ex, rkey, (uintptr_t)addr, len, type, level);
}

/* Connects anew what an error has broken; the far side grants `access` beside writing. */
static void reconnect(struct ibv_qp *near, struct side *far, int access)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	CHECK(!ibv_modify_qp(near, &reset, IBV_QP_STATE) && !ibv_modify_qp(far->qp, &reset, IBV_QP_STATE));
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | access };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	CHECK(!ibv_modify_qp(near, &init, mask) && !ibv_modify_qp(far->qp, &init, mask));
	to_rts(near, far->qp->qp_num);
	to_rts(far->qp, near->qp_num);
}

static void write_to(struct ibv_qp *qp, struct side *from, uint32_t rkey, void *to, char byte)
{
	memset(from->buffer, byte, SIZE);
	struct ibv_sge sge = { (uintptr_t)from->buffer, SIZE, from->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { (uintptr_t)to, rkey } }, *bad;
	CHECK(!ibv_post_send(qp, &wr, &bad));
}

/* KiB of a mapping that its file does not have yet. */
static long dirty(void *mapping)
{
	FILE *smaps = fopen("/proc/self/smaps", "r");
	char line[512], start[32];
	snprintf(start, sizeof(start), "%lx-", (unsigned long)mapping);
	long kib, sum = 0;
	int found = 0;
	CHECK(smaps);
	while (fgets(line, sizeof(line), smaps)) {
		if (strchr(line, '-') && strchr(line, '-') < strchr(line, ' '))
			found = !strncmp(line, start, strlen(start));
		if (found && (sscanf(line, "Shared_Dirty: %ld", &kib) == 1 || sscanf(line, "Private_Dirty: %ld", &kib) == 1))
			sum += kib;
	}
	fclose(smaps);
	return sum;
}

static char *map_file(int fd)
{
	char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(map != MAP_FAILED);
	return map;
}

int main(void)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_device_attr_ex device;
	CHECK(pd && !ibv_query_device_ex(context, NULL, &device));
	CHECK((device.device_cap_flags_ex & DEVICE_FLUSH) == DEVICE_FLUSH);
	struct side far = make_side(pd, NULL);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(cq);

	/* Only a reliable service can flush; it is asked for at creation. */
	CHECK(!make_qp(pd, cq, IBV_QPT_UC, WITH_FLUSH) && errno == EOPNOTSUPP);
	struct ibv_qp *other = make_qp(pd, cq, IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE);
	CHECK(other);
	flush(ibv_qp_to_qp_ex(other), 1, 0, NULL, 0, FLUSH_GLOBAL, FLUSH_RANGE);
	CHECK(ibv_wr_complete(ibv_qp_to_qp_ex(other)) == EOPNOTSUPP);
	struct ibv_qp *qp = make_qp(pd, cq, IBV_QPT_RC, WITH_FLUSH | IBV_QP_EX_WITH_RDMA_WRITE);
	CHECK(qp);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	reconnect(qp, &far, ACCESS_GLOBAL | ACCESS_PERSISTENT);

	/* What is written becomes visible before the flush completes: a range, then the region whatever the range. */
	char *memory = aligned_alloc(4096, SIZE);
	memset(memory, 0, SIZE);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | ACCESS_GLOBAL);
	CHECK(mr);
	write_to(qp, &far, mr->rkey, memory, 1);
	flush(ex, 2, mr->rkey, memory + 100, 1000, FLUSH_GLOBAL, FLUSH_RANGE);
	CHECK(!ibv_wr_complete(ex));
	expect_success(cq, 2, WC_FLUSH);
	CHECK(memory[0] == 1 && memory[SIZE - 1] == 1);
	flush(ex, 3, mr->rkey, NULL, 12345678, FLUSH_GLOBAL, FLUSH_MR);
	CHECK(!ibv_wr_complete(ex));
	expect_success(cq, 3, WC_FLUSH);

	/* No type, an unknown type or level, and ibv_post_send, which has no room for them. */
	flush(ex, 4, mr->rkey, memory, 8, 0, FLUSH_RANGE);
	CHECK(ibv_wr_complete(ex) == EINVAL);
	flush(ex, 4, mr->rkey, memory, 8, 4, FLUSH_RANGE);
	CHECK(ibv_wr_complete(ex) == EINVAL);
	flush(ex, 4, mr->rkey, memory, 8, FLUSH_GLOBAL, 2);
	CHECK(ibv_wr_complete(ex) == EINVAL);
	struct ibv_send_wr wr = { .opcode = WR_FLUSH, .wr.rdma = { (uintptr_t)memory, mr->rkey } }, *bad = NULL;
	CHECK(ibv_post_send(qp, &wr, &bad) == EINVAL && bad == &wr);

	/* The region lacks that placement, the range leaves it, the queue pair lacks it: the peer refuses. */
	flush(ex, 5, mr->rkey, memory, 8, FLUSH_PERSISTENT, FLUSH_RANGE);
	CHECK(!ibv_wr_complete(ex) && wait_wc(cq).status == IBV_WC_REM_ACCESS_ERR);
	reconnect(qp, &far, ACCESS_GLOBAL);
	flush(ex, 6, mr->rkey, memory + SIZE - 7, 8, FLUSH_GLOBAL, FLUSH_RANGE);
	CHECK(!ibv_wr_complete(ex) && wait_wc(cq).status == IBV_WC_REM_ACCESS_ERR);
	reconnect(qp, &far, ACCESS_PERSISTENT);
	flush(ex, 7, mr->rkey, memory, 8, FLUSH_GLOBAL, FLUSH_RANGE);
	CHECK(!ibv_wr_complete(ex) && wait_wc(cq).status == IBV_WC_REM_INV_REQ_ERR);
	reconnect(qp, &far, ACCESS_GLOBAL | ACCESS_PERSISTENT);

	/* Memory that ends with the process cannot be persistent. */
	int both = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | ACCESS_GLOBAL | ACCESS_PERSISTENT;
	CHECK(!ibv_reg_mr(pd, memory, SIZE, both) && errno == EINVAL);
	int nameless = memfd_create("nameless", 0);
	CHECK(nameless >= 0 && !ftruncate(nameless, SIZE));
	char *shared = map_file(nameless);
	CHECK(!ibv_reg_mr(pd, shared, SIZE, both) && errno == EINVAL);

	/* A file: written back when the flush completes, wherever writing back shows at all. */
	char name[] = "flush.XXXXXX";
	int fd = mkstemp(name);
	CHECK(fd >= 0 && !ftruncate(fd, SIZE));
	char *file = map_file(fd);
	memset(file, 1, SIZE);
	CHECK(!msync(file, SIZE, MS_SYNC));
	int shows = dirty(file) == 0;
	struct ibv_mr *lasting = ibv_reg_mr(pd, file, SIZE, both);
	CHECK(lasting && !unlink(name));
	for (int level = FLUSH_RANGE; level <= FLUSH_MR; level++) {
		do { /* Again if somebody else had it written back meanwhile. */
			write_to(qp, &far, lasting->rkey, file, 2 + level);
			flush(ex, 8, lasting->rkey, file, level == FLUSH_MR ? 0 : SIZE, FLUSH_GLOBAL, level);
			CHECK(!ibv_wr_complete(ex));
			expect_success(cq, 8, WC_FLUSH);
		} while (dirty(file) == 0);
		flush(ex, 9, lasting->rkey, file, level == FLUSH_MR ? 0 : SIZE, FLUSH_GLOBAL | FLUSH_PERSISTENT, level);
		CHECK(!ibv_wr_complete(ex));
		expect_success(cq, 9, WC_FLUSH);
		CHECK(!shows || dirty(file) == 0);
	}

	CHECK(!ibv_dereg_mr(lasting) && !ibv_dereg_mr(mr) && !ibv_destroy_qp(qp) && !ibv_destroy_qp(other) && !ibv_destroy_cq(cq));
	free(memory);
	destroy_side(&far);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts(shows ? "flush: ok" : "flush: ok (this file system does not show what is written back)");
	return 0;
}
