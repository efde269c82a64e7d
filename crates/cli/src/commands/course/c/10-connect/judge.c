/* The peer is a server of librdmacm. */
#include "harness.h"

#include <arpa/inet.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 40, GRACE_MS = 2000, LETTERS = 24 };

static void letters(char *text)
{
	unsigned int seed = fresh_seed();
	for (int i = 0; i < LETTERS; i++)
		text[i] = (char)('a' + (seed = seed * 1103515245u + 12345u) / 65536 % 26);
	text[LETTERS] = 0;
}

void learner(int fd)
{
	char host[INET6_ADDRSTRLEN], port[16], question[WORDS], answer[WORDS], expected[WORDS];
	hear(fd, host, sizeof(host));
	hear(fd, port, sizeof(port));
	letters(question);
	memset(answer, 0, sizeof(answer));
	int error = ask(host, port, question, answer, sizeof(answer) - 1);
	tell(fd, question, sizeof(question));
	hear(fd, expected, sizeof(expected));
	if (error)
		wrong("ask() says that it failed: %d", error);
	if (!strcmp(answer, expected))
		right("ask() gives the server's answer");
	else
		wrong("ask() does not give the server's answer");
}

/* The next event if it comes before the learner's side has ended, or soon after. */
static struct rdma_cm_event *event(struct rdma_event_channel *channel, int fd)
{
	struct pollfd both[2] = { { .fd = channel->fd, .events = POLLIN }, { .fd = fd, .events = POLLIN } };
	struct rdma_cm_event *event = NULL;
	if (poll(both, 2, PATIENCE_MS) > 0 && !both[0].revents)
		poll(both, 1, GRACE_MS);
	if (both[0].revents && rdma_get_cm_event(channel, &event))
		return NULL;
	return event;
}

/* Says what the learner has done, and what not. */
static void serve(struct rdma_event_channel *channel, int fd, char *question, const char *answer)
{
	struct rdma_cm_event *next = event(channel, fd);
	if (!next || next->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
		wrong("no request to connect came to the server");
		return;
	}
	struct rdma_cm_id *id = next->id;
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct course course = { .pd = ibv_alloc_pd(id->verbs), .context = id->verbs, .buffer = calloc(2, 4096) };
	course.cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
	course.mr = ibv_reg_mr(course.pd, course.buffer, 8192, IBV_ACCESS_LOCAL_WRITE);
	attr.send_cq = attr.recv_cq = course.cq;
	if (rdma_create_qp(id, course.pd, &attr))
		stop("the course cannot go on: rdma_create_qp");
	course.qp = id->qp;
	post_receive(&course, 1, 4096, 4096);
	struct rdma_conn_param param = { .rnr_retry_count = 7, .responder_resources = 1, .initiator_depth = 1 };
	if (rdma_accept(id, &param))
		stop("the course cannot go on: rdma_accept");
	rdma_ack_cm_event(next);
	next = event(channel, fd);
	if (!next || next->event != RDMA_CM_EVENT_ESTABLISHED) {
		wrong("a connection was asked for, and not made: %s",
		      next ? rdma_event_str(next->event) : "the client ended before it was there");
		return;
	}
	rdma_ack_cm_event(next);
	right("the server accepted a connection");
	struct ibv_wc wc;
	if (completion(course.cq, &wc, PATIENCE_MS) <= 0 || wc.status != IBV_WC_SUCCESS) {
		wrong("no question came to the server");
		return;
	}
	snprintf(question, WORDS, "%.*s", (int)(wc.byte_len < WORDS ? wc.byte_len : WORDS - 1), course.buffer + 4096);
	right("a question came to the server");
	strcpy(course.buffer, answer);
	if (post(&course, IBV_WR_SEND, strlen(answer) + 1) || completion(course.cq, &wc, PATIENCE_MS) <= 0 || wc.status) {
		wrong("the server's answer was not taken: %s", ibv_wc_status_str(wc.status));
		return;
	}
	next = event(channel, fd);
	rdma_disconnect(id);
	if (next && next->event == RDMA_CM_EVENT_DISCONNECTED)
		right("the server heard that the connection has ended");
	else
		wrong("the server did not hear that the connection has ended");
}

void peer(int fd)
{
	struct course course = { 0 };
	open_device(&course, (struct wishes){ 0 });
	struct course_end own = own_end(&course);
	bool is_v4 = own.gid.raw[10] == 0xff && own.gid.raw[11] == 0xff;
	char host[INET6_ADDRSTRLEN] = "", port[16] = "";
	inet_ntop(is_v4 ? AF_INET : AF_INET6, own.gid.raw + (is_v4 ? 12 : 0), host, sizeof(host));
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener;
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE | RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP }, *found;
	if (!channel || rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) || rdma_getaddrinfo(host, "0", &hints, &found))
		stop("the course cannot go on: no address for the server");
	if (rdma_bind_addr(listener, found->ai_src_addr) || rdma_listen(listener, 4))
		stop("the course cannot go on: the server cannot listen");
	snprintf(port, sizeof(port), "%u", ntohs(rdma_get_src_port(listener)));
	tell(fd, host, sizeof(host));
	tell(fd, port, sizeof(port));
	char question[WORDS] = "", asked[WORDS], answer[WORDS] = "";
	letters(answer);
	serve(channel, fd, question, answer);
	hear(fd, asked, sizeof(asked));
	if (question[0] && strcmp(question, asked))
		wrong("the question is another one than ask() was given");
	tell(fd, answer, sizeof(answer));
}
