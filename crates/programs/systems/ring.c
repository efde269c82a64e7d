/* Ranks in a ring that check every byte: the same program for any MPI.
 *
 * ring BYTES COUNT, under mpirun: each rank sends COUNT messages of BYTES to the next one and takes
 * as many from the one before it. Each message is filled anew, and looked at word by word. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t word(int from, int nth, long at)
{
    return ((uint64_t)from << 56 ^ (uint64_t)nth << 32 ^ at) * 0x9e3779b97f4a7c15;
}

int main(int argc, char **argv)
{
    long bytes = argc == 3 ? atol(argv[1]) : 0, words = bytes / 8;
    int count = argc == 3 ? atoi(argv[2]) : 0, rank, ranks;
    double time = 0, most;
    if (words < 1 || count < 1) {
        fprintf(stderr, "usage: ring BYTES COUNT\n");
        return 2;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    uint64_t *out = malloc(words * 8), *in = malloc(words * 8);
    for (int nth = 0; nth < count; nth++) {
        for (long at = 0; at < words; at++) {
            out[at] = word(rank, nth, at);
            in[at] = 0;
        }
        MPI_Barrier(MPI_COMM_WORLD);
        double began = MPI_Wtime();
        MPI_Sendrecv(out, words, MPI_UINT64_T, next, 0, in, words, MPI_UINT64_T, before, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        time += MPI_Wtime() - began;
        for (long at = 0; at < words; at++)
            if (in[at] != word(before, nth, at)) {
                fprintf(stderr, "rank %d: word %ld of message %d is wrong\n", rank, at, nth);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
    }
    MPI_Reduce(&time, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("all bytes are right: %.1f MB/s\n", words * 8.0 * count * ranks / most / 1e6);
    MPI_Finalize();
    return 0;
}
