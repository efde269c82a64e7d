/* A forked child has nothing to do with its parent's ids, and may have its own. */
#include <sys/wait.h>
#include <unistd.h>
#include "cm.h"

static void exchange_and_end(void)
{
	struct connection c = make_connection();
	send_message(c.client, c.server);
	CHECK(!rdma_disconnect(c.client));
	expect(c.passive, c.server, RDMA_CM_EVENT_DISCONNECTED);
	drop_connection(&c);
}

static int in_child(struct connection *parents)
{
	struct rdma_cm_event *event;
	errno = 0;
	CHECK(rdma_get_cm_event(parents->passive, &event) == -1 && errno);
	CHECK(rdma_disconnect(parents->client) == -1 && errno);
	CHECK(rdma_listen(parents->listener, 1) == -1 && errno);
	/* Leaves them alone. */
	CHECK(!rdma_destroy_id(parents->client) && !rdma_destroy_id(parents->listener));
	rdma_destroy_event_channel(parents->active);
	exchange_and_end();
	return 0;
}

int main(void)
{
	struct connection c = make_connection();
	for (int i = 0; i < 3; i++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0)
			exit(in_child(&c));
		send_message(c.client, c.server);
		int status;
		CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
		send_message(c.server, c.client);
	}
	CHECK(!rdma_disconnect(c.server));
	expect(c.active, c.client, RDMA_CM_EVENT_DISCONNECTED);
	drop_connection(&c);
	puts("cm_fork: ok");
	return 0;
}
