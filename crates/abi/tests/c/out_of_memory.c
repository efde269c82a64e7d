/* Out of memory is an errno: each kind of object, with each single allocation failing that its making takes, and until a limit
 * on address space is reached. Nothing is left behind of what could not be made, what is there works on, and what is destroyed
 * makes room. The environment's CASE names the part that is to run. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include "cm.h"
#include "shortage.h"

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_comp_channel *channel;
static struct ibv_srq *srq;
static struct ibv_xrcd *xrcd;
static struct ibv_qp *target;
static struct ibv_td *td;
static struct ibv_dm *dm;
static struct rdma_event_channel *events;
static char memory[4 * 4096] __attribute__((aligned(4096)));

static void *make_channel(void) { return ibv_create_comp_channel(context); }
static int end_channel(void *it) { return ibv_destroy_comp_channel(it); }
static void *make_cq(void) { return ibv_create_cq(context, 100, NULL, channel, 0); }
static void *make_deep_cq(void) { return ibv_create_cq(context, 2000, NULL, NULL, 0); }
static int end_cq(void *it) { return ibv_destroy_cq(it); }

static void *make_cq_ex(void)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 100, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP };
	return ibv_create_cq_ex(context, &attr);
}

static void *make_pd(void) { return ibv_alloc_pd(context); }
static int end_pd(void *it) { return ibv_dealloc_pd(it); }
static void *make_td(void) { return ibv_alloc_td(context, &(struct ibv_td_init_attr){ 0 }); }
static int end_td(void *it) { return ibv_dealloc_td(it); }

static void *make_parent(void)
{
	struct ibv_parent_domain_init_attr attr = { .pd = pd, .td = td };
	return ibv_alloc_parent_domain(context, &attr);
}

static void *make_mr(void) { return ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE); }
static void *make_null_mr(void) { return ibv_alloc_null_mr(pd); }
static void *make_dm_mr(void) { return ibv_reg_dm_mr(pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE); }
static int end_mr(void *it) { return ibv_dereg_mr(it); }
static void *make_dm(void) { return ibv_alloc_dm(context, &(struct ibv_alloc_dm_attr){ .length = 64 }); }
static int end_dm(void *it) { return ibv_free_dm(it); }
static void *make_mw(void) { return ibv_alloc_mw(pd, IBV_MW_TYPE_2); }
static int end_mw(void *it) { return ibv_dealloc_mw(it); }

static void *make_ah(void)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh.hop_limit = 64 };
	static int index = -1;
	static union ibv_gid gid;
	if (index < 0)
		index = loopback_gid(context, &gid);
	attr.grh.sgid_index = index;
	attr.grh.dgid = gid;
	return ibv_create_ah(pd, &attr);
}

static int end_ah(void *it) { return ibv_destroy_ah(it); }

static void *make_srq(void)
{
	return ibv_create_srq(pd, &(struct ibv_srq_init_attr){ .attr = { .max_wr = 64, .max_sge = 4 } });
}

static void *make_xrc_srq(void)
{
	struct ibv_srq_init_attr_ex init = { .attr = { .max_wr = 16, .max_sge = 1 }, .srq_type = IBV_SRQT_XRC, .pd = pd,
		.xrcd = xrcd, .cq = cq, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ };
	return ibv_create_srq_ex(context, &init);
}

static int end_srq(void *it) { return ibv_destroy_srq(it); }

static void *make_xrcd(void)
{
	struct ibv_xrcd_init_attr attr = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1,
		.oflags = O_CREAT };
	return ibv_open_xrcd(context, &attr);
}

static int end_xrcd(void *it) { return ibv_close_xrcd(it); }

static void *make_qp_of(enum ibv_qp_type type, struct ibv_srq *shared, uint32_t depth)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .srq = shared, .qp_type = type,
		.cap = { .max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 4, .max_recv_sge = 4 } };
	return ibv_create_qp(pd, &init);
}

static void *make_rc(void) { return make_qp_of(IBV_QPT_RC, NULL, 64); }
static void *make_deep_rc(void) { return make_qp_of(IBV_QPT_RC, NULL, 512); }
static void *make_rc_of_srq(void) { return make_qp_of(IBV_QPT_RC, srq, 16); }
static void *make_uc(void) { return make_qp_of(IBV_QPT_UC, NULL, 64); }
static void *make_ud(void) { return make_qp_of(IBV_QPT_UD, NULL, 64); }
static void *make_initiator(void) { return make_qp_of(IBV_QPT_XRC_SEND, NULL, 64); }

static void *make_extended(void)
{
	struct ibv_qp_init_attr_ex init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .pd = pd,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_SEND };
	return ibv_create_qp_ex(context, &init);
}

static void *make_target(void)
{
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = xrcd };
	return ibv_create_qp_ex(context, &init);
}

static void *open_target(void)
{
	struct ibv_qp_open_attr attr = { .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = target->qp_num, .xrcd = xrcd, .qp_type = IBV_QPT_XRC_RECV };
	return ibv_open_qp(context, &attr);
}

static int end_qp(void *it) { return ibv_destroy_qp(it); }
static void *make_list(void) { return ibv_get_device_list(NULL); }
static int end_list(void *it) { return ibv_free_device_list(it), 0; }

static void *make_context(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *made = list ? ibv_open_device(list[0]) : NULL;
	int error = errno;
	ibv_free_device_list(list);
	errno = error;
	return made;
}

static int end_context(void *it) { return ibv_close_device(it); }
static void *import_pd(void) { return ibv_import_pd(context, pd->handle); }
static int forget_pd(void *it) { return ibv_unimport_pd(it), 0; }
static void *make_events(void) { return rdma_create_event_channel(); }
static int end_events(void *it) { return rdma_destroy_event_channel(it), 0; }

static void *make_id_on(struct rdma_event_channel *on)
{
	struct rdma_cm_id *id = NULL;
	return rdma_create_id(on, &id, NULL, RDMA_PS_TCP) ? NULL : id;
}

static void *make_cm_id(void) { return make_id_on(events); }
static void *make_sync_id(void) { return make_id_on(NULL); }
static int end_id(void *it) { return rdma_destroy_id(it); }

/* Bound, listening, then with a queue pair: made in steps, each of which may be where it fails. */
static void *make_listening(void)
{
	struct rdma_cm_id *id = make_id_on(events);
	if (id && (bind_to(id, 0) || rdma_listen(id, 4))) {
		int error = errno;
		rdma_destroy_id(id);
		errno = error;
		return NULL;
	}
	return id;
}

