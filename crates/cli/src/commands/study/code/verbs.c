/* The lines of C that set what a question is about. A test compiles them. */
#include <infiniband/verbs.h>

int post(struct ibv_qp *qp, struct ibv_send_wr *wr);
void use(struct ibv_qp_init_attr *init, struct ibv_qp_attr *attr);

void inline_or_not(struct ibv_qp_init_attr *init, struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	// study: inline
	init->cap.max_inline_data = 256; // room in the queue
	wr->send_flags |= IBV_SEND_INLINE; // inline
	wr->send_flags &= ~IBV_SEND_INLINE; // not inline
	// end
	post(qp, wr);
}

void operation(struct ibv_qp *qp, struct ibv_send_wr *wr, uint64_t address, uint32_t rkey)
{
	// study: operation
	wr->opcode = IBV_WR_SEND; // the peer posts a receive
	wr->opcode = IBV_WR_RDMA_WRITE; // or IBV_WR_RDMA_READ, with
	wr->wr.rdma.remote_addr = address;
	wr->wr.rdma.rkey = rkey;
	// end
	post(qp, wr);
}

void polling(struct ibv_comp_channel *channel, struct ibv_cq *cq, struct ibv_wc *wc)
{
	void *context;
	// study: polling
	while (ibv_poll_cq(cq, 1, wc) == 0); // busy

	ibv_req_notify_cq(cq, 0); // event: arm, look once, sleep
	if (ibv_poll_cq(cq, 1, wc) == 0)
		ibv_get_cq_event(channel, &cq, &context);

	int found = 0, rounds = 1000; // adaptive: poll a little, then as event
	while (found == 0 && rounds-- > 0)
		found = ibv_poll_cq(cq, 1, wc);
	// end
}

void signaled(struct ibv_qp_init_attr *init, struct ibv_send_wr *wr, int n, int every)
{
	// study: signaled
	init->sq_sig_all = 0;
	wr->send_flags = n % every == 0 ? IBV_SEND_SIGNALED : 0;
	// end
}

void batch(struct ibv_qp *qp, struct ibv_send_wr *wr, int count)
{
	struct ibv_send_wr *bad;
	// study: batch
	for (int n = 0; n + 1 < count; n++)
		wr[n].next = &wr[n + 1];
	wr[count - 1].next = NULL;
	ibv_post_send(qp, wr, &bad); // one post, one doorbell
	// end
}

void depth(struct ibv_context *context, struct ibv_qp_init_attr *init, int depth)
{
	// study: depth
	init->send_cq = ibv_create_cq(context, depth, NULL, NULL, 0);
	init->cap.max_send_wr = depth;
	// end
}

void mtu(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	// study: mtu
	attr->path_mtu = IBV_MTU_1024;
	ibv_modify_qp(qp, attr, mask | IBV_QP_PATH_MTU); // INIT to RTR
	// end
}

void service(struct ibv_qp_init_attr *init)
{
	// study: service
	init->qp_type = IBV_QPT_RC; // or IBV_QPT_UC, IBV_QPT_UD
	// end
}

void qps(struct ibv_pd *pd, struct ibv_qp_init_attr *init, struct ibv_qp **qp, int count)
{
	// study: qps
	for (int n = 0; n < count; n++)
		qp[n] = ibv_create_qp(pd, init);
	// end
}

void srq(struct ibv_pd *pd, struct ibv_qp_init_attr *init, struct ibv_recv_wr *wr)
{
	struct ibv_recv_wr *bad;
	// study: srq
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 65, .max_sge = 1 } };
	init->srq = ibv_create_srq(pd, &attr);
	ibv_post_srq_recv(init->srq, wr, &bad);
	// end
}

void registration(struct ibv_pd *pd, void *buffer, size_t size, struct ibv_sge *sge)
{
	// study: registration
	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, size, IBV_ACCESS_LOCAL_WRITE);
	sge->lkey = mr->lkey; // once: for all messages
	ibv_dereg_mr(mr); // each: when the message has completed
	// end
}

void throughput(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	struct ibv_send_wr *bad;
	// study: throughput
	sge->length = 1 << 20;
	ibv_post_send(qp, wr, &bad); // and others, before it completes
	// end
}

void atomics(struct ibv_send_wr *wr, uint64_t word, uint32_t rkey, uint64_t old, uint64_t new)
{
	// study: atomics
	wr->opcode = IBV_WR_ATOMIC_FETCH_AND_ADD; // or IBV_WR_ATOMIC_CMP_AND_SWP
	wr->wr.atomic.remote_addr = word;
	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.compare_add = 1; // or the value that is expected: old
	wr->wr.atomic.swap = new;
	// end
	(void)old;
}
