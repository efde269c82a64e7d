/* An id is not destroyed while an event of it is in somebody's hands, and none comes after it was. */
#include <pthread.h>
#include <stdatomic.h>
#include "cm.h"

static atomic_int acknowledged;

struct held {
	struct rdma_cm_event *event;
	atomic_int *go;
};

/* Gives the event back once it was told to. */
static void *give_back(void *context)
{
	struct held *held = context;
	while (!atomic_load(held->go))
		sched_yield();
	atomic_store(&acknowledged, 1);
	CHECK(!rdma_ack_cm_event(held->event));
	return NULL;
}

int main(void)
{
	struct rdma_event_channel *passive = rdma_create_event_channel(), *active = rdma_create_event_channel();
	struct rdma_cm_id *listener = make_listener(passive, RDMA_PS_TCP);
	struct rdma_cm_id *client = make_client(active, RDMA_PS_TCP, ntohs(rdma_get_src_port(listener)));
	make_qp(client);
	struct rdma_conn_param param = { .retry_count = 7 };
	CHECK(!rdma_connect(client, &param));
	/* A request is an event of the listener. */
	atomic_int go = 0;
	struct held held = { next_event(passive, NULL, RDMA_CM_EVENT_CONNECT_REQUEST), &go };
	struct rdma_cm_id *server = held.event->id;
	CHECK(!rdma_destroy_id(server));
	pthread_t thread;
	CHECK(!pthread_create(&thread, NULL, give_back, &held));
	atomic_store(&go, 1);
	CHECK(!rdma_destroy_id(listener) && atomic_load(&acknowledged));
	CHECK(!pthread_join(thread, NULL));

	/* The rejection waits for nobody any more. */
	struct pollfd waits = { .fd = active->fd, .events = POLLIN };
	CHECK(poll(&waits, 1, TIMEOUT_MS) == 1);
	drop_id(client);
	expect_none(active);
	rdma_destroy_event_channel(active);
	rdma_destroy_event_channel(passive);
	puts("cm_acks: ok");
	return 0;
}
