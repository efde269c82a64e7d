/* After the learner's connect_qp a message goes each way. */
#include "harness.h"

#include <string.h>

/* Sends, receives, and says what became of it. */
static void both_ways(struct course *course, int fd, bool says)
{
	unsigned int seed = fresh_seed();
	fill(course->buffer, 2000, seed);
	tell_number(fd, seed);
	unsigned int theirs = (unsigned int)hear_number(fd);
	if (post(course, IBV_WR_SEND, 2000)) {
		if (says)
			wrong("nothing can be sent: the queue pair is not in RTS");
		return;
	}
	bool sent = false, received = false;
	struct ibv_wc wc;
	for (int i = 0; i < 2; i++) {
		if (completion(course->cq, &wc, PATIENCE_MS) <= 0)
			break;
		if (wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_SEND)
			sent = true;
		if (wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV)
			received = differs(course->buffer + 8192, 2000, theirs) < 0;
		if (wc.status != IBV_WC_SUCCESS)
			break;
	}
	if (!says)
		return;
	if (sent)
		right("a message went from you to the peer");
	else
		wrong("no message came from you to the peer");
	if (received)
		right("a message came from the peer to you");
	else
		wrong("no message came from the peer to you");
}

void learner(int fd)
{
	struct course course = { 0 };
	open_device(&course, (struct wishes){ 0 });
	struct course_end mine = own_end(&course), theirs;
	tell(fd, &mine, sizeof(mine));
	hear(fd, &theirs, sizeof(theirs));
	if (connect_qp(course.qp, &mine, &theirs))
		stop("connect_qp() says that it failed: a step was refused");
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	ibv_query_qp(course.qp, &attr, IBV_QP_STATE, &init);
	static const char *const names[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };
	if (attr.qp_state != IBV_QPS_RTS)
		stop("your queue pair is in %s, not in RTS", names[attr.qp_state < 7 ? attr.qp_state : 6]);
	right("your queue pair is in RTS");
	post_receive(&course, 1, 8192, 4096);
	tell_number(fd, 0);
	hear_number(fd);
	both_ways(&course, fd, true);
	tell_number(fd, 0);
	hear_number(fd);
	tear_down(&course);
}

void peer(int fd)
{
	struct course course = { 0 };
	open_device(&course, (struct wishes){ 0 });
	struct course_end mine = own_end(&course), theirs;
	tell(fd, &mine, sizeof(mine));
	hear(fd, &theirs, sizeof(theirs));
	to_rts(course.qp, &mine, &theirs, 7);
	post_receive(&course, 1, 8192, 4096);
	tell_number(fd, 0);
	hear_number(fd);
	both_ways(&course, fd, false);
	tell_number(fd, 0);
	hear_number(fd);
	tear_down(&course);
}
