/* Clients of several threads come and go; at the end there are no more descriptors and threads than after the first. */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include "cm.h"

enum { CLIENTS = 4, ROUNDS = 50 };

static uint16_t port;
static atomic_int served;

static int entries(const char *folder)
{
	DIR *dir = opendir(folder);
	CHECK(dir);
	int count = 0;
	while (readdir(dir))
		count++;
	CHECK(!closedir(dir));
	return count;
}

/* Connects, sends a message, and disconnects; every call waits. */
static void one_round(void)
{
	struct rdma_cm_id *id;
	CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	CHECK(!resolve_to(id, port) && !rdma_resolve_route(id, TIMEOUT_MS));
	make_qp(id);
	CHECK(!rdma_connect(id, NULL));
	char message[8] = "message";
	struct ibv_mr *mr = rdma_reg_msgs(id, message, sizeof message);
	struct ibv_wc wc;
	CHECK(mr && !rdma_post_send(id, NULL, message, sizeof message, mr, 0));
	CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(!rdma_disconnect(id) && id->event->event == RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_dereg_mr(mr));
	drop_id(id);
}

static void *client(void *context)
{
	for (int i = 0; i < ROUNDS; i++)
		one_round();
	return context;
}

struct guest {
	char message[8];
	struct ibv_mr *mr;
};

/* Serves them all, until the last has gone. */
static void *serve(void *context)
{
	struct rdma_event_channel *channel = context;
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .rnr_retry_count = 7 };
	while (atomic_load(&served) < 1 + CLIENTS * ROUNDS) {
		struct rdma_cm_event *event;
		CHECK(!rdma_get_cm_event(channel, &event));
		struct rdma_cm_id *id = event->id;
		enum rdma_cm_event_type type = event->event;
		CHECK(!rdma_ack_cm_event(event));
		struct guest *guest = id->context;
		struct ibv_wc wc;
		switch (type) {
		case RDMA_CM_EVENT_CONNECT_REQUEST:
			id->context = guest = calloc(1, sizeof *guest);
			make_qp(id);
			guest->mr = rdma_reg_msgs(id, guest->message, sizeof guest->message);
			CHECK(guest->mr && !rdma_post_recv(id, NULL, guest->message, sizeof guest->message, guest->mr));
			CHECK(!rdma_accept(id, &param));
			break;
		case RDMA_CM_EVENT_DISCONNECTED:
			CHECK(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
			CHECK(!memcmp(guest->message, "message", 8));
			CHECK(!rdma_disconnect(id) && !rdma_dereg_mr(guest->mr));
			drop_id(id);
			free(guest);
			atomic_fetch_add(&served, 1);
			break;
		default:
			CHECK(type == RDMA_CM_EVENT_ESTABLISHED || type == RDMA_CM_EVENT_TIMEWAIT_EXIT);
		}
	}
	return NULL;
}

int main(void)
{
	/* With more engines, descriptors and threads depend on how many ids were there at a time. */
	CHECK(!setenv("RNIC_SHARDS", "1", 1));
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = make_id(channel, RDMA_PS_TCP);
	CHECK(!bind_to(listener, 0) && !rdma_listen(listener, CLIENTS));
	port = ntohs(rdma_get_src_port(listener));
	pthread_t server, clients[CLIENTS];
	CHECK(!pthread_create(&server, NULL, serve, channel));
	one_round();
	while (atomic_load(&served) < 1)
		sched_yield();
	int descriptors = entries("/proc/self/fd"), threads = entries("/proc/self/task");
	for (int i = 0; i < CLIENTS; i++)
		CHECK(!pthread_create(&clients[i], NULL, client, NULL));
	for (int i = 0; i < CLIENTS; i++)
		CHECK(!pthread_join(clients[i], NULL));
	CHECK(!pthread_join(server, NULL));
	CHECK(entries("/proc/self/fd") == descriptors);
	CHECK(entries("/proc/self/task") == threads - 1);
	CHECK(!rdma_destroy_id(listener));
	rdma_destroy_event_channel(channel);
	puts("cm_many: ok");
	return 0;
}
