/* Ranks that agree on a sum, again and again.
 *
 * allreduce BYTES MILLISECONDS, under mpirun: prints how long an MPI_Allreduce of so many bytes
 * takes, median and 99th percentile in microseconds as rank 0 sees it, and the processor time of
 * all ranks for each. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#define MOST 1000000

static double times[MOST];

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double processor_time(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

int main(int argc, char **argv)
{
    int rank, ranks, words = argc == 3 ? atoi(argv[1]) / 8 : 0, count = 0;
    double time = argc == 3 ? atoi(argv[2]) * 1e-3 : 0, started = 0, before = 0;
    if (words < 1 || time <= 0) {
        fprintf(stderr, "usage: allreduce BYTES MILLISECONDS\n");
        return 2;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    long *mine = calloc(words, sizeof *mine), *sum = calloc(words, sizeof *sum);
    /* The first tenth of the time does not count. Rank 0 ends it by a sum below 0. */
    for (int warm = 1;;) {
        double now = MPI_Wtime();
        if (!started)
            started = now;
        if (warm && now - started > time / 10)
            warm = 0, started = now, before = processor_time();
        for (int i = 0; i < words; i++)
            mine[i] = rank + 1;
        if (rank == 0 && !warm && (now - started > time || count == MOST))
            mine[0] = -1000;
        MPI_Allreduce(mine, sum, words, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        if (sum[0] < 0)
            break;
        for (int i = 0; i < words; i++)
            if (sum[i] != ranks * (ranks + 1) / 2) {
                fprintf(stderr, "word %d is %ld\n", i, sum[i]);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
        if (!warm && count < MOST)
            times[count++] = (MPI_Wtime() - now) * 1e6;
    }
    double used = processor_time() - before, all;
    MPI_Reduce(&used, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        qsort(times, count, sizeof *times, by_size);
        printf("allreduce of %d bytes, %d ranks: median %.1f us, 99%% %.1f us, processor time %.1f us\n", words * 8, ranks,
               times[count / 2], times[count * 99 / 100], all / count * 1e6);
    }
    MPI_Finalize();
    return 0;
}
