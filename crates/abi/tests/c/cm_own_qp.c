/* Queue pairs that the program makes and moves itself (UCX does): rdma_init_qp_attr says how, rdma_establish says that it
 * is done. */
#include "cm.h"

static void move_to(struct rdma_cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask;
	CHECK(!rdma_init_qp_attr(id, &attr, &mask) && (mask & IBV_QP_STATE) && attr.qp_state == state);
	CHECK(!ibv_modify_qp(qp, &attr, mask));
}

static struct side own_side(struct rdma_cm_id *id)
{
	struct side side = { .buffer = calloc(1, 64) };
	side.cq = ibv_create_cq(id->verbs, DEPTH, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .send_cq = side.cq, .recv_cq = side.cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	side.qp = ibv_create_qp(id->pd, &init);
	side.mr = ibv_reg_mr(id->pd, side.buffer, 64, IBV_ACCESS_LOCAL_WRITE);
	CHECK(side.cq && side.qp && side.mr);
	return side;
}

int main(void)
{
	struct rdma_event_channel *passive = rdma_create_event_channel(), *active = rdma_create_event_channel();
	struct rdma_cm_id *listener = make_listener(passive, RDMA_PS_TCP);
	struct rdma_cm_id *client = make_client(active, RDMA_PS_TCP, ntohs(rdma_get_src_port(listener)));
	struct side near = own_side(client);

	/* Neither a queue pair nor parameters that name one. */
	CHECK(rdma_connect(client, NULL) == -1 && errno == EINVAL);
	struct rdma_conn_param param = { .qp_num = near.qp->qp_num, .responder_resources = 1, .initiator_depth = 1,
		.retry_count = 7, .rnr_retry_count = 7 };
	CHECK(!rdma_connect(client, &param));
	struct rdma_cm_event *event = next_event(passive, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(event->param.conn.qp_num == near.qp->qp_num);
	struct rdma_cm_id *server = event->id;
	CHECK(!rdma_ack_cm_event(event));

	struct side far = own_side(server);
	move_to(server, far.qp, IBV_QPS_INIT);
	move_to(server, far.qp, IBV_QPS_RTR);
	CHECK(!post_recv(&far, 7, 0, 64));
	move_to(server, far.qp, IBV_QPS_RTS);
	param.qp_num = far.qp->qp_num;
	CHECK(!rdma_accept(server, &param));

	event = next_event(active, client, RDMA_CM_EVENT_CONNECT_RESPONSE);
	CHECK(!event->status && event->param.conn.qp_num == far.qp->qp_num && !rdma_ack_cm_event(event));
	move_to(client, near.qp, IBV_QPS_INIT);
	move_to(client, near.qp, IBV_QPS_RTR);
	move_to(client, near.qp, IBV_QPS_RTS);
	expect_none(passive);
	CHECK(!rdma_establish(client));
	expect(passive, server, RDMA_CM_EVENT_ESTABLISHED);
	/* The one who establishes knows it. */
	expect_none(active);

	struct ibv_sge sge = { (uintptr_t)near.buffer, 64, near.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 8, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge,
		.num_sge = 1 }, *bad;
	CHECK(!ibv_post_send(near.qp, &wr, &bad));
	expect_success(near.cq, 8, IBV_WC_SEND);
	expect_success(far.cq, 7, IBV_WC_RECV);

	CHECK(!rdma_disconnect(server));
	expect(active, client, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_disconnect(client));
	expect(passive, server, RDMA_CM_EVENT_DISCONNECTED);

	struct side *sides[] = { &near, &far };
	for (int i = 0; i < 2; i++) {
		CHECK(!ibv_destroy_qp(sides[i]->qp) && !ibv_destroy_cq(sides[i]->cq) && !ibv_dereg_mr(sides[i]->mr));
		free(sides[i]->buffer);
	}
	struct connection all = { passive, active, listener, server, client };
	drop_connection(&all);
	puts("cm_own_qp: ok");
	return 0;
}
