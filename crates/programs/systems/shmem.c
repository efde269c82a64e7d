/* OpenSHMEM: PEs in a ring put into each other's symmetric heap, and add to a counter of PE 0.
 *
 * shmem BYTES COUNT, under oshrun: every put is looked at word by word, and the sum of all
 * additions. */
#include <shmem.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t word(int from, int nth, long at)
{
    return ((uint64_t)from << 56 ^ (uint64_t)nth << 32 ^ at) * 0x9e3779b97f4a7c15;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    long bytes = argc == 3 ? atol(argv[1]) : 0, words = bytes / 8;
    int count = argc == 3 ? atoi(argv[2]) : 0;
    double time = 0;
    if (words < 1 || count < 1) {
        fprintf(stderr, "usage: shmem BYTES COUNT\n");
        return 2;
    }
    shmem_init();
    int me = shmem_my_pe(), all = shmem_n_pes(), next = (me + 1) % all, before = (me + all - 1) % all;
    uint64_t *in = shmem_malloc(words * 8), *out = malloc(words * 8);
    long *sum = shmem_malloc(sizeof *sum);
    *sum = 0;
    shmem_barrier_all();
    for (int nth = 0; nth < count; nth++) {
        for (long at = 0; at < words; at++) {
            out[at] = word(me, nth, at);
            in[at] = 0;
        }
        shmem_barrier_all();
        double began = now();
        shmem_putmem(in, out, words * 8, next);
        shmem_long_atomic_add(sum, me + 1, 0);
        shmem_quiet();
        shmem_barrier_all();
        time += now() - began;
        for (long at = 0; at < words; at++)
            if (in[at] != word(before, nth, at)) {
                fprintf(stderr, "PE %d: word %ld of put %d is wrong\n", me, at, nth);
                shmem_global_exit(1);
            }
    }
    shmem_barrier_all();
    if (me == 0) {
        if (*sum != (long)count * all * (all + 1) / 2) {
            fprintf(stderr, "the sum is %ld\n", *sum);
            shmem_global_exit(1);
        }
        printf("all bytes are right: %.1f MB/s\n", words * 8.0 * count * all / time / 1e6);
    }
    shmem_barrier_all();
    /* Not shmem_finalize: after that Open MPI 4.1.4 over UCX's TCP ends with SIGSEGV. */
    shmem_global_exit(0);
}
