/* Ids that move to another channel: with the events that wait, into synchronous operation, and back. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include "cm.h"

static struct rdma_cm_id *moving;
static struct rdma_event_channel *target;
static atomic_int moved;

static void *migrate(void *unused)
{
	(void)unused;
	CHECK(!rdma_migrate_id(moving, target));
	atomic_store(&moved, 1);
	return NULL;
}

/* The move waits for the acknowledgement of what was taken from the old channel, and of nothing else: who takes an event from
 * the new one may need a lock of the thread that moves the id before it acknowledges. */
static void waits_for_the_old_channel_alone(void)
{
	struct rdma_event_channel *old = rdma_create_event_channel();
	target = rdma_create_event_channel();
	moving = make_id(old, RDMA_PS_TCP);
	CHECK(!resolve_to(moving, 7471));
	struct rdma_cm_event *of_old = next_event(old, moving, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_resolve_route(moving, TIMEOUT_MS));
	struct pollfd waits = { .fd = old->fd, .events = POLLIN };
	CHECK(poll(&waits, 1, TIMEOUT_MS) == 1);
	pthread_t thread;
	CHECK(!pthread_create(&thread, NULL, migrate, NULL));
	struct rdma_cm_event *of_new = next_event(target, moving, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(!atomic_load(&moved));
	CHECK(!rdma_ack_cm_event(of_old));
	for (time_t end = time(NULL) + 60; !atomic_load(&moved);)
		CHECK(time(NULL) < end);
	CHECK(!pthread_join(thread, NULL) && moving->channel == target);
	CHECK(!rdma_ack_cm_event(of_new) && !rdma_destroy_id(moving));
	rdma_destroy_event_channel(old);
	rdma_destroy_event_channel(target);
}

int main(void)
{
	struct connection c = make_connection();
	struct rdma_event_channel *other = rdma_create_event_channel();
	CHECK(!rdma_disconnect(c.client));
	struct pollfd waits = { .fd = c.passive->fd, .events = POLLIN };
	CHECK(poll(&waits, 1, TIMEOUT_MS) == 1);
	CHECK(!rdma_migrate_id(c.server, other) && c.server->channel == other);
	expect_none(c.passive);
	waits.fd = other->fd;
	CHECK(poll(&waits, 1, 0) == 1);
	/* From now on its calls wait; this one for the event that has come already. */
	CHECK(!rdma_migrate_id(c.server, NULL) && c.server->channel != other);
	expect_none(other);
	CHECK(!rdma_disconnect(c.server) && c.server->event->event == RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_migrate_id(c.server, c.passive) && c.server->channel == c.passive && !c.server->event);
	CHECK(rdma_migrate_id(NULL, other) == -1 && errno == EINVAL);
	/* The client goes where it may have the event of its own. */
	CHECK(!rdma_migrate_id(c.client, other));
	expect(other, c.client, RDMA_CM_EVENT_DISCONNECTED);
	drop_connection(&c);
	rdma_destroy_event_channel(other);
	waits_for_the_old_channel_alone();
	puts("cm_migrate: ok");
	return 0;
}
