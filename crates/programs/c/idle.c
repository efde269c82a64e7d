/* What connections cost that nothing is sent over.
 *
 * idle tcp|rc CONNECTIONS MILLISECONDS: two processes with so many connections, each with a
 * descriptor of its own, exchange a message over each of them and then sleep in epoll_wait. Prints
 * the processor time of both together, in percent of a core. */
#include <sys/wait.h>

#include "link.h"

/* Seconds. */
#define SETTLE 0.3

int main(int argc, char **argv)
{
    int count = argc == 4 ? atoi(argv[2]) : 0, meeting[2];
    double time = argc == 4 ? atoi(argv[3]) * 1e-3 : 0;
    if (count < 1 || time <= 0)
        die("usage: idle tcp|rc CONNECTIONS MILLISECONDS");
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, meeting))
        die("socketpair");
    pid_t child = fork();
    if (child < 0)
        die("fork");
    int side = child == 0, peer = meeting[side], set = epoll_create1(0);
    close(meeting[!side]);
    for (int i = 0; i < count; i++) {
        struct link *link = open_link(argv[1], peer, side);
        add(set, link->fd, link);
        send_message(link);
    }
    struct epoll_event event;
    for (int received = 0; received < count;) {
        if (epoll_wait(set, &event, 1, DEADLINE_SECONDS * 1000) != 1)
            die("no message");
        received += take_messages(event.data.ptr);
    }
    meet(peer);
    /* What has just come may be waited for awake, and acknowledged: that time does not count. */
    double began = now() + SETTLE, before = 0, end = began + time, left;
    int counts = 0;
    while ((left = (counts ? end : began) - now()) > 0 || !counts) {
        if (left <= 0) {
            counts = 1, began = now(), before = processor_time();
            continue;
        }
        if (epoll_wait(set, &event, 1, left * 1000 + 1) > 0)
            take_messages(event.data.ptr);
    }
    double used = (processor_time() - before) / (now() - began), theirs;
    put(peer, &used, sizeof used);
    if (!get(peer, &theirs, sizeof theirs))
        die("the peer is gone");
    if (side)
        return 0;
    waitpid(child, NULL, 0);
    printf("idle %s: %d connections, %.3f percent of a core\n", argv[1], count, (used + theirs) * 100);
    return 0;
}