static void *make_endpoint(void)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP }, *info;
	if (rdma_getaddrinfo("127.0.0.1", NULL, &hints, &info))
		return NULL;
	struct rdma_cm_id *id = NULL;
	int failed = rdma_create_ep(&id, info, NULL, NULL), error = errno;
	rdma_freeaddrinfo(info);
	errno = error;
	return failed ? NULL : id;
}

static int end_endpoint(void *it) { return rdma_destroy_ep(it), 0; }

static void *make_cm_qp(void)
{
	struct rdma_cm_id *id = make_id_on(events);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 } };
	if (id && (bind_to(id, 0) || rdma_create_qp(id, NULL, &init))) {
		int error = errno;
		rdma_destroy_id(id);
		errno = error;
		return NULL;
	}
	return id;
}

static int end_cm_qp(void *it) { return rdma_destroy_qp(it), rdma_destroy_id(it); }

static const struct kind {
	const char *name;
	void *(*make)(void);
	int (*end)(void *it);
} kinds[] = {
	{ "completion channel", make_channel, end_channel }, { "completion queue", make_cq, end_cq },
	{ "deep completion queue", make_deep_cq, end_cq }, { "extended completion queue", make_cq_ex, end_cq },
	{ "protection domain", make_pd, end_pd }, { "thread domain", make_td, end_td },
	{ "parent domain", make_parent, end_pd }, { "region", make_mr, end_mr }, { "null region", make_null_mr, end_mr },
	{ "device memory", make_dm, end_dm }, { "region of device memory", make_dm_mr, end_mr },
	{ "window", make_mw, end_mw }, { "address handle", make_ah, end_ah }, { "shared receive queue", make_srq, end_srq },
	{ "XRC shared receive queue", make_xrc_srq, end_srq }, { "XRC domain", make_xrcd, end_xrcd },
	{ "RC queue pair", make_rc, end_qp }, { "deep RC queue pair", make_deep_rc, end_qp },
	{ "RC queue pair of an SRQ", make_rc_of_srq, end_qp }, { "UC queue pair", make_uc, end_qp },
	{ "UD queue pair", make_ud, end_qp }, { "XRC initiator", make_initiator, end_qp },
	{ "extended queue pair", make_extended, end_qp }, { "XRC target", make_target, end_qp },
	{ "opened XRC target", open_target, end_qp }, { "device list", make_list, end_list },
	{ "context", make_context, end_context }, { "imported domain", import_pd, forget_pd },
	{ "event channel", make_events, end_events }, { "CM id", make_cm_id, end_id },
	{ "synchronous CM id", make_sync_id, end_id }, { "listening CM id", make_listening, end_id },
	{ "endpoint", make_endpoint, end_endpoint }, { "CM id with queue pair", make_cm_qp, end_cm_qp },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void open_all(void)
{
	context = open_device();
	pd = make_pd();
	channel = make_channel();
	cq = ibv_create_cq(context, 100, NULL, NULL, 0);
	td = make_td();
	xrcd = make_xrcd();
	srq = make_srq();
	dm = make_dm();
	target = make_target();
	events = make_events();
	CHECK(pd && channel && cq && td && xrcd && srq && dm && target && events);
	/* Once, so that what is taken once for good is taken. */
	for (int i = 0; i < KINDS; i++) {
		void *it = kinds[i].make();
		if (!it)
			fprintf(stderr, "%s: ", kinds[i].name);
		CHECK(it && !kinds[i].end(it));
	}
}

static void close_all(void)
{
	rdma_destroy_event_channel(events);
	CHECK(!ibv_destroy_qp(target) && !ibv_free_dm(dm) && !ibv_destroy_srq(srq) && !ibv_close_xrcd(xrcd));
	CHECK(!ibv_dealloc_td(td) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel) && !ibv_dealloc_pd(pd));
	/* Nothing is left of what could not be made. */
	CHECK(!ibv_close_device(context));
}

