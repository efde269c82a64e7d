/* The peer sends when it is told to, and does not try again. */
#include "harness.h"

#include <string.h>

static int channel_to_peer;
static bool went;

void course_go(struct course *course)
{
	(void)course;
	tell_number(channel_to_peer, 1);
	int64_t status = hear_number(channel_to_peer);
	if (status != IBV_WC_SUCCESS)
		stop("the peer's message did not arrive. The peer says: %s", ibv_wc_status_str((enum ibv_wc_status)status));
	went = true;
}

void learner(int fd)
{
	struct course course;
	channel_to_peer = fd;
	set_up(&course, fd, (struct wishes){ .rnr_retry = 7 });
	int bytes = receive(&course);
	if (!went)
		stop("receive() did not call course_go(): the peer has sent nothing");
	right("the peer's message arrived");
	tell_number(fd, 0);
	unsigned int seed = (unsigned int)hear_number(fd);
	int length = (int)hear_number(fd);
	if (bytes != length)
		wrong("the message has %d bytes, and receive() says %d", length, bytes);
	else
		right("receive() says that it has %d bytes", bytes);
	if (differs(course.buffer, (size_t)length, seed) >= 0)
		wrong("it is not in course->buffer");
	else
		right("its bytes are in course->buffer");
	tear_down(&course);
}

void peer(int fd)
{
	struct course course;
	set_up(&course, fd, (struct wishes){ .rnr_retry = 0 });
	unsigned int seed = fresh_seed();
	size_t length = 1000 + seed % 3000;
	fill(course.buffer, length, seed);
	struct ibv_wc wc = { .status = IBV_WC_GENERAL_ERR };
	while (hear_number(fd)) {
		if (!post(&course, IBV_WR_SEND, length))
			completion(course.cq, &wc, PATIENCE_MS);
		tell_number(fd, wc.status);
	}
	tell_number(fd, seed);
	tell_number(fd, (int64_t)length);
	tear_down(&course);
}
