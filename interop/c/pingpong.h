// What the floors under perftest's latencies share: a clock, and a table as ib_send_lat prints it.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void tell(int bytes, int rounds, double *times)
{
    double sum = 0;
    for (int i = 0; i < rounds; i++)
        sum += times[i];
    qsort(times, rounds, sizeof *times, compare);
    printf(" #bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec]\n");
    printf(" %d %d %.2f %.2f %.2f %.2f\n", bytes, rounds, times[0], times[rounds - 1], times[rounds / 2], sum / rounds);
}
