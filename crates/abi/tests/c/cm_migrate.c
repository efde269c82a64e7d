/* Ids that move to another channel: with the events that wait, into synchronous operation, and back. */
#include "cm.h"

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
	puts("cm_migrate: ok");
	return 0;
}
