// The floor under what perftest measures by packets: a datagram there and back between two bare sockets that spin.
//
// Takes perftest's options (-p PORT, -n ROUNDS, -s BYTES of the datagram; others are skipped) and prints a table as
// ib_send_lat does, half a round trip, so that whoever reads one reads both.
#include "pingpong.h"
#include "udp_meet.h"

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
    struct sockaddr_in peer;
    struct pair pair = meet(argv[optind], port);
    if (!argv[optind]) {
        // Until the client hangs up.
        for (;;) {
            ssize_t n = spin(pair.udp, buffer, sizeof buffer, &peer, 100e3);
            if (n >= 0)
                sendto(pair.udp, buffer, n, 0, (struct sockaddr *)&peer, sizeof peer);
            else if (parted(pair))
                return 0;
        }
    }
    double *times = calloc(rounds, sizeof *times);
    for (int i = 0; i < rounds; i++) {
        ssize_t n;
        do {
            double began = now();
            sendto(pair.udp, buffer, bytes, 0, (struct sockaddr *)&pair.server, sizeof pair.server);
            n = spin(pair.udp, buffer, sizeof buffer, &peer, 1e6);
            times[i] = (now() - began) / 2;
        } while (n < 0);
    }
    tell(bytes, rounds, times);
    return 0;
}
