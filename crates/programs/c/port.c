/* What two contexts of one process see of the port; does what it is told on standard input, a word a line:
 *
 *   event     waits for the next asynchronous event of either context: "event TYPE port PORT", which both must have
 *   quiet     no event waits: "quiet"
 *   table     the rows of the GID table: "row INDEX GID" each, then "state STATE"
 *
 * "ready" is printed once the device is open. Ends with its input.
 */
#include "rc.h"

#include <arpa/inet.h>
#include <fcntl.h>

static void print_table(struct ibv_context *context)
{
    struct ibv_gid_entry rows[64];
    ssize_t count = ibv_query_gid_table(context, rows, 64, 0);
    if (count < 0)
        die("ibv_query_gid_table gives %zd", count);
    for (ssize_t i = 0; i < count; i++) {
        union ibv_gid gid;
        if (ibv_query_gid(context, 1, rows[i].gid_index, &gid) || memcmp(&gid, &rows[i].gid, sizeof gid))
            die("ibv_query_gid %u says something else", rows[i].gid_index);
        char text[INET6_ADDRSTRLEN];
        inet_ntop(AF_INET6, gid.raw, text, sizeof text);
        say("row %u %s", rows[i].gid_index, text);
    }
    struct ibv_port_attr port;
    if (ibv_query_port(context, 1, &port))
        die("ibv_query_port");
    say("state %d", port.state);
}

int main(void)
{
    struct ibv_context *contexts[2] = {open_device(), open_device()};
    struct ibv_async_event events[2];
    say("ready");
    char line[32];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (!strcmp(line, "table")) {
            print_table(contexts[0]);
        } else if (!strcmp(line, "event")) {
            for (int i = 0; i < 2; i++) {
                if (ibv_get_async_event(contexts[i], &events[i]))
                    die("ibv_get_async_event");
                ibv_ack_async_event(&events[i]);
            }
            if (memcmp(&events[0].element.port_num, &events[1].element.port_num, sizeof(int)) ||
                events[0].event_type != events[1].event_type)
                die("the contexts differ: %d, %d", events[0].event_type, events[1].event_type);
            say("event %d port %d", events[0].event_type, events[0].element.port_num);
        } else if (!strcmp(line, "quiet")) {
            for (int i = 0; i < 2; i++) {
                struct pollfd fd = {.fd = contexts[i]->async_fd, .events = POLLIN};
                if (poll(&fd, 1, 0))
                    die("an event waits");
            }
            say("quiet");
        } else {
            die("%s?", line);
        }
    }
    for (int i = 0; i < 2; i++)
        if (ibv_close_device(contexts[i]))
            die("ibv_close_device");
    return 0;
}
