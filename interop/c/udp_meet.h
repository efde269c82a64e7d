// Two bare UDP sockets of which a TCP connection says how long they are wanted.
#include <arpa/inet.h>
#include <err.h>
#include <sys/socket.h>
#include <unistd.h>

struct pair {
    int udp;
    // Ends with the client.
    int tcp;
    struct sockaddr_in server;
};

// The client's end if there is a host to connect to, else the server's.
static struct pair meet(const char *host, int port)
{
    int udp = socket(AF_INET, SOCK_DGRAM, 0), tcp = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct pair pair = {.udp = udp, .tcp = tcp, .server = {.sin_family = AF_INET, .sin_port = htons(port)}};
    struct sockaddr *server = (struct sockaddr *)&pair.server;
    if (host) {
        if (inet_pton(AF_INET, host, &pair.server.sin_addr) != 1)
            errx(1, "no IPv4 address: %s", host);
        if (connect(tcp, server, sizeof pair.server))
            err(1, "%s", host);
    } else {
        setsockopt(tcp, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(udp, server, sizeof pair.server) || bind(tcp, server, sizeof pair.server) || listen(tcp, 1))
            err(1, "port %d", port);
        pair.tcp = accept(tcp, NULL, NULL);
    }
    return pair;
}

// Server: the client is gone.
static int parted(struct pair pair)
{
    char byte;
    return recv(pair.tcp, &byte, 1, MSG_DONTWAIT) == 0;
}
