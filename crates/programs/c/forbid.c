/* Forbids a system call, as the runtimes of containers do.
 *
 * forbid NAME PROGRAM [ARGUMENTS]
 *
 * From then on the call fails with EPERM, in all processes.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
    const char *name;
    unsigned number;
} CALLS[] = {
    {"timerfd_create", SYS_timerfd_create},
    {"eventfd", SYS_eventfd2},
    {"epoll_create1", SYS_epoll_create1},
    {"socket", SYS_socket},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 2 && i < sizeof CALLS / sizeof *CALLS; i++) {
        if (strcmp(CALLS[i].name, argv[1]))
            continue;
        struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CALLS[i].number, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
            perror("seccomp");
            return 8;
        }
        execvp(argv[2], argv + 2);
        perror("exec");
        return 7;
    }
    fprintf(stderr, "usage: forbid NAME PROGRAM [ARGUMENTS]\n");
    return 9;
}
