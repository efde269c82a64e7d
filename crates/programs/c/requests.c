/* Connections of rdma_cm that do not come about, or do not end: both sides are ids of one process.
 *
 * requests CASE PORT
 *
 *   nobody        nobody listens on the port
 *   rejected      the server calls rdma_reject
 *   destroyed     the server destroys the id of the request
 *   unanswered    the server takes the request, and does not answer
 *   too-much      the server accepts with more private data than there is room for
 *   accept-long   the server asks rdma_accept for more READs than the device has
 *   twice         the server accepts twice
 *   listener      the server accepts by the id that listens
 *   early         rdma_connect before rdma_resolve_addr
 *   again         rdma_connect twice
 *   taken         two ids listen on one port
 *   foreign       an id is bound to an address of another host
 *   no-route      the address of the peer has no route
 *   name          rdma_getaddrinfo of a name, which RAI_NUMERICHOST does not allow
 *   service       rdma_getaddrinfo of a service that /etc/services does not have
 *
 * Prints the event that the client gets, or "errno N" for the call that was refused. Ends with 3.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *what;
static struct rdma_event_channel *channel;

static int is(const char *other)
{
    return !strcmp(what, other);
}

static void failed(void)
{
    printf("errno %d\n", errno);
    fflush(stdout);
    exit(3);
}

/* The first call of many programs: no device is open yet. */
static void look_up(const char *node, const char *service, int flags)
{
    struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP}, *found;
    int code = rdma_getaddrinfo(node, service, &hints, &found);
    printf("%s\n", gai_strerror(code));
    fflush(stdout);
    exit(3);
}

static struct sockaddr *address(const char *text, int port)
{
    static struct sockaddr_in at;
    at = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, text, &at.sin_addr);
    return (struct sockaddr *)&at;
}

static struct rdma_cm_id *id(void)
{
    struct rdma_cm_id *made;
    if (rdma_create_id(channel, &made, NULL, RDMA_PS_TCP))
        failed();
    return made;
}

static void queue_pair(struct rdma_cm_id *of)
{
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
    if (rdma_create_qp(of, NULL, &init))
        failed();
}

/* The id that the next event is about. */
static struct rdma_cm_id *next(enum rdma_cm_event_type wanted)
{
    struct rdma_cm_event *event;
    if (rdma_get_cm_event(channel, &event))
        failed();
    struct rdma_cm_id *about = event->id;
    if (event->event != wanted) {
        printf("%s\n", rdma_event_str(event->event));
        fflush(stdout);
        exit(3);
    }
    rdma_ack_cm_event(event);
    return about;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    what = argv[1];
    int port = atoi(argv[2]);
    static char data[200] = {1};
    struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1, .retry_count = 3, .rnr_retry_count = 3};
    if (is("name"))
        look_up("localhost", argv[2], RAI_NUMERICHOST);
    if (is("service"))
        look_up("127.0.0.1", "no-such-service", 0);
    channel = rdma_create_event_channel();
    struct rdma_cm_id *server = id(), *client = id();
    if (is("foreign") && rdma_bind_addr(server, address("192.0.2.77", port)))
        failed();
    if (is("early") && rdma_connect(client, &param))
        failed();
    if (is("no-route") && rdma_resolve_addr(client, NULL, address("192.0.2.77", port), 1000))
        failed();
    if (!is("nobody") && (rdma_bind_addr(server, address("127.0.0.1", port)) || rdma_listen(server, 4)))
        failed();
    if (is("taken") && rdma_bind_addr(client, address("127.0.0.1", port)))
        failed();
    if (rdma_resolve_addr(client, NULL, address("127.0.0.1", port), 1000))
        failed();
    next(RDMA_CM_EVENT_ADDR_RESOLVED);
    if (rdma_resolve_route(client, 1000))
        failed();
    next(RDMA_CM_EVENT_ROUTE_RESOLVED);
    queue_pair(client);
    if (rdma_connect(client, &param) || (is("again") && rdma_connect(client, &param)))
        failed();
    struct rdma_cm_id *request = next(RDMA_CM_EVENT_CONNECT_REQUEST);
    if (is("unanswered"))
        return 3;
    if (is("rejected") && rdma_reject(request, "no", 2))
        failed();
    if (is("destroyed") && rdma_destroy_id(request))
        failed();
    if (is("rejected") || is("destroyed"))
        next(RDMA_CM_EVENT_ESTABLISHED);
    queue_pair(request);
    if (is("too-much")) {
        param.private_data = data;
        param.private_data_len = sizeof data;
    }
    if (is("accept-long"))
        param.responder_resources = 100;
    if (rdma_accept(is("listener") ? server : request, &param))
        failed();
    if (is("twice") && rdma_accept(request, &param))
        failed();
    return 2;
}
