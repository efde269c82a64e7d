/* The peer writes into the region and reads it back. */
#include "harness.h"

#include <stdlib.h>
#include <string.h>

void learner(int fd)
{
	struct course course;
	set_up(&course, fd, (struct wishes){ .rnr_retry = 7 });
	char *memory = aligned_alloc(4096, BUFFER);
	memset(memory, 0, BUFFER);
	struct ibv_mr *mr = share(course.pd, memory, BUFFER);
	if (!mr)
		stop("share() gave no region: ibv_reg_mr refused");
	if (mr->addr != memory || mr->length != BUFFER)
		stop("the region has %zu bytes at %p; %d at %p are to be shared", mr->length, mr->addr, BUFFER, memory);
	right("there is a region of %d bytes", BUFFER);
	uint64_t told[2] = { (uintptr_t)memory, mr->rkey };
	tell(fd, told, sizeof(told));
	unsigned int seed = (unsigned int)hear_number(fd);
	long at = differs(memory, BUFFER, seed);
	if (at < 0)
		right("your memory holds what the peer has written, all %d bytes", BUFFER);
	else
		wrong("what the peer wrote is not in your memory, from byte %ld on", at);
	hear_number(fd);
	ibv_dereg_mr(mr);
	tear_down(&course);
}

void peer(int fd)
{
	struct course course;
	set_up(&course, fd, (struct wishes){ .rnr_retry = 7 });
	uint64_t told[2];
	hear(fd, told, sizeof(told));
	course.peer.addr = told[0];
	course.peer.rkey = (uint32_t)told[1];
	unsigned int seed = fresh_seed();
	fill(course.buffer, BUFFER, seed);
	struct ibv_wc wc;
	if (post(&course, IBV_WR_RDMA_WRITE, BUFFER) || completion(course.cq, &wc, PATIENCE_MS) <= 0 || wc.status)
		wrong("the peer cannot write into it: %s", ibv_wc_status_str(wc.status));
	tell_number(fd, seed);
	memset(course.buffer, 0, BUFFER);
	if (wc.status == IBV_WC_SUCCESS) {
		if (post(&course, IBV_WR_RDMA_READ, BUFFER) || completion(course.cq, &wc, PATIENCE_MS) <= 0 || wc.status)
			wrong("the peer cannot read it: %s", ibv_wc_status_str(wc.status));
		else if (differs(course.buffer, BUFFER, seed) < 0)
			right("the peer has read it back");
		else
			wrong("what the peer read is not what it had written");
	}
	tell_number(fd, 0);
	tear_down(&course);
}
