// The floor under what perftest measures at a depth: datagrams under way between two bare sockets that spin, in batches.
//
// Takes perftest's options (-p PORT, -n DATAGRAMS, -s BYTES of each, -t how many are under way; others are skipped), and -a N:
// the server answers each N-th by a datagram of 28 bytes, as one ACK answers many packets; by default each, as a READ is
// answered. Prints a table as ib_send_bw does, so that whoever reads one reads both.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include "clock.h"
#include "udp_meet.h"

enum { BATCH = 64, ANSWER = 28 };

struct batch {
    struct mmsghdr message[BATCH];
    struct iovec part[BATCH];
    char bytes[BATCH][2048];
};

// Makes room for datagrams of at most so many bytes.
static void size(struct batch *batch, size_t bytes)
{
    for (int i = 0; i < BATCH; i++) {
        batch->part[i] = (struct iovec){batch->bytes[i], bytes};
        batch->message[i].msg_hdr = (struct msghdr){.msg_iov = &batch->part[i], .msg_iovlen = 1};
    }
}

// How many left.
static int send_some(int udp, struct batch *batch, int count)
{
    int sent = sendmmsg(udp, batch->message, count < BATCH ? count : BATCH, 0);
    return sent < 0 ? 0 : sent;
}

// How many came within so many microseconds: none, or some.
static int spin(int udp, struct batch *batch, double patience)
{
    double end = now() + patience;
    for (unsigned i = 0;; i++) {
        int n = recvmmsg(udp, batch->message, BATCH, MSG_DONTWAIT, NULL);
        if (n > 0)
            return n;
        if (i % 256 == 0 && now() > end)
            return 0;
    }
}

static void serve(struct pair pair, struct batch *in, struct batch *out, int each)
{
    struct sockaddr_in client;
    socklen_t length = sizeof client;
    // Who it is; the client's first datagram is one that it does not count.
    recvfrom(pair.udp, in->bytes[0], sizeof in->bytes[0], 0, (struct sockaddr *)&client, &length);
    if (connect(pair.udp, (struct sockaddr *)&client, sizeof client))
        err(1, "connect");
    for (int owed = 0;;) {
        int n = spin(pair.udp, in, 100e3);
        // Until the client hangs up.
        if (n == 0 && parted(pair))
            return;
        owed += n;
        while (owed >= each)
            owed -= each * send_some(pair.udp, out, owed / each);
    }
}

int main(int argc, char **argv)
{
    int port = 18515, rounds = 1000, bytes = 28, depth = 16, each = 1, option;
    while ((option = getopt(argc, argv, "p:n:s:t:a:d:x:u:m:F")) != -1) {
        int *value = option == 'p'   ? &port
                     : option == 'n' ? &rounds
                     : option == 's' ? &bytes
                     : option == 't' ? &depth
                     : option == 'a' ? &each
                                     : NULL;
        if (value)
            *value = atoi(optarg);
    }
    static struct batch in, out;
    if (bytes > (int)sizeof in.bytes[0] || depth % each)
        errx(1, "at most %zu bytes, and a depth of whole answers", sizeof in.bytes[0]);
    struct pair pair = meet(argv[optind], port);
    size(&in, sizeof in.bytes[0]);
    size(&out, argv[optind] ? bytes : ANSWER);
    if (!argv[optind]) {
        serve(pair, &in, &out, each);
        return 0;
    }
    if (connect(pair.udp, (struct sockaddr *)&pair.server, sizeof pair.server) || send(pair.udp, "", 1, 0) != 1)
        err(1, "udp");
    double began = now();
    for (int sent = 0, answered = 0; answered < rounds;) {
        if (sent - answered < depth)
            sent += send_some(pair.udp, &out, depth - (sent - answered));
        // What is not answered within a second is lost, and goes out again.
        int n = spin(pair.udp, &in, 1e6);
        answered += n * each;
        if (n == 0)
            sent = answered;
    }
    double rate = rounds / (now() - began);
    printf(" #bytes #iterations BW peak[MB/sec] BW average[MB/sec] MsgRate[Mpps]\n");
    printf(" %d %d 0 %.4f %.6f\n", bytes, rounds, rate * bytes * 1e6 / (1 << 20), rate);
    return 0;
}
