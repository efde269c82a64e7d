/* The peer looks at all of its memory. */
#include "harness.h"

#include <string.h>

enum { UNTOUCHED = 0x5a };

void learner(int fd)
{
	struct course course;
	set_up(&course, fd, (struct wishes){ .rnr_retry = 7 });
	/* Not where the peer's is, nor as long. */
	unsigned int seed = fresh_seed();
	fill(course.buffer, BUFFER, seed);
	watch(&course);
	int error = put(&course);
	bool knew = knew_all(&course, "put");
	if (error)
		wrong("put() says that it failed: %d", error);
	else if (knew && watched.posted)
		right("put() returned when the completion was there");
	tell_number(fd, seed);
	hear_number(fd);
	tear_down(&course);
}

void peer(int fd)
{
	struct course course;
	memset(&course, 0, sizeof(course));
	open_device(&course, (struct wishes){ 0 });
	memset(course.buffer, UNTOUCHED, PEER_BYTES);
	connect_over(&course, fd, (struct wishes){ .rnr_retry = 7 });
	tell_number(fd, 0);
	hear_number(fd);
	unsigned int seed = (unsigned int)hear_number(fd);
	size_t before = PEER_BYTES - BUFFER;
	long at = differs(course.buffer + before, BUFFER, seed);
	if (at < 0)
		right("the last %d bytes of the peer's memory are yours", BUFFER);
	else
		wrong("the last %d bytes of the peer's memory are not what you had, from byte %ld on", BUFFER, at);
	size_t changed = 0;
	for (size_t i = 0; i < before; i++)
		changed += course.buffer[i] != UNTOUCHED;
	if (changed)
		wrong("%zu bytes in front of them were changed", changed);
	else
		right("the %zu bytes in front of them are as they were", before);
	tell_number(fd, 0);
	tear_down(&course);
}
