/* What is wrong is said: -1 and errno from each call, in every state, for every argument that means nothing. */
#include "cm.h"

#define REFUSED(call, wanted)                                                        \
	do {                                                                            \
		errno = 0;                                                                   \
		int result = (call);                                                         \
		if (result != -1 || errno != (wanted))                                       \
			fprintf(stderr, "gives %d, errno %d, not %s\n", result, errno, #wanted); \
		CHECK(result == -1 && errno == (wanted) && #call);                           \
	} while (0)

static void nothing_is_no_id(void)
{
	struct rdma_cm_id *none = NULL, *id = NULL;
	struct rdma_conn_param param = { 0 };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 1 } };
	struct sockaddr_in addr = loopback(1);
	struct sockaddr *sa = (struct sockaddr *)&addr;
	int mask;
	REFUSED(rdma_destroy_id(none), EINVAL);
	REFUSED(rdma_bind_addr(none, sa), EINVAL);
	REFUSED(rdma_resolve_addr(none, NULL, sa, 1), EINVAL);
	REFUSED(rdma_resolve_route(none, 1), EINVAL);
	REFUSED(rdma_listen(none, 1), EINVAL);
	REFUSED(rdma_get_request(none, &id), EINVAL);
	REFUSED(rdma_connect(none, &param), EINVAL);
	REFUSED(rdma_accept(none, &param), EINVAL);
	REFUSED(rdma_establish(none), EINVAL);
	REFUSED(rdma_reject(none, NULL, 0), EINVAL);
	REFUSED(rdma_disconnect(none), EINVAL);
	REFUSED(rdma_notify(none, IBV_EVENT_COMM_EST), EINVAL);
	REFUSED(rdma_init_qp_attr(none, &attr, &mask), EINVAL);
	REFUSED(rdma_create_qp(none, NULL, &init), EINVAL);
	REFUSED(rdma_create_srq(none, NULL, &srq), EINVAL);
	REFUSED(rdma_join_multicast(none, sa, NULL), EINVAL);
	REFUSED(rdma_leave_multicast(none, sa), EINVAL);
	REFUSED(rdma_set_option(none, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &mask, 1), EINVAL);
	REFUSED(rdma_ack_cm_event(NULL), EINVAL);
	REFUSED(rdma_get_cm_event(NULL, NULL), EINVAL);
	CHECK(!rdma_get_src_port(none) && !rdma_get_dst_port(none));
	rdma_destroy_qp(none);
	rdma_destroy_srq(none);
	rdma_destroy_event_channel(NULL);
	rdma_free_devices(NULL);
}

static void too_early(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP), *other;
	struct rdma_conn_param param = { .qp_num = 17 };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct sockaddr_in addr = loopback(1);
	int mask;
	REFUSED(rdma_resolve_route(id, 1), EINVAL);
	REFUSED(rdma_connect(id, &param), EINVAL);
	REFUSED(rdma_accept(id, &param), EINVAL);
	REFUSED(rdma_accept(id, NULL), EINVAL);
	REFUSED(rdma_establish(id), EINVAL);
	REFUSED(rdma_reject(id, NULL, 0), EINVAL);
	REFUSED(rdma_disconnect(id), EINVAL);
	REFUSED(rdma_create_qp(id, NULL, &init), EINVAL);
	REFUSED(rdma_init_qp_attr(id, &attr, &mask), EINVAL);
	REFUSED(rdma_notify(id, IBV_EVENT_COMM_EST), EINVAL);
	REFUSED(rdma_notify(id, IBV_EVENT_CQ_ERR), EINVAL);
	REFUSED(rdma_get_request(id, &other), EINVAL);
	REFUSED(rdma_join_multicast(id, (struct sockaddr *)&addr, NULL), EINVAL);

	/* On the device, but with nobody to talk to. */
	CHECK(!bind_to(id, 0));
	REFUSED(rdma_connect(id, &param), EINVAL);
	REFUSED(rdma_resolve_route(id, 1), EINVAL);
	REFUSED(rdma_disconnect(id), EINVAL);
	attr.qp_state = IBV_QPS_RTR;
	REFUSED(rdma_init_qp_attr(id, &attr, &mask), EINVAL);
	attr.qp_state = 99;
	REFUSED(rdma_init_qp_attr(id, &attr, &mask), EINVAL);
	attr.qp_state = IBV_QPS_INIT;
	CHECK(!rdma_init_qp_attr(id, &attr, &mask) && (mask & IBV_QP_PORT) && attr.port_num == 1);
	make_qp(id);
	init.cap.max_send_wr = 1;
	REFUSED(rdma_create_qp(id, NULL, &init), EINVAL);
	REFUSED(rdma_establish(id), EINVAL);
	drop_id(id);
}

