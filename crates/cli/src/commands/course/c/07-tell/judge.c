/* The peer waits for a completion, and looks at its memory then. */
#include "harness.h"

#include <arpa/inet.h>
#include <string.h>

enum { TOLD_MS = 2000, ROUNDS = 3 };

void learner(int fd)
{
	struct course course;
	set_up(&course, fd, (struct wishes){ .rnr_retry = 7 });
	for (int round = 0; round < ROUNDS; round++) {
		unsigned int seed = fresh_seed();
		fill(course.buffer, BUFFER, seed);
		watch(&course);
		int error = put_and_tell(&course, seed);
		unwatch(&course);
		if (error)
			stop("put_and_tell() says that it failed: %d", error);
		/* Whether the peer would see it depends on the moment; the order does not. */
		if (watched.told && watched.written_before < BUFFER && watched.written >= BUFFER)
			stop("the number was posted before the WRITE: requests take effect in order, so the peer was told before "
			     "the bytes were there");
		tell_number(fd, seed);
		if (hear_number(fd))
			break;
	}
	tear_down(&course);
}

/* What is wrong, or NULL. */
static const char *judge(struct course *course, unsigned int seed, bool *written)
{
	struct ibv_wc wc;
	/* What was sent before the learner's side said so is on its way at most. */
	int n = completion(course->cq, &wc, TOLD_MS);
	*written = differs(course->buffer, BUFFER, seed) < 0;
	if (n <= 0)
		return "the peer was told nothing: it got no completion";
	if (wc.status != IBV_WC_SUCCESS)
		return "the peer's receive failed";
	if (!(wc.wc_flags & IBV_WC_WITH_IMM))
		return "the peer was told, but without a number: there is no immediate data";
	if (ntohl(wc.imm_data) != seed)
		return wc.imm_data == seed ? "the number came in the wrong byte order" : "the peer was told another number";
	return *written ? NULL : "the peer was told before the bytes were there";
}

void peer(int fd)
{
	struct course course;
	memset(&course, 0, sizeof(course));
	open_device(&course, (struct wishes){ 0 });
	connect_over(&course, fd, (struct wishes){ .rnr_retry = 7 });
	for (uint64_t i = 0; i < ROUNDS; i++)
		post_receive(&course, i, 8192, 64);
	tell_number(fd, 0);
	hear_number(fd);
	for (int round = 0; round < ROUNDS; round++) {
		unsigned int seed = (unsigned int)hear_number(fd);
		bool written;
		const char *what = judge(&course, seed, &written);
		if (what) {
			if (written)
				right("the bytes are in the peer's memory");
			else
				wrong("the bytes are not in the peer's memory");
			wrong("%s", what);
			tell_number(fd, 1);
			break;
		}
		right("the peer was told %#x, and the bytes were there then", seed);
		tell_number(fd, 0);
	}
	tear_down(&course);
}
