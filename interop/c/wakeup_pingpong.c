// The floor under what perftest measures by events on one host: a byte there and back between two processes that sleep in
// read(2) of a pipe until it comes.
//
// Takes perftest's options (-p PORT, -n ROUNDS; others are skipped) and prints a table as ib_send_lat does, half a round
// trip, so that whoever reads one reads both.
#include <err.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "pingpong.h"

static int open_pipe(const char *name, int flags)
{
    int pipe = open(name, flags);
    if (pipe < 0)
        err(1, "%s", name);
    return pipe;
}

int main(int argc, char **argv)
{
    int port = 18515, rounds = 1000, option;
    while ((option = getopt(argc, argv, "p:n:s:d:x:u:m:Fe")) != -1) {
        if (option == 'p')
            port = atoi(optarg);
        if (option == 'n')
            rounds = atoi(optarg);
    }
    char there[64], back[64], byte = 0;
    snprintf(there, sizeof there, "/tmp/wakeup_pingpong.%d.there", port);
    snprintf(back, sizeof back, "/tmp/wakeup_pingpong.%d.back", port);
    if (optind == argc) {
        if (mkfifo(there, 0600) || mkfifo(back, 0600))
            err(1, "%s", there);
        // That it listens says that the pipes are there.
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
        int tcp = socket(AF_INET, SOCK_STREAM, 0), one = 1;
        setsockopt(tcp, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(tcp, (struct sockaddr *)&address, sizeof address) || listen(tcp, 1))
            err(1, "port %d", port);
        int in = open_pipe(there, O_RDONLY), out = open_pipe(back, O_WRONLY);
        unlink(there);
        unlink(back);
        // Until the client hangs up.
        while (read(in, &byte, 1) == 1 && write(out, &byte, 1) == 1) {
        }
        return 0;
    }
    int out = open_pipe(there, O_WRONLY), in = open_pipe(back, O_RDONLY);
    double *times = calloc(rounds, sizeof *times);
    for (int i = 0; i < rounds; i++) {
        double began = now();
        if (write(out, &byte, 1) != 1 || read(in, &byte, 1) != 1)
            errx(1, "the server is gone");
        times[i] = (now() - began) / 2;
    }
    tell(1, rounds, times);
    return 0;
}
