// A table as ib_send_lat prints it.
#include <stdio.h>
#include <stdlib.h>
#include "clock.h"

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