static void wrong_addresses(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct sockaddr_in addr = loopback(1);
	REFUSED(rdma_bind_addr(id, NULL), EINVAL);
	REFUSED(rdma_resolve_addr(id, NULL, NULL, 1), EINVAL);
	addr.sin_family = 27; /* AF_IB */
	REFUSED(rdma_bind_addr(id, (struct sockaddr *)&addr), EINVAL);
	REFUSED(rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, 1), EINVAL);
	/* Not ours. */
	addr = loopback(0);
	addr.sin_addr.s_addr = inet_addr("192.0.2.1");
	errno = 0;
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&addr) == -1 && (errno == ENODEV || errno == EADDRNOTAVAIL));
	CHECK(!rdma_destroy_id(id));
}

static void wrong_options(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	int value = 1;
	uint8_t octet = 0x20;
	REFUSED(rdma_set_option(id, 7, 0, &value, sizeof value), ENOSYS);
	REFUSED(rdma_set_option(id, RDMA_OPTION_ID, 7, &value, sizeof value), ENOSYS);
	REFUSED(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &value, sizeof value), EINVAL);
	REFUSED(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, NULL, 1), EFAULT);
	REFUSED(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &octet, 1), EINVAL);
	REFUSED(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &octet, 1), EINVAL);
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &octet, 1));
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &value, sizeof value));
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &octet, 0) == 0);
	octet = 18;
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &octet, 1));
	CHECK(!rdma_destroy_id(id));
}

/* The device has no options to exchange when it connects, nor did a peer say any. */
static void no_options(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct ibv_ece ece = { .vendor_id = 0x15b3, .options = 1 };
	REFUSED(rdma_set_local_ece(id, &ece), EOPNOTSUPP);
	ece.comp_mask = 1;
	REFUSED(rdma_set_local_ece(id, &ece), EINVAL);
	ece = (struct ibv_ece){ .vendor_id = 0, .options = 1 };
	REFUSED(rdma_set_local_ece(id, &ece), EINVAL);
	REFUSED(rdma_get_remote_ece(id, NULL), EINVAL);
	CHECK(!rdma_get_remote_ece(id, &ece) && !ece.vendor_id && !ece.options && !ece.comp_mask);
	CHECK(!rdma_destroy_id(id));
}

static void too_much(struct rdma_event_channel *channel)
{
	static const char data[255];
	struct rdma_cm_id *listener = make_listener(channel, RDMA_PS_TCP);
	struct rdma_cm_id *id = make_client(channel, RDMA_PS_TCP, ntohs(rdma_get_src_port(listener)));
	make_qp(id);
	struct rdma_conn_param param = { .private_data = data, .private_data_len = 57 };
	REFUSED(rdma_connect(id, &param), EINVAL);
	param.private_data_len = 0;
	param.responder_resources = 254;
	REFUSED(rdma_connect(id, &param), EINVAL);
	param.responder_resources = 0;
	param.initiator_depth = 254;
	REFUSED(rdma_connect(id, &param), EINVAL);
	param.initiator_depth = 0;
	CHECK(!rdma_connect(id, &param));
	REFUSED(rdma_connect(id, &param), EINVAL);
	struct rdma_cm_event *event = next_event(channel, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *server = event->id;
	CHECK(!rdma_ack_cm_event(event));
	make_qp(server);
	param.private_data_len = 197;
	REFUSED(rdma_accept(server, &param), EINVAL);
	drop_id(server);
	event = next_event(channel, id, RDMA_CM_EVENT_REJECTED);
	CHECK(event->status == 28 && !rdma_ack_cm_event(event));
	drop_id(id);
	CHECK(!rdma_destroy_id(listener));
}

int main(void)
{
	nothing_is_no_id();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = NULL;
	REFUSED(rdma_create_id(channel, NULL, NULL, RDMA_PS_TCP), EINVAL);
	REFUSED(rdma_create_id(channel, &id, NULL, 0x0107), EINVAL);
	CHECK(!id);
	too_early(channel);
	wrong_addresses(channel);
	wrong_options(channel);
	no_options(channel);
	too_much(channel);

	/* What was destroyed is no id any more. */
	id = make_id(channel, RDMA_PS_TCP);
	CHECK(!rdma_destroy_id(id));
	REFUSED(rdma_destroy_id(id), EINVAL);
	REFUSED(bind_to(id, 0), EINVAL);

	/* An id whose channel is gone is over; its memory is not. */
	id = make_listener(channel, RDMA_PS_TCP);
	rdma_destroy_event_channel(channel);
	REFUSED(rdma_get_cm_event(channel, NULL), EINVAL);
	REFUSED(rdma_listen(id, 1), EINVAL);
	CHECK(!rdma_destroy_id(id));

	int count = 0;
	struct ibv_context **devices = rdma_get_devices(&count);
	CHECK(devices && count == 1 && devices[0] && !devices[1]);
	CHECK(devices[0]->device && !strcmp(devices[0]->device->name, ibv_get_device_name(devices[0]->device)));
	rdma_free_devices(devices);
	puts("cm_errors: ok");
	return 0;
}
