/* The port's counters in sysfs: opened once and read again and again, as monitors and perftest do, they move. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"

enum { MESSAGES = 20, LENGTH = 4000 };

/* Exported, but in a private header. */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

static const char *folder;

static int open_counter(const char *name)
{
	char path[5000];
	struct stat st;
	snprintf(path, sizeof(path), "%s/ports/1/%s", folder, name);
	char *real = realpath(path, NULL); /* what perftest asks first */
	CHECK(real && !strcmp(real, path) && !lstat(real, &st) && S_ISREG(st.st_mode));
	int fd = open(real, O_RDONLY);
	CHECK(fd >= 0);
	free(real);
	return fd;
}

static uint64_t read_again(int fd)
{
	char text[64] = "";
	CHECK(lseek(fd, 0, SEEK_SET) == 0);
	ssize_t length = read(fd, text, sizeof(text) - 1);
	CHECK(length > 0 && text[length - 1] == '\n');
	char *end;
	uint64_t value = strtoull(text, &end, 10);
	CHECK(end > text && *end == '\n');
	return value;
}

int main(void)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd);
	folder = context->device->ibdev_path;
	struct side a = make_side(pd, NULL), b = make_side(pd, NULL);
	to_rts(a.qp, b.qp->qp_num);
	to_rts(b.qp, a.qp->qp_num);
	int data = open_counter("counters/port_xmit_data"), packets = open_counter("counters/port_rcv_packets");
	int no_buffer = open_counter("hw_counters/out_of_buffer"), errors = open_counter("counters/symbol_error");
	uint64_t data_before = read_again(data), packets_before = read_again(packets);

	for (int i = 0; i < MESSAGES; i++) {
		struct ibv_sge sge = { (uintptr_t)a.buffer, LENGTH, a.mr->lkey };
		struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED, .wr.rdma = { (uintptr_t)b.buffer, b.mr->rkey } }, *bad;
		CHECK(!ibv_post_send(a.qp, &wr, &bad));
		expect_success(a.cq, 0, IBV_WC_RDMA_WRITE);
	}
	/* Both sides are in this process. Data is counted in words of four bytes, headers included. */
	CHECK(read_again(data) - data_before >= MESSAGES * LENGTH / 4);
	/* A packet for each path MTU begun; in memory there is none, and one packet takes it all. */
	int wire = !strcmp(getenv("RNIC_HOST_PATH"), "off");
	CHECK(read_again(packets) - packets_before >= MESSAGES * (wire ? LENGTH / 1024 + 1 : 1));
	CHECK(read_again(no_buffer) == 0 && read_again(errors) == 0);

	/* A message without a receive: the receiver's hardware is out of buffers. */
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	CHECK(!ibv_post_send(a.qp, &wr, &bad));
	struct ibv_wc wc;
	while (!read_again(no_buffer))
		CHECK(!ibv_poll_cq(a.cq, 1, &wc));
	CHECK(!post_recv(&b, 1, 0, 1));
	expect_success(a.cq, 0, IBV_WC_SEND);

	/* By libibverbs, by fopen, and what is not there. */
	char text[64], path[5000];
	CHECK(ibv_read_sysfs_file(folder, "ports/1/hw_counters/out_of_buffer", text, sizeof(text)) > 0);
	CHECK(strtoull(text, NULL, 10) == read_again(no_buffer));
	snprintf(path, sizeof(path), "%s/ports/1/hw_counters/out_of_buffer", folder);
	FILE *file = fopen(path, "r");
	unsigned long long value;
	CHECK(file && fscanf(file, "%llu", &value) == 1 && value == read_again(no_buffer) && !fclose(file));
	snprintf(path, sizeof(path), "%s/ports/1/hw_counters/no_such_counter", folder);
	CHECK(open(path, O_RDONLY) == -1 && errno == ENOENT);

	/* Read-only, for root as well, like everything in sysfs: by name, and by the descriptor of an open counter. */
	snprintf(path, sizeof(path), "%s/ports/1/counters/port_rcv_packets", folder);
	CHECK(open(path, O_RDWR) == -1 && errno == EACCES);
	CHECK(open(path, O_RDONLY | O_TRUNC) == -1 && errno == EACCES);
	CHECK(!fopen(path, "w") && errno == EACCES && !fopen(path, "r+") && errno == EACCES);
	snprintf(path, sizeof(path), "%s/ports/1/state", folder);
	CHECK(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600) == -1 && errno == EACCES);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", packets);
	int again = open(path, O_RDWR);
	if (again >= 0) {
		CHECK(ftruncate(again, 0) == -1 && errno == EPERM);
		CHECK(!close(again));
	}

	/* A forked child counts for itself, and leaves its parent's numbers alone. */
	uint64_t before = read_again(packets);
	pid_t child = fork();
	if (!child) {
		int own = open_counter("counters/port_rcv_packets");
		_exit(read_again(own) != 0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
	CHECK(read_again(packets) >= before);

	destroy_side(&a);
	destroy_side(&b);
	CHECK(read_again(packets) >= before); /* what destroyed queue pairs counted stays counted */
	CHECK(read_again(no_buffer) > 0);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("counters: ok");
	return 0;
}
