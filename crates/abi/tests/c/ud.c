/* Datagrams: the GRH in front of the payload, answering by an address handle made of it, queue keys, what is too long,
 * address handles that are destroyed too early or are none. */
#include <netinet/ip.h>
#include "datagram.h"

static struct ibv_context *context;
static struct ibv_pd *pd;

/* The 40 bytes in front of a datagram over IPv4: the IP header is in the last 20 of them. */
static void check_grh(const char *grh, uint32_t length)
{
	struct iphdr ip;
	memcpy(&ip, grh + 20, sizeof ip);
	CHECK(ip.version == 4 && ip.ihl == 5 && ip.protocol == IPPROTO_UDP && ip.ttl > 0);
	CHECK(ip.saddr == htonl(INADDR_LOOPBACK) && ip.daddr == htonl(INADDR_LOOPBACK));
	/* IP, UDP, BTH, DETH, payload padded to four bytes, ICRC. */
	CHECK(ntohs(ip.tot_len) == 20 + 8 + 12 + 8 + (length + 3) / 4 * 4 + 4);
}

static void there_and_back(struct datagrams *a, struct datagrams *b, struct ibv_ah *ah)
{
	strcpy(a->buffer, "who is there?");
	expect_datagram(b, 1, 4096, 100);
	expect_datagram(a, 2, 4096, 100);
	CHECK(!send_datagram(a, ah, b->qp->qp_num, QKEY, 14));
	expect_success(a->cq, 1014, IBV_WC_SEND);
	struct ibv_wc wc = wait_wc(b->cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.wr_id == 1);
	CHECK(wc.byte_len == GRH + 14 && wc.wc_flags == IBV_WC_GRH);
	CHECK(wc.qp_num == b->qp->qp_num && wc.src_qp == a->qp->qp_num && wc.pkey_index == 0 && wc.slid == 0);
	/* As ConnectX says it: an IPv4 header, and behind it UDP. */
	CHECK(wc.sl == 0xa);
	check_grh(b->buffer + 4096, 14);
	CHECK(!strcmp(b->buffer + 4096 + GRH, "who is there?"));

	/* The sender's address is all in the completion and the GRH. */
	struct ibv_grh *grh = (struct ibv_grh *)(b->buffer + 4096);
	struct ibv_ah_attr attr;
	CHECK(ibv_init_ah_from_wc(context, 2, &wc, grh, &attr) == -1 && errno == EINVAL);
	CHECK(!ibv_create_ah_from_wc(a->qp->pd, &wc, grh, 2) && errno == EINVAL);
	CHECK(!ibv_init_ah_from_wc(context, 1, &wc, grh, &attr));
	union ibv_gid loopback;
	CHECK(attr.is_global && attr.port_num == 1 && attr.grh.sgid_index == loopback_gid(context, &loopback));
	CHECK(!memcmp(&attr.grh.dgid, &loopback, 16));
	struct ibv_ah *back = ibv_create_ah_from_wc(pd, &wc, grh, 1);
	CHECK(back && back->pd == pd && back->context == context);
	strcpy(b->buffer, "me");
	CHECK(!send_datagram(b, back, wc.src_qp, QKEY, 3));
	expect_success(b->cq, 1003, IBV_WC_SEND);
	wc = wait_wc(a->cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == GRH + 3 && wc.src_qp == b->qp->qp_num);
	CHECK(!strcmp(a->buffer + 4096 + GRH, "me"));
	CHECK(!ibv_destroy_ah(back));
}

/* A batch of ibv_wr_*: the address is a setter. */
static void extended(struct datagrams *a, struct datagrams *b, struct ibv_ah *ah)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(a->qp);
	expect_datagram(b, 3, 4096, 64);
	ibv_wr_start(ex);
	ex->wr_id = 30;
	ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
	ibv_wr_send_imm(ex, htonl(77));
	ibv_wr_set_ud_addr(ex, ah, b->qp->qp_num, QKEY);
	ibv_wr_set_inline_data(ex, "inline", 7);
	CHECK(!ibv_wr_complete(ex));
	expect_success(a->cq, 30, IBV_WC_SEND);
	struct ibv_wc wc = wait_wc(b->cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wc_flags == (IBV_WC_GRH | IBV_WC_WITH_IMM) && ntohl(wc.imm_data) == 77);
	CHECK(!strcmp(b->buffer + 4096 + GRH, "inline"));
	/* Without an address there is nowhere to go. */
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_set_inline_data(ex, "inline", 7);
	CHECK(ibv_wr_complete(ex) == EINVAL);
}

