/* Counts signaled requests here, and messages at the peer. */
#include "harness.h"

#include <stdio.h>
#include <string.h>

enum { COUNT = 1000, DEPTH = 16, ONE_IN = 4 };

static int (*real_post)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
static int posted, signaled;

static int post_hook(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int requests = 0, flagged = 0;
	for (struct ibv_send_wr *each = wr; each; each = each->next) {
		requests++;
		flagged += (each->send_flags & IBV_SEND_SIGNALED) != 0;
	}
	int error = real_post(qp, wr, bad);
	if (!error) {
		posted += requests;
		signaled += flagged;
	}
	return error;
}

void learner(int fd)
{
	struct course course;
	set_up(&course, fd, (struct wishes){ .rnr_retry = 7, .sends = DEPTH });
	real_post = course.context->ops.post_send;
	course.context->ops.post_send = post_hook;
	int error = send_many(&course, COUNT);
	course.context->ops.post_send = real_post;
	if (error)
		wrong("send_many() says that it failed: %d", error);
	if (signaled * ONE_IN > posted)
		wrong("%d of %d requests were signaled: one in %d is enough", signaled, posted, ONE_IN);
	else if (!error)
		right("%d of %d requests were signaled", signaled, posted);
	tell_number(fd, 0);
	hear_number(fd);
	tear_down(&course);
}

void peer(int fd)
{
	struct course course;
	memset(&course, 0, sizeof(course));
	open_device(&course, (struct wishes){ .receives = COUNT + 1 });
	connect_over(&course, fd, (struct wishes){ .rnr_retry = 7 });
	for (size_t i = 0; i < COUNT; i++)
		post_receive(&course, i, i * sizeof(uint32_t), sizeof(uint32_t));
	tell_number(fd, 0);
	hear_number(fd);
	hear_number(fd);
	int arrived = 0;
	struct ibv_wc wc;
	while (arrived < COUNT && completion(course.cq, &wc, 1000) > 0 && wc.status == IBV_WC_SUCCESS)
		arrived++;
	int ordered = 0;
	while (ordered < arrived && ((uint32_t *)course.buffer)[ordered] == (uint32_t)ordered)
		ordered++;
	if (arrived < COUNT)
		wrong("%d of %d messages arrived", arrived, COUNT);
	else if (ordered < COUNT)
		wrong("message %d is not the number %d", ordered, ordered);
	else
		right("all %d messages arrived, in order", COUNT);
	tell_number(fd, 0);
	tear_down(&course);
}
