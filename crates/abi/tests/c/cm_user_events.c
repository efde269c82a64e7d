/* Events that a program raises itself, and names that are found by event: functions that came with rdma-core 60 and that
 * older headers do not declare. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include "cm.h"

#define ADDRINFO_RESOLVED ((enum rdma_cm_event_type)16)
#define USER ((enum rdma_cm_event_type)18)

static int (*write_event)(struct rdma_cm_id *, enum rdma_cm_event_type, int, uint64_t);
static int (*resolve_name)(struct rdma_cm_id *, const char *, const char *, const struct rdma_addrinfo *);
static int (*query_name)(struct rdma_cm_id *, struct rdma_addrinfo **);

static void *find(const char *name)
{
	void *function = dlvsym(RTLD_DEFAULT, name, "RDMACM_1.4");
	CHECK(function);
	return function;
}

static void is_the_answer(struct rdma_cm_id *id)
{
	struct rdma_addrinfo *info = NULL;
	CHECK(!query_name(id, &info) && info);
	struct sockaddr_in *addr = (struct sockaddr_in *)info->ai_dst_addr;
	CHECK(addr->sin_family == AF_INET && addr->sin_port == htons(7471));
	CHECK(addr->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
	rdma_freeaddrinfo(info);
	CHECK(query_name(id, &info) == -1 && errno == ENOENT);
}

int main(void)
{
	*(void **)&write_event = find("rdma_write_cm_event");
	*(void **)&resolve_name = find("rdma_resolve_addrinfo");
	*(void **)&query_name = find("rdma_query_addrinfo");
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	CHECK(!write_event(id, USER, -5, 0x1122334455667788));
	struct rdma_cm_event *event = next_event(channel, id, USER);
	uint64_t argument;
	memcpy(&argument, &event->param, sizeof argument);
	CHECK(event->status == -5 && argument == 0x1122334455667788 && !rdma_ack_cm_event(event));
	/* The others are not the program's to raise. */
	CHECK(write_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, 0) == -1 && errno == EINVAL);
	expect_none(channel);

	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_NUMERICHOST }, *none;
	CHECK(query_name(id, &none) == -1 && errno == ENOENT);
	CHECK(!resolve_name(id, "127.0.0.1", "7471", &hints));
	CHECK(resolve_name(id, "127.0.0.1", "7471", &hints) == -1 && errno == EBUSY);
	expect(channel, id, ADDRINFO_RESOLVED);
	is_the_answer(id);
	CHECK(resolve_name(id, "no address", "7471", &hints) == -1 && errno == ENOENT);
	/* An answer that nobody asks for ends with its id. */
	CHECK(!resolve_name(id, "127.0.0.1", "7471", &hints) && !rdma_destroy_id(id));
	expect_none(channel);
	rdma_destroy_event_channel(channel);

	CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) && !resolve_name(id, "127.0.0.1", "7471", &hints));
	CHECK(id->event->event == ADDRINFO_RESOLVED);
	is_the_answer(id);
	CHECK(!rdma_destroy_id(id));
	puts("cm_user_events: ok");
	return 0;
}
