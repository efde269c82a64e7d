/* The extended interfaces: ibv_wr_* for posting, ibv_start_poll and its readers for completions. */
#include <arpa/inet.h>
#include "check.h"

static struct ibv_cq_ex *cq_ex;

/* Between start and end of polling: the next completion. */
static void start_poll(void)
{
	struct ibv_poll_cq_attr attr = { 0 };
	int status;
	do
		status = ibv_start_poll(cq_ex, &attr);
	while (status == ENOENT);
	CHECK(!status);
}

int main(void)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd);
	struct side peer = make_side(pd, NULL);

	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 64, .wc_flags = IBV_WC_EX_WITH_CVLAN };
	CHECK(!ibv_create_cq_ex(context, &cq_attr) && errno == EOPNOTSUPP);
	cq_attr.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
	cq_ex = ibv_create_cq_ex(context, &cq_attr);
	CHECK(cq_ex);
	struct ibv_poll_cq_attr poll_attr = { 0 };
	CHECK(ibv_start_poll(cq_ex, &poll_attr) == ENOENT);

	struct ibv_qp_init_attr_ex init = { .send_cq = ibv_cq_ex_to_cq(cq_ex), .recv_cq = ibv_cq_ex_to_cq(cq_ex),
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 2, .max_recv_sge = 1, .max_inline_data = 32 },
		.qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_TSO };
	CHECK(!ibv_create_qp_ex(context, &init) && errno == EOPNOTSUPP);
	init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE |
		IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
		IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_INV;
	struct ibv_qp *qp = ibv_create_qp_ex(context, &init);
	CHECK(qp);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	CHECK(ex);
	to_init(qp);
	to_rts(qp, peer.qp->qp_num);
	to_rts(peer.qp, qp->qp_num);

	char *memory = aligned_alloc(4096, 8192);
	CHECK(memory);
	memset(memory, 0x5a, 8192);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, 8192, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);

	/* Three operations in one batch; the buffers of inline data are free at once. */
	CHECK(!post_recv(&peer, 21, 4096, 64));
	char small[16] = "inline";
	ibv_wr_start(ex);
	ex->wr_id = 1;
	ex->wr_flags = 0;
	ibv_wr_rdma_write(ex, peer.mr->rkey, (uintptr_t)peer.buffer);
	struct ibv_sge list[2] = { { (uintptr_t)memory, 1000, mr->lkey }, { (uintptr_t)memory + 4000, 24, mr->lkey } };
	ibv_wr_set_sge_list(ex, 2, list);
	ex->wr_id = 2;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_read(ex, peer.mr->rkey, (uintptr_t)peer.buffer + 2000);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory + 6000, 100);
	ex->wr_id = 3;
	ibv_wr_send_imm(ex, htonl(77));
	struct ibv_data_buf parts[2] = { { small, 3 }, { small + 3, 4 } };
	ibv_wr_set_inline_data_list(ex, 2, parts);
	memset(peer.buffer + 2000, 0x33, 100);
	CHECK(!ibv_wr_complete(ex));
	memset(small, 0, sizeof(small));

	start_poll();
	CHECK(cq_ex->status == IBV_WC_SUCCESS && cq_ex->wr_id == 2 && ibv_wc_read_opcode(cq_ex) == IBV_WC_RDMA_READ);
	CHECK(ibv_wc_read_qp_num(cq_ex) == qp->qp_num && ibv_wc_read_completion_ts(cq_ex) > 0);
	uint64_t first = ibv_wc_read_completion_ts(cq_ex);
	ibv_end_poll(cq_ex);
	start_poll();
	CHECK(cq_ex->status == IBV_WC_SUCCESS && cq_ex->wr_id == 3 && ibv_wc_read_opcode(cq_ex) == IBV_WC_SEND);
	CHECK(ibv_wc_read_completion_ts(cq_ex) >= first);
	CHECK(ibv_next_poll(cq_ex) == ENOENT);
	ibv_end_poll(cq_ex);
	CHECK(memory[6000] == 0x33 && memory[6099] == 0x33 && memory[6100] == 0x5a);
	CHECK(peer.buffer[0] == 0x5a && peer.buffer[1023] == 0x5a && peer.buffer[1024] == 0);
	struct ibv_wc wc = wait_wc(peer.cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == 7 && wc.imm_data == htonl(77));
	CHECK(!strcmp(peer.buffer + 4096, "inline"));

	/* A received message with immediate, by the readers. */
	struct ibv_sge sge = { (uintptr_t)memory, 512, mr->lkey };
	struct ibv_recv_wr recv = { .wr_id = 30, .sg_list = &sge, .num_sge = 1 }, *bad_recv;
	CHECK(!ibv_post_recv(qp, &recv, &bad_recv));
	struct ibv_sge from = { (uintptr_t)peer.buffer, 300, peer.mr->lkey };
	struct ibv_send_wr send = { .wr_id = 31, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED, .imm_data = htonl(5) }, *bad_send;
	CHECK(!ibv_post_send(peer.qp, &send, &bad_send));
	start_poll();
	CHECK(cq_ex->status == IBV_WC_SUCCESS && cq_ex->wr_id == 30 && ibv_wc_read_opcode(cq_ex) == IBV_WC_RECV);
	CHECK(ibv_wc_read_byte_len(cq_ex) == 300 && ibv_wc_read_imm_data(cq_ex) == htonl(5));
	CHECK(ibv_wc_read_wc_flags(cq_ex) == IBV_WC_WITH_IMM && ibv_wc_read_src_qp(cq_ex) == peer.qp->qp_num);
	CHECK(!ibv_wc_read_slid(cq_ex) && !ibv_wc_read_sl(cq_ex) && !ibv_wc_read_vendor_err(cq_ex));
	ibv_end_poll(cq_ex);
	expect_success(peer.cq, 31, IBV_WC_SEND);

	/* A batch with an error posts nothing; an aborted one neither. */
	ibv_wr_start(ex);
	ex->wr_id = 40;
	ibv_wr_send(ex);
	ibv_wr_set_inline_data(ex, memory, 4096);
	CHECK(ibv_wr_complete(ex) == ENOMEM);
	ibv_wr_start(ex);
	ex->wr_id = 41;
	ibv_wr_rdma_write(ex, peer.mr->rkey, (uintptr_t)peer.buffer);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 8);
	ibv_wr_abort(ex);
	ibv_wr_start(ex);
	ibv_wr_send_tso(ex, memory, 8, 8);
	CHECK(ibv_wr_complete(ex) == EOPNOTSUPP);
	ibv_wr_start(ex);
	ex->wr_id = 42;
	ibv_wr_atomic_fetch_add(ex, peer.mr->rkey, (uintptr_t)peer.buffer + 8192, 3);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 8);
	CHECK(!ibv_wr_complete(ex));
	start_poll();
	CHECK(cq_ex->status == IBV_WC_SUCCESS && cq_ex->wr_id == 42 && ibv_wc_read_opcode(cq_ex) == IBV_WC_FETCH_ADD);
	ibv_end_poll(cq_ex);
	CHECK(*(uint64_t *)(peer.buffer + 8192) == 3);

	/* The rest: compare and swap, a WRITE with immediate, a SEND that takes a key back. */
	struct ibv_mw *window = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_mr *bindable = ibv_reg_mr(pd, peer.buffer, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	CHECK(window && bindable);
	struct ibv_send_wr bind = { .wr_id = 50, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { .mw = window, .rkey = ibv_inc_rkey(window->rkey), .bind_info = { .mr = bindable,
			.addr = (uintptr_t)peer.buffer, .length = 64, .mw_access_flags = IBV_ACCESS_REMOTE_READ } } };
	CHECK(!ibv_post_send(peer.qp, &bind, &bad_send));
	expect_success(peer.cq, 50, IBV_WC_BIND_MW);
	CHECK(!post_recv(&peer, 51, 4096, 64) && !post_recv(&peer, 52, 4096, 64));
	ibv_wr_start(ex);
	ex->wr_id = 53;
	ibv_wr_atomic_cmp_swp(ex, peer.mr->rkey, (uintptr_t)peer.buffer + 8192, 3, 99);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 8);
	ibv_wr_rdma_write_imm(ex, peer.mr->rkey, (uintptr_t)peer.buffer + 64, htonl(54));
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory + 1000, 10);
	ibv_wr_send_inv(ex, bind.bind_mw.rkey);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory + 1000, 11);
	CHECK(!ibv_wr_complete(ex));
	const enum ibv_wc_opcode done[3] = { IBV_WC_COMP_SWAP, IBV_WC_RDMA_WRITE, IBV_WC_SEND };
	for (int i = 0; i < 3; i++) {
		start_poll();
		CHECK(cq_ex->status == IBV_WC_SUCCESS && cq_ex->wr_id == 53 && ibv_wc_read_opcode(cq_ex) == done[i]);
		CHECK(!ibv_wc_read_dlid_path_bits(cq_ex));
		ibv_end_poll(cq_ex);
	}
	CHECK(*(uint64_t *)memory == 3 && *(uint64_t *)(peer.buffer + 8192) == 99);
	wc = wait_wc(peer.cq);
	CHECK(wc.wr_id == 51 && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == 10 && wc.imm_data == htonl(54));
	CHECK(peer.buffer[64] == 0x5a && peer.buffer[73] == 0x5a);
	wc = wait_wc(peer.cq);
	CHECK(wc.wr_id == 52 && wc.opcode == IBV_WC_RECV && wc.byte_len == 11 && (wc.wc_flags & IBV_WC_WITH_INV));
	CHECK(wc.invalidated_rkey == bind.bind_mw.rkey && !ibv_dealloc_mw(window) && !ibv_dereg_mr(bindable));

	struct ibv_values_ex now = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	CHECK(!ibv_query_rt_values_ex(context, &now));
	CHECK((uint64_t)now.raw_clock.tv_sec * 1000000000 + now.raw_clock.tv_nsec >= first);

	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(ibv_cq_ex_to_cq(cq_ex)) && !ibv_dereg_mr(mr));
	free(memory);
	destroy_side(&peer);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("extended: ok");
	return 0;
}
