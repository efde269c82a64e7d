/* A timer and a TCP socket beside a busy connection, in one epoll set.
 *
 * mixed none|tcp|rc MILLISECONDS: a process waits for a timer of 1 ms, for a TCP socket over which
 * another process asks it some thousand times a second, and for a connection by TCP or RC over
 * which a third process sends as soon as it is answered. Prints how late the timer was handled and
 * how long the round trips over the socket took, in microseconds, and the messages that were
 * answered beside them. */
#include <sys/timerfd.h>
#include <sys/wait.h>

#include "link.h"

#define MOST 100000

struct times {
    int count;
    double micros[MOST];
};

static void take(struct times *times, double seconds)
{
    if (times->count < MOST)
        times->micros[times->count++] = seconds * 1e6;
}

static double part(struct times *times, double share)
{
    qsort(times->micros, times->count, sizeof *times->micros, by_size);
    return times->count ? times->micros[(int)(times->count * share)] : 0;
}

/* A process at the other end of a socket. */
static int start(void (*run)(const char *, int, double), const char *what, double time)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        die("socketpair");
    pid_t child = fork();
    if (child < 0)
        die("fork");
    if (child == 0) {
        char byte;
        close(ends[0]);
        run(what, ends[1], time);
        /* Its connection stays until nobody waits for it. */
        get(ends[1], &byte, 1);
        _exit(0);
    }
    close(ends[1]);
    return ends[0];
}

/* Sleeps until a message has come. */
static void receive(int set, struct link *link)
{
    struct epoll_event event;
    do {
        if (epoll_wait(set, &event, 1, DEADLINE_SECONDS * 1000) != 1)
            die("no message");
    } while (!take_messages(link));
}

/* Sends as soon as it is answered, and says how often. */
static void busy(const char *what, int peer, double time)
{
    struct link *link = open_link(what, peer, 0);
    int set = epoll_create1(0), count = 0;
    add(set, link->fd, link);
    meet(peer);
    for (double end = now() + time; now() < end; count++) {
        send_message(link);
        receive(set, link);
    }
    put(peer, &count, sizeof count);
}

/* Asks by TCP, and rests for a millisecond. */
static void asks(const char *what, int peer, double time)
{
    static struct times times;
    struct link *link = open_link(what, peer, 0);
    int set = epoll_create1(0);
    add(set, link->fd, link);
    meet(peer);
    for (double end = now() + time; now() < end;) {
        double began = now();
        send_message(link);
        receive(set, link);
        take(&times, now() - began);
        usleep(1000);
    }
    put(peer, &times, sizeof times);
}

int main(int argc, char **argv)
{
    static struct times lates, trips;
    double time = argc == 3 ? atoi(argv[2]) * 1e-3 : 0;
    if (time <= 0)
        die("usage: mixed none|tcp|rc MILLISECONDS");
    int has_busy = strcmp(argv[1], "none"), answered = 0;
    int asker = start(asks, "tcp", time), sender = has_busy ? start(busy, argv[1], time) : -1;
    struct link *socket = open_link("tcp", asker, 1), *link = NULL;
    int set = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    add(set, socket->fd, socket);
    add(set, timer, NULL);
    if (has_busy) {
        link = open_link(argv[1], sender, 1);
        add(set, link->fd, link);
    }
    struct itimerspec every = {.it_interval.tv_nsec = 1000000};
    clock_gettime(CLOCK_MONOTONIC, &every.it_value);
    double due = every.it_value.tv_sec + every.it_value.tv_nsec * 1e-9;
    if (timerfd_settime(timer, TFD_TIMER_ABSTIME, &every, NULL))
        die("timerfd_settime");
    double before = processor_time(), began = now(), end = began + time;
    if (has_busy)
        meet(sender);
    meet(asker);
    /* The last round trips are answered, too. */
    for (double left; (left = end + 0.05 - now()) > 0;) {
        struct epoll_event events[4];
        int n = epoll_wait(set, events, 4, left * 1000 + 1);
        for (int i = 0; i < n; i++) {
            struct link *ready = events[i].data.ptr;
            if (ready) {
                for (int count = take_messages(ready); count > 0; count--) {
                    send_message(ready);
                    answered += ready == link;
                }
                continue;
            }
            uint64_t expired;
            if (read(timer, &expired, sizeof expired) != sizeof expired)
                continue;
            /* Of several that were missed the first one counts. */
            take(&lates, now() - due);
            due += expired * 1e-3;
        }
    }
    double used = processor_time() - before, passed = now() - began;
    int count = 0;
    if (!get(asker, &trips, sizeof trips) || (has_busy && (!get(sender, &count, sizeof count) || count > answered)))
        die("a process is gone");
    close(asker);
    close(sender);
    while (wait(NULL) > 0)
        ;
    printf("mixed %s: round trip median %.1f us, 99%% %.1f us; timer late median %.1f us, 99%% %.1f us; %.0f answers/s beside, "
           "%.1f percent of a core\n",
           argv[1], part(&trips, 0.5), part(&trips, 0.99), part(&lates, 0.5), part(&lates, 0.99), answered / passed,
           used / passed * 100);
    return 0;
}
