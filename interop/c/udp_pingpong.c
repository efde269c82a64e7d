// The floor under what perftest measures by packets: a datagram there and back between two bare sockets that spin.
//
// Takes perftest's options (-p PORT, -n ROUNDS, -s BYTES of the datagram; others are skipped) and prints a table as
// ib_send_lat does, half a round trip, so that whoever reads one reads both.
#include <arpa/inet.h>
#include <err.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "pingpong.h"

// A second without an answer: the datagram is lost, and goes out again.
static ssize_t spin(int udp, char *buffer, size_t size, struct sockaddr_in *from, double patience)
{
    double end = now() + patience;
    for (unsigned i = 0;; i++) {
        socklen_t length = sizeof *from;
        ssize_t n = recvfrom(udp, buffer, size, MSG_DONTWAIT, (struct sockaddr *)from, &length);
        if (n >= 0 || (i % 256 == 0 && now() > end))
            return n;
    }
}

int main(int argc, char **argv)
{
    int port = 18515, rounds = 1000, bytes = 28, option;
    while ((option = getopt(argc, argv, "p:n:s:d:x:u:m:F")) != -1) {
        if (option == 'p')
            port = atoi(optarg);
        if (option == 'n')
            rounds = atoi(optarg);
        if (option == 's')
            bytes = atoi(optarg);
    }
    static char buffer[65536];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)}, peer;
    int udp = socket(AF_INET, SOCK_DGRAM, 0), tcp = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(tcp, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (optind == argc) {
        if (bind(udp, (struct sockaddr *)&address, sizeof address) ||
            bind(tcp, (struct sockaddr *)&address, sizeof address) || listen(tcp, 1))
            err(1, "port %d", port);
        int client = accept(tcp, NULL, NULL);
        // Until the client hangs up.
        for (;;) {
            ssize_t n = spin(udp, buffer, sizeof buffer, &peer, 100e3);
            if (n >= 0)
                sendto(udp, buffer, n, 0, (struct sockaddr *)&peer, sizeof peer);
            else if (recv(client, buffer, 1, MSG_DONTWAIT) == 0)
                return 0;
        }
    }
    if (inet_pton(AF_INET, argv[optind], &address.sin_addr) != 1)
        errx(1, "no IPv4 address: %s", argv[optind]);
    if (connect(tcp, (struct sockaddr *)&address, sizeof address))
        err(1, "%s", argv[optind]);
    double *times = calloc(rounds, sizeof *times);
    for (int i = 0; i < rounds; i++) {
        ssize_t n;
        do {
            double began = now();
            sendto(udp, buffer, bytes, 0, (struct sockaddr *)&address, sizeof address);
            n = spin(udp, buffer, sizeof buffer, &peer, 1e6);
            times[i] = (now() - began) / 2;
        } while (n < 0);
    }
    tell(bytes, rounds, times);
    return 0;
}
