/* rsockets without rdma-core's librdmacm: every call fails with ENOSYS. */
#include <fcntl.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "check.h"

#define FAILS(call) CHECK((errno = 0, (call)) == -1 && errno == ENOSYS)

int main(void)
{
	char byte = 0;
	struct pollfd fds = { .fd = 0, .events = POLLIN };

	FAILS(rsocket(AF_INET, SOCK_STREAM, 0));
	FAILS(rsend(3, &byte, 1, 0));
	FAILS(rpoll(&fds, 1, 0));
	FAILS(rfcntl(3, F_GETFL));
	FAILS(riomap(3, &byte, 1, PROT_WRITE, 0, -1));
	CHECK((ssize_t)riowrite(3, &byte, 1, 0, 0) == -1);
	FAILS(rclose(3));
	puts("no_rsockets: ok");
	return 0;
}
