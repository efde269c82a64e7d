/* What a recorder of socket calls must not disturb: errno, signal handlers that use sockets, children of vfork(2) and fork(2),
 * a program that closes all descriptors. Ends with status 0 if all is as without one.
 *
 * undisturbed PORT: sends and receives 5 x 1000 messages of 10 bytes over TCP with itself, half of them by read(2), write(2). */
#define _GNU_SOURCE
#include "rc.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { COUNT = 1000, SIZE = 10 };

static int ends[2];
static volatile sig_atomic_t alarms;

static void connect_ends(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1) ||
        connect(ends[0], (struct sockaddr *)&address, sizeof address) || (ends[1] = accept(listener, NULL, NULL)) < 0)
        die("connect with itself");
    close(listener);
}

/* A message there and one back. errno is what it was. */
static void trips(void)
{
    char bytes[SIZE];
    memset(bytes, 7, SIZE);
    errno = 77;
    for (int i = 0; i < COUNT; i++) {
        int from = i & 1;
        ssize_t sent = i & 2 ? write(ends[from], bytes, SIZE) : send(ends[from], bytes, SIZE, 0);
        ssize_t received = i & 2 ? read(ends[!from], bytes, SIZE) : recv(ends[!from], bytes, SIZE, MSG_WAITALL);
        if (sent != SIZE || received != SIZE || bytes[SIZE - 1] != 7 || errno != 77)
            die("trip %d: %zd sent, %zd received", i, sent, received);
    }
}

/* A handler may use sockets in the middle of a call of the program's. */
static void on_alarm(int signal)
{
    (void)signal;
    int before = errno;
    char byte = 0;
    errno = 0;
    if (recv(ends[0], &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno != EAGAIN)
        _exit(9);
    errno = before;
    alarms++;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        die("usage: undisturbed PORT");
    connect_ends(atoi(argv[1]));
    trips();

    /* A call that fails says why. */
    char byte;
    errno = 0;
    if (read(-1, &byte, 1) != -1 || errno != EBADF)
        die("read of no descriptor");
    if (recv(ends[0], &byte, 1, MSG_DONTWAIT) != -1 || errno != EAGAIN)
        die("recv of nothing");

    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    while (!alarms)
        ;
    trips();
    setitimer(ITIMER_REAL, &never, NULL);

    pid_t child = vfork();
    if (!child) {
        close(ends[0]);
        close(ends[1]);
        execl("/bin/true", "true", NULL);
        _exit(1);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status)
        die("vfork");
    trips();

    /* What it sends counts, though it is killed. */
    child = fork();
    if (!child) {
        trips();
        raise(SIGKILL);
    }
    if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status))
        die("fork");

    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    connect_ends(atoi(argv[1]));
    trips();
    printf("undisturbed\n");
    return 0;
}
