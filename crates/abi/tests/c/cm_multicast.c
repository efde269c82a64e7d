/* Groups: joined to receive, joined to send only, left again. */
#include "cm.h"

enum { GRH = 40, SIZE = 64 };

static struct sockaddr_in group(void)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = inet_addr("239.1.2.3") };
}

static struct rdma_cm_id *member(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_UDP);
	CHECK(!bind_to(id, 0) && id->verbs);
	make_qp(id);
	return id;
}

/* Joins, and tells how to reach the group. */
static struct rdma_ud_param join(struct rdma_cm_id *id, int send_only, void *context)
{
	struct sockaddr_in addr = group();
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, .addr = (struct sockaddr *)&addr };
	CHECK(!(send_only ? rdma_join_multicast_ex(id, &attr, context)
			  : rdma_join_multicast(id, (struct sockaddr *)&addr, context)));
	struct rdma_cm_event *event = next_event(id->channel, id, RDMA_CM_EVENT_MULTICAST_JOIN);
	struct rdma_ud_param found = event->param.ud;
	CHECK(!event->status && found.private_data == context && found.qp_num == 0xffffff);
	CHECK(found.qkey == RDMA_UDP_QKEY && found.ah_attr.is_global && found.ah_attr.grh.dgid.raw[12] == 239);
	CHECK(!rdma_ack_cm_event(event));
	return found;
}

/* Whose calls wait: what joining left in the id does not keep it from leaving. */
static void without_channel(void)
{
	struct rdma_cm_id *id = NULL;
	struct sockaddr_in addr = group(), other = group();
	other.sin_addr.s_addr = inet_addr("239.1.2.4");
	CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP) && !bind_to(id, 0));
	make_qp(id);
	CHECK(!rdma_join_multicast(id, (struct sockaddr *)&other, &other));
	CHECK(!rdma_join_multicast(id, (struct sockaddr *)&addr, &addr));
	/* The event is the second group's. */
	CHECK(!rdma_leave_multicast(id, (struct sockaddr *)&other));
	CHECK(id->event && id->event->event == RDMA_CM_EVENT_MULTICAST_JOIN);
	CHECK(id->event->param.ud.private_data == &addr);
	CHECK(!rdma_leave_multicast(id, (struct sockaddr *)&addr) && !id->event);
	drop_id(id);
}

int main(void)
{
	without_channel();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *sender = member(channel), *receiver = member(channel);
	join(receiver, 0, receiver);
	struct rdma_ud_param to = join(sender, 1, sender);

	struct ibv_ah *ah = ibv_create_ah(sender->pd, &to.ah_attr);
	static char sent[SIZE] = "to whom it may concern", received[GRH + SIZE];
	struct ibv_mr *source = rdma_reg_msgs(sender, sent, sizeof sent);
	struct ibv_mr *sink = rdma_reg_msgs(receiver, received, sizeof received);
	CHECK(ah && source && sink && !rdma_post_recv(receiver, NULL, received, sizeof received, sink));
	CHECK(!rdma_post_ud_send(sender, NULL, sent, sizeof sent, source, 0, ah, to.qp_num));
	struct ibv_wc wc;
	CHECK(rdma_get_send_comp(sender, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(rdma_get_recv_comp(receiver, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(wc.src_qp == sender->qp->qp_num && !memcmp(received + GRH, sent, sizeof sent));

	struct sockaddr_in addr = group(), other = group();
	other.sin_addr.s_addr = inet_addr("239.1.2.4");
	CHECK(rdma_leave_multicast(receiver, (struct sockaddr *)&other) == -1 && errno == EADDRNOTAVAIL);
	CHECK(!rdma_leave_multicast(receiver, (struct sockaddr *)&addr));
	CHECK(!rdma_leave_multicast(sender, (struct sockaddr *)&addr));
	CHECK(rdma_leave_multicast(sender, (struct sockaddr *)&addr) == -1 && errno == EADDRNOTAVAIL);
	struct rdma_cm_join_mc_attr_ex attr = { .comp_mask = 4, .addr = (struct sockaddr *)&addr };
	CHECK(rdma_join_multicast_ex(sender, &attr, NULL) == -1 && errno == ENOTSUP);
	attr.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS;
	CHECK(rdma_join_multicast_ex(sender, &attr, NULL) == -1 && errno == EINVAL);

	CHECK(!ibv_destroy_ah(ah) && !rdma_dereg_mr(source) && !rdma_dereg_mr(sink));
	drop_id(sender);
	drop_id(receiver);
	rdma_destroy_event_channel(channel);
	puts("cm_multicast: ok");
	return 0;
}
