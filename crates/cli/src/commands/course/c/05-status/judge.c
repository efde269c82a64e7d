/* Rows of messages: in some of them one is longer than the peer's receives. */
#include "harness.h"

#include <stdio.h>
#include <string.h>

enum { COUNT = 8, ROOM = 1024, ROUNDS = 3 };

/* What the learner says of the first one that failed. */
static const char *first_failed(struct outcome said)
{
	static char text[160];
	snprintf(text, sizeof(text), "message %d is the first that failed, with status \"%s\"", said.failed,
		 ibv_wc_status_str(said.status));
	return said.failed < 0 ? "none failed" : text;
}

/* The message that does not fit, or -1. */
static int too_long(int round, unsigned int seed)
{
	int first = (int)(seed % (COUNT - 1));
	return round == 0 ? -1 : round == 1 ? first : COUNT - 1;
}

void learner(int fd)
{
	unsigned int seed = fresh_seed();
	for (int round = 0; round < ROUNDS; round++) {
		struct course course;
		set_up(&course, fd, (struct wishes){ .rnr_retry = 7 });
		size_t lengths[COUNT];
		int bad = too_long(round, seed);
		for (int i = 0; i < COUNT; i++)
			lengths[i] = i == bad ? 2 * ROOM : 100 + (size_t)i;
		struct outcome outcome = send_all(&course, lengths, COUNT);
		if (bad < 0) {
			if (outcome.good == COUNT && outcome.failed == -1)
				right("%d messages that fit: all of them were sent", COUNT);
			else
				wrong("%d messages that fit: %d are good. You say: %d are good, %s", COUNT, COUNT, outcome.good,
				      first_failed(outcome));
		} else if (outcome.good == bad && outcome.failed == bad && outcome.status == IBV_WC_REM_INV_REQ_ERR) {
			right("message %d is too long for the peer: you found it, and its status", bad);
		} else {
			wrong("message %d of %d is too long for the peer, and %d before it are good. You say: %d are good, %s",
			      bad, COUNT, bad, outcome.good, first_failed(outcome));
		}
		tell_number(fd, 0);
		int64_t arrived = hear_number(fd);
		if (arrived != (bad < 0 ? COUNT : bad))
			wrong("%d messages arrived at the peer in this row", (int)arrived);
		tear_down(&course);
	}
}

void peer(int fd)
{
	for (int round = 0; round < ROUNDS; round++) {
		struct course course;
		memset(&course, 0, sizeof(course));
		open_device(&course, (struct wishes){ 0 });
		connect_over(&course, fd, (struct wishes){ .rnr_retry = 7 });
		for (int i = 0; i < COUNT; i++)
			post_receive(&course, (uint64_t)i, 0, ROOM);
		tell_number(fd, 0);
		hear_number(fd);
		hear_number(fd);
		int64_t arrived = 0;
		struct ibv_wc wc;
		while (ibv_poll_cq(course.cq, 1, &wc) > 0)
			arrived += wc.status == IBV_WC_SUCCESS;
		tell_number(fd, arrived);
		tear_down(&course);
	}
}
