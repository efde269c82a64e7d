/* rsockets without rdma-core's librdmacm: every call fails with ENOSYS. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>

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

	struct sockaddr_storage addr = { .ss_family = AF_INET };
	socklen_t length = sizeof addr;
	struct iovec vec = { &byte, 1 };
	struct msghdr message = { .msg_iov = &vec, .msg_iovlen = 1 };
	fd_set set;
	int value = 0;
	FD_ZERO(&set);
	FAILS(rbind(3, (struct sockaddr *)&addr, length));
	FAILS(rlisten(3, 1));
	FAILS(raccept(3, NULL, NULL));
	FAILS(rconnect(3, (struct sockaddr *)&addr, length));
	FAILS(rshutdown(3, SHUT_RDWR));
	FAILS(rrecv(3, &byte, 1, 0));
	FAILS(rrecvfrom(3, &byte, 1, 0, NULL, NULL));
	FAILS(rrecvmsg(3, &message, 0));
	FAILS(rsendto(3, &byte, 1, 0, (struct sockaddr *)&addr, length));
	FAILS(rsendmsg(3, &message, 0));
	FAILS(rread(3, &byte, 1));
	FAILS(rreadv(3, &vec, 1));
	FAILS(rwrite(3, &byte, 1));
	FAILS(rwritev(3, &vec, 1));
	FAILS(rselect(1, &set, NULL, NULL, NULL));
	FAILS(rgetpeername(3, (struct sockaddr *)&addr, &length));
	FAILS(rgetsockname(3, (struct sockaddr *)&addr, &length));
	FAILS(rsetsockopt(3, SOL_SOCKET, SO_REUSEADDR, &value, sizeof value));
	FAILS(rgetsockopt(3, SOL_SOCKET, SO_REUSEADDR, &value, &length));
	FAILS(riounmap(3, &byte, 1));
	/* Later than some headers. */
	int (*repoll_create)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "repoll_create");
	int (*repoll_ctl)(int, int, int, void *) = (int (*)(int, int, int, void *))dlsym(RTLD_DEFAULT, "repoll_ctl");
	int (*repoll_wait)(int, void *, int, int) = (int (*)(int, void *, int, int))dlsym(RTLD_DEFAULT, "repoll_wait");
	CHECK(repoll_create && repoll_ctl && repoll_wait);
	FAILS(repoll_create(0));
	FAILS(repoll_ctl(3, 1, 3, NULL));
	FAILS(repoll_wait(3, NULL, 1, 0));
	puts("no_rsockets: ok");
	return 0;
}
