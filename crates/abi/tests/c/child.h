/* A test of two processes: a child that answers questions over a socket. Whoever includes this has declared
 * `enum command`, with QUIT, and `struct question`, which begins with one. */
#include <linux/capability.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int child;
static pid_t pid;

static void start(void (*far_side)(int socket, int refused), int refused)
{
	int sockets[2];
	CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets));
	pid = fork();
	if (!pid) {
		close(sockets[0]);
		far_side(sockets[1], refused);
	}
	close(sockets[1]);
	child = sockets[0];
}

static void end(int how)
{
	int status;
	if (how)
		kill(pid, how);
	else
		CHECK(write(child, &(struct question){ .command = QUIT }, sizeof(struct question)) > 0);
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(how || (WIFEXITED(status) && !WEXITSTATUS(status)));
	close(child);
}

/* Root may reach everybody; this one may not. */
static void give_up_ptrace(void)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2];
	CHECK(!syscall(SYS_capget, &header, data));
	data[0].effective &= ~(1u << CAP_SYS_PTRACE);
	data[0].permitted &= ~(1u << CAP_SYS_PTRACE);
	CHECK(!syscall(SYS_capset, &header, data));
}