/* Who does not know the key is not heard, and takes no receive. */
static void queue_keys(struct datagrams *a, struct datagrams *b, struct ibv_ah *ah)
{
	expect_datagram(b, 4, 4096, 64);
	CHECK(!send_datagram(a, ah, b->qp->qp_num, QKEY + 1, 1));
	expect_success(a->cq, 1001, IBV_WC_SEND);
	/* With its highest bit set, a work request's key stands for that of the queue pair. */
	CHECK(!send_datagram(a, ah, b->qp->qp_num, 0x80000000, 2));
	expect_success(a->cq, 1002, IBV_WC_SEND);
	struct ibv_wc wc = wait_wc(b->cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 4 && wc.byte_len == GRH + 2);
	/* The key may change at any time. */
	struct ibv_qp_attr attr = { .qkey = 5 }, now;
	struct ibv_qp_init_attr init;
	CHECK(!ibv_modify_qp(b->qp, &attr, IBV_QP_QKEY));
	CHECK(!ibv_query_qp(b->qp, &now, IBV_QP_QKEY, &init) && now.qkey == 5 && now.qp_state == IBV_QPS_RTS);
	expect_datagram(b, 5, 4096, 64);
	CHECK(!send_datagram(a, ah, b->qp->qp_num, 5, 3));
	expect_success(a->cq, 1003, IBV_WC_SEND);
	CHECK(wait_wc(b->cq).wr_id == 5);
	attr.qkey = QKEY;
	CHECK(!ibv_modify_qp(b->qp, &attr, IBV_QP_QKEY));
}

/* A message longer than the port's MTU fails alone with those behind it; receiving goes on, and RTS again sending. */
static void too_long_to_send(struct datagrams *a, struct datagrams *b, struct ibv_ah *ah)
{
	struct ibv_port_attr port;
	CHECK(!ibv_query_port(context, 1, &port));
	uint32_t mtu = 128 << port.active_mtu;
	expect_datagram(b, 6, 4096, mtu);
	CHECK(!send_datagram(a, ah, b->qp->qp_num, QKEY, mtu));
	expect_success(a->cq, 1000 + mtu, IBV_WC_SEND);
	CHECK(wait_wc(b->cq).byte_len == GRH + mtu);

	CHECK(!send_datagram(a, ah, b->qp->qp_num, QKEY, mtu + 1));
	struct ibv_wc wc = wait_wc(a->cq);
	CHECK(wc.status == IBV_WC_LOC_LEN_ERR && wc.wr_id == 1001 + mtu);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(!ibv_query_qp(a->qp, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_SQE);
	CHECK(!send_datagram(a, ah, b->qp->qp_num, QKEY, 1));
	CHECK(wait_wc(a->cq).status == IBV_WC_WR_FLUSH_ERR);
	expect_datagram(a, 7, 4096, 64);
	expect_datagram(b, 8, 4096, 64);
	CHECK(!send_datagram(b, ah, a->qp->qp_num, QKEY, 4));
	expect_success(b->cq, 1004, IBV_WC_SEND);
	CHECK(wait_wc(a->cq).status == IBV_WC_SUCCESS);
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(a->qp, &attr, IBV_QP_STATE));
	CHECK(!send_datagram(a, ah, b->qp->qp_num, QKEY, 5));
	expect_success(a->cq, 1005, IBV_WC_SEND);
	CHECK(wait_wc(b->cq).wr_id == 8);
}