/* What a failure for want of memory, descriptors or threads may say. */
static int is_shortage(int error)
{
	return error == ENOMEM || error == EMFILE || error == EAGAIN || error == ENOBUFS;
}

static int descriptors(void)
{
	int count = 0;
	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/* The n-th allocation of the making fails, or all from the n-th on, for every n. */
static void one_by_one(const struct kind *kind, int for_good)
{
	int open = descriptors();
	unsigned reached = 1, n = 0;
	while (reached) {
		errno = 0;
		fail_from(++n, for_good);
		void *it = kind->make();
		int error = errno;
		reached = end_failing();
		if (!it && !is_shortage(error))
			fprintf(stderr, "%s, allocation %u: errno %d\n", kind->name, n, error);
		CHECK(it || (reached && is_shortage(error)));
		/* What the C library does without is no failure; what is made has its memory. */
		if (it) {
			fail_from(1, 1);
			int ended = kind->end(it);
			end_failing();
			CHECK(!ended);
		}
		CHECK(n < 10000);
	}
	if (descriptors() != open)
		fprintf(stderr, "%s: %d descriptors became %d\n", kind->name, open, descriptors());
	CHECK(descriptors() == open);
	void *it = kind->make();
	CHECK(it && !kind->end(it));
	printf("%s: %u allocations\n", kind->name, n - 1);
}

static size_t address_space(void)
{
	char text[64] = "";
	int fd = open("/proc/self/statm", O_RDONLY);
	CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
	close(fd);
	return strtoul(text, NULL, 10) * 4096;
}

static void limit_address_space(size_t more)
{
	struct rlimit limit;
	CHECK(!getrlimit(RLIMIT_AS, &limit));
	limit.rlim_cur = more ? address_space() + more : limit.rlim_max;
	CHECK(!setrlimit(RLIMIT_AS, &limit));
}

enum { MOST = 1 << 20, AGAIN = 10 };
static void *made[MOST];

static int fill(const struct kind *kind, int from)
{
	errno = 0;
	while (from < MOST && (made[from] = kind->make()))
		from++;
	int error = errno;
	if (from == MOST)
		return from;
	if (!is_shortage(error))
		fprintf(stderr, "%s: errno %d after %d\n", kind->name, error, from);
	CHECK(is_shortage(error));
	return from;
}

/* As many as there is memory for; then again, when some were destroyed. */
static void until_it_fails(const struct kind *kind)
{
	limit_address_space(24 << 20);
	int count = fill(kind, 0);
	CHECK(count > 2 * AGAIN);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 2 * AGAIN; i++)
			CHECK(!kind->end(made[--count]));
		for (int i = 0; i < AGAIN; i++)
			CHECK((made[count] = kind->make()) && ++count);
		count = fill(kind, count);
	}
	printf("%s: %d\n", kind->name, count);
	int first = count;
	while (count)
		CHECK(!kind->end(made[--count]));
	count = fill(kind, 0);
	CHECK(count > first / 2);
	while (count)
		CHECK(!kind->end(made[--count]));
	limit_address_space(0);
}

