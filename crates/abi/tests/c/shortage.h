/* Memory runs out: each allocation of the process can be told to fail, the n-th or all from then on. */
#ifndef SHORTAGE_H
#define SHORTAGE_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What the C library calls its own, behind the names that this program takes over. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void *__libc_memalign(size_t align, size_t size);

/* Which allocation of this thread fails, counted from 1; 0: none. `for_good`: so do all that follow. */
static __thread unsigned failing, counted;
static __thread int for_good;
/* All allocations of all threads fail. */
static atomic_int exhausted;
/* So do all new threads. */
static atomic_int no_threads;

static int fails(void)
{
	if (atomic_load(&exhausted))
		return 1;
	if (!failing)
		return 0;
	counted++;
	return for_good ? counted >= failing : counted == failing;
}

static inline void fail_from(unsigned which, int all)
{
	failing = which;
	for_good = all;
	counted = 0;
}

/* Ends that; gives whether the allocation was reached that was to fail. */
static inline int end_failing(void)
{
	int reached = counted >= failing;
	failing = 0;
	return reached;
}

void *malloc(size_t size)
{
	if (!fails())
		return __libc_malloc(size);
	errno = ENOMEM;
	return NULL;
}

void *calloc(size_t count, size_t size)
{
	if (!fails())
		return __libc_calloc(count, size);
	errno = ENOMEM;
	return NULL;
}

void *realloc(void *block, size_t size)
{
	if (!fails())
		return __libc_realloc(block, size);
	errno = ENOMEM;
	return NULL;
}

int posix_memalign(void **block, size_t align, size_t size)
{
	*block = fails() ? NULL : __libc_memalign(align, size);
	return *block ? 0 : ENOMEM;
}

void *aligned_alloc(size_t align, size_t size)
{
	void *block;
	return posix_memalign(&block, align, size) ? NULL : block;
}

void *mmap(void *at, size_t length, int rights, int flags, int fd, off_t offset)
{
	if (!fails())
		return (void *)syscall(SYS_mmap, at, length, rights, flags, fd, offset);
	errno = ENOMEM;
	return MAP_FAILED;
}

static int (*real_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg)
{
	if (atomic_load(&no_threads))
		return EAGAIN;
	return real_create(thread, attr, start, arg);
}

#endif
