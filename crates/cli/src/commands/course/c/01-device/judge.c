/* Asks for each IPv4 address of the table, and for one that nobody has. */
#include "harness.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static void look_for(const char *address, int expected, const char *bytes)
{
	int found = find_gid(address);
	if (found == expected && expected < 0)
		right("%s is no address of this machine, and you say -1", address);
	else if (found == expected)
		right("%s is at index %d", address, found);
	else if (expected < 0)
		wrong("%s is no address of this machine: -1 is expected, and you say %d", address, found);
	else
		wrong("%s is at index %d of port 1, as the bytes %s, and you say %d", address, expected, bytes, found);
}

void learner(int fd)
{
	(void)fd;
	struct course course = { 0 };
	open_device(&course, (struct wishes){ 0 });
	struct ibv_port_attr port;
	ibv_query_port(course.context, 1, &port);
	static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };
	int asked = 0;
	for (int index = port.gid_tbl_len - 1; index >= 0; index--) {
		union ibv_gid gid;
		if (ibv_query_gid(course.context, 1, index, &gid) || memcmp(gid.raw, mapped, sizeof(mapped)))
			continue;
		char address[INET_ADDRSTRLEN];
		inet_ntop(AF_INET, gid.raw + 12, address, sizeof(address));
		char bytes[40];
		snprintf(bytes, sizeof(bytes), "00 (ten times) ff ff %02x %02x %02x %02x", gid.raw[12], gid.raw[13], gid.raw[14],
			 gid.raw[15]);
		look_for(address, index, bytes);
		asked++;
	}
	if (!asked)
		stop("the course cannot go on: no GID is an IPv4 address (see `rnic devices`)");
	/* For documents: no machine has it. */
	char absent[32];
	snprintf(absent, sizeof(absent), "192.0.2.%u", 1 + fresh_seed() % 250);
	look_for(absent, -1, "");
	tear_down(&course);
}

void peer(int fd)
{
	(void)fd;
}
