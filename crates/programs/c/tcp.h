/* How two processes on different hosts meet before they have a queue pair. */
#ifndef TCP_H
#define TCP_H

#include "rc.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

static int listen_and_accept(int port)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1))
        die("listen on %d", port);
    int fd = accept(listener, NULL, NULL);
    if (fd < 0)
        die("accept");
    close(listener);
    return fd;
}

static int connect_to(const char *host, int port)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1 || connect(fd, (struct sockaddr *)&address, sizeof address))
        die("connect to %s:%d", host, port);
    return fd;
}

#endif
