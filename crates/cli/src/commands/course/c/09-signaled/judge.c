/* Counts signaled requests here, and messages at the peer. */
#include "harness.h"

#include <stdio.h>
#include <string.h>

enum { COUNT = 1003, DEPTH = 16, ONE_IN = 4 };

void learner(int fd)
{
	struct course course;
	set_up(&course, fd, (struct wishes){ .rnr_retry = 7, .sends = DEPTH });
	watch(&course);
	int error = send_many(&course, COUNT);
	bool knew = error || knew_all(&course, "send_many");
	if (error)
		wrong("send_many() says that it failed: %d", error);
	/* One in four, and the last one. */
	if (watched.signaled * ONE_IN > watched.posted + ONE_IN)
		wrong("%d of %d requests were signaled: one in %d is enough", watched.signaled, watched.posted, ONE_IN);
	else if (!error && knew && watched.posted)
		right("%d of %d requests were signaled", watched.signaled, watched.posted);
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