/* A receive without room for GRH and message: an error, and the end of the queue pair. */
static void too_long_to_receive(struct datagrams *a, struct datagrams *b, struct ibv_ah *ah)
{
	expect_datagram(b, 9, 4096, 9);
	expect_datagram(b, 10, 8192, 100);
	CHECK(!send_datagram(a, ah, b->qp->qp_num, QKEY, 10));
	expect_success(a->cq, 1010, IBV_WC_SEND);
	struct ibv_wc wc = wait_wc(b->cq);
	CHECK(wc.status == IBV_WC_LOC_LEN_ERR && wc.wr_id == 9 && wc.qp_num == b->qp->qp_num);
	wc = wait_wc(b->cq);
	CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == 10);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(!ibv_query_qp(b->qp, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_ERR);
}

static void refusals(struct datagrams *a, struct ibv_ah *ah)
{
	union ibv_gid own;
	struct ibv_ah_attr good = { .is_global = 1, .port_num = 1 };
	good.grh.sgid_index = loopback_gid(context, &good.grh.dgid);
	own = good.grh.dgid;
	struct ibv_ah_attr attr = good;
	attr.is_global = 0;
	CHECK(!ibv_create_ah(pd, &attr) && errno == EINVAL);
	attr = good;
	attr.grh.sgid_index = 200;
	CHECK(!ibv_create_ah(pd, &attr) && errno == EINVAL);
	attr = good;
	attr.port_num = 2;
	CHECK(!ibv_create_ah(pd, &attr) && errno == EINVAL);
	/* An IPv6 address from an IPv4 GID. */
	attr = good;
	memset(&attr.grh.dgid, 0, 16);
	CHECK(!ibv_create_ah(pd, &attr) && errno == EINVAL);
	attr.grh.dgid.raw[15] = 1;
	CHECK(!ibv_create_ah(pd, &attr) && errno == EINVAL);
	CHECK(!ibv_create_ah(pd, NULL) && errno == EINVAL);

	/* An address handle of another protection domain, and none. */
	struct ibv_pd *other = ibv_alloc_pd(context);
	struct ibv_ah *foreign = make_ah(other, &own);
	CHECK(foreign && ibv_dealloc_pd(other) == EBUSY);
	CHECK(send_datagram(a, foreign, 1, QKEY, 1) == EINVAL);
	CHECK(send_datagram(a, NULL, 1, QKEY, 1) == EINVAL);
	CHECK(!ibv_destroy_ah(foreign) && !ibv_dealloc_pd(other));

	/* What the service does not have. */
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .wr.ud = { ah, 1, QKEY } }, *bad = NULL;
	CHECK(ibv_post_send(a->qp, &wr, &bad) == EINVAL && bad == &wr);
	wr.opcode = IBV_WR_RDMA_READ;
	CHECK(ibv_post_send(a->qp, &wr, &bad) == EINVAL);

	/* A completion without GRH names nobody over Ethernet; one from another host's GRH is not for us. */
	char grh[GRH] = { 0 };
	struct ibv_wc wc = { 0 };
	CHECK(!ibv_init_ah_from_wc(context, 1, &wc, (struct ibv_grh *)grh, &attr) && !attr.is_global);
	CHECK(!ibv_create_ah_from_wc(pd, &wc, (struct ibv_grh *)grh, 1) && errno == EINVAL);
	wc.wc_flags = IBV_WC_GRH;
	CHECK(ibv_init_ah_from_wc(context, 1, &wc, (struct ibv_grh *)grh, &attr) == -1 && errno == EINVAL);
}

int main(void)
{
	context = open_device();
	pd = ibv_alloc_pd(context);
	struct datagrams a = make_datagrams(pd, QKEY), b = make_datagrams(pd, QKEY);
	struct ibv_ah *ah = make_ah(pd, NULL);
	CHECK(ah && ah->context == context && ah->pd == pd);
	there_and_back(&a, &b, ah);
	extended(&a, &b, ah);
	queue_keys(&a, &b, ah);
	too_long_to_send(&a, &b, ah);
	refusals(&a, ah);
	too_long_to_receive(&a, &b, ah);
	destroy_datagrams(&a);
	destroy_datagrams(&b);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	CHECK(!ibv_destroy_ah(ah) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("ud: ok");
	return 0;
}