/* No descriptor is left: those that take one fail, and the others do not. */
static void without_descriptors(void)
{
	struct rlimit limit, few;
	CHECK(!getrlimit(RLIMIT_NOFILE, &limit));
	few = limit;
	int used = open("/dev/null", O_RDONLY);
	close(used);
	for (int i = 0; i < KINDS; i++)
		for (int more = 0; more < 4; more++) {
			int before = descriptors();
			few.rlim_cur = used + more;
			CHECK(!setrlimit(RLIMIT_NOFILE, &few));
			errno = 0;
			void *it = kinds[i].make();
			int error = errno;
			CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
			if (!it && error != EMFILE)
				fprintf(stderr, "%s: errno %d\n", kinds[i].name, error);
			CHECK(it || error == EMFILE);
			CHECK(!it || !kinds[i].end(it));
			CHECK(descriptors() == before);
		}
}

/* Opening fails at each allocation, without threads and without descriptors, and works after that. */
static void opening(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list);
	atomic_store(&no_threads, 1);
	errno = 0;
	CHECK(!ibv_open_device(list[0]) && errno == EAGAIN);
	atomic_store(&no_threads, 0);
	int open = descriptors();
	unsigned reached = 1;
	for (int for_good = 0; for_good < 2; for_good++, reached = 1)
		for (unsigned n = 1; reached; n++) {
			fail_from(n, for_good);
			errno = 0;
			struct ibv_context *it = ibv_open_device(list[0]);
			int error = errno;
			reached = end_failing();
			if (!it && !is_shortage(error))
				fprintf(stderr, "opening, allocation %u: errno %d\n", n, error);
			CHECK(it || (reached && is_shortage(error)));
			CHECK(!it || !ibv_close_device(it));
			if (descriptors() != open)
				fprintf(stderr, "opening, allocation %u: %d descriptors became %d\n", n, open, descriptors());
			CHECK(descriptors() == open);
		}
	struct rlimit limit, few;
	CHECK(!getrlimit(RLIMIT_NOFILE, &limit));
	few = limit;
	struct ibv_context *it = NULL;
	for (few.rlim_cur = 3; !it; few.rlim_cur++) {
		CHECK(!setrlimit(RLIMIT_NOFILE, &few));
		errno = 0;
		it = ibv_open_device(list[0]);
		int error = errno;
		CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
		if (!it && error != EMFILE)
			fprintf(stderr, "opening with %d descriptors: errno %d\n", (int)few.rlim_cur, error);
		CHECK(it || error == EMFILE);
		CHECK(it || descriptors() == open);
	}
	CHECK(!ibv_close_device(it));
	ibv_free_device_list(list);
}

static void in_child(void (*what)(const struct kind *), const struct kind *kind)
{
	fflush(stdout);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		open_all();
		what(kind);
		close_all();
		fflush(stdout);
		_exit(0);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	if (status)
		fprintf(stderr, "%s: status %#x\n", kind->name, status);
	CHECK(!status);
}

static void with_failing_allocations(const struct kind *kind)
{
	for (int i = 0; i < KINDS; i++) {
		if (kind && kind != kinds + i)
			continue;
		one_by_one(kinds + i, 0);
		one_by_one(kinds + i, 1);
	}
}

int main(void)
{
	real_create = dlsym(RTLD_NEXT, "pthread_create");
	CHECK(real_create);
	const char *only = getenv("CASE");
	if (!only || !strcmp(only, "opening"))
		opening();
	if (!only || !strcmp(only, "failing")) {
		open_all();
		with_failing_allocations(NULL);
		without_descriptors();
		close_all();
	}
	if (!only || !strcmp(only, "limit")) {
		const char *name = getenv("KIND");
		for (int i = 0; i < KINDS; i++)
			if (!name || !strcmp(name, kinds[i].name))
				in_child(until_it_fails, kinds + i);
	}
	puts("out_of_memory: ok");
	return 0;
}
