/* Messages come at the worst moments: every second one when a poll has found nothing, the others as
 * soon as the queue is armed. */
#include "harness.h"

#include <poll.h>
#include <string.h>

enum { COUNT = 6, IN_VAIN = 10000 };

static int (*real_poll)(struct ibv_cq *, int, struct ibv_wc *);
static int (*real_notify)(struct ibv_cq *, int);
static int channel_to_peer, events, sent, got, empty, blind;
/* Armed since the last message; the last message came while it was not; it was so when the program
 * armed after that. */
static bool armed, missed, unseen;

/* Returns when the message has arrived. */
static void next_message(void)
{
	tell_number(channel_to_peer, 1);
	if (hear_number(channel_to_peer))
		stop("the course cannot go on: the peer cannot send");
	sent++;
	missed = !armed;
	armed = false;
}

static int poll_hook(struct ibv_cq *cq, int entries, struct ibv_wc *wc)
{
	/* Armed while a message was there that no poll has seen: rnic leaves an event for it, as most
	 * cards do. If the event is gone, the program has slept before it looked again. */
	struct pollfd channel = { .fd = events, .events = POLLIN };
	if (unseen && poll(&channel, 1, 0) == 0)
		blind++;
	unseen = false;
	int n = real_poll(cq, entries, wc);
	if (n > 0) {
		got += n;
		missed = false;
	}
	if (n)
		return n;
	if (++empty > IN_VAIN)
		stop("ibv_poll_cq found nothing %d times: the program polls instead of sleeping", IN_VAIN);
	if (got == sent && sent < COUNT && (sent % 2 == 0 || armed))
		next_message();
	return 0;
}

static int notify_hook(struct ibv_cq *cq, int solicited)
{
	int error = real_notify(cq, solicited);
	armed = true;
	unseen = missed;
	if (got == sent && sent < COUNT && sent % 2 == 1)
		next_message();
	return error;
}

void learner(int fd)
{
	struct course course;
	channel_to_peer = fd;
	set_up(&course, fd, (struct wishes){ .rnr_retry = 7 });
	events = course.channel->fd;
	for (uint64_t i = 0; i < COUNT; i++)
		post_receive(&course, i, 64 * i, 64);
	real_poll = course.context->ops.poll_cq;
	real_notify = course.context->ops.req_notify_cq;
	course.context->ops.poll_cq = poll_hook;
	course.context->ops.req_notify_cq = notify_hook;
	int said = receive_many(&course, COUNT);
	course.context->ops.poll_cq = real_poll;
	course.context->ops.req_notify_cq = real_notify;
	if (got == COUNT && said == COUNT)
		right("all %d messages were taken", COUNT);
	else
		wrong("%d messages were to come; %d were taken, and receive_many() says %d", COUNT, got, said);
	if (blind)
		wrong("a message came between the last poll and ibv_req_notify_cq, and the program slept without another "
		      "poll: a NIC need not leave an event for such a message");
	else
		right("no message was slept over");
	tell_number(fd, 0);
	/* Waits until each event is acknowledged. */
	tear_down(&course);
	right("each event was acknowledged");
}

void peer(int fd)
{
	struct course course;
	set_up(&course, fd, (struct wishes){ .rnr_retry = 7 });
	struct ibv_wc wc;
	while (hear_number(fd))
		tell_number(fd, post(&course, IBV_WR_SEND, 32) || completion(course.cq, &wc, PATIENCE_MS) <= 0 || wc.status);
	tear_down(&course);
}
