/* What a sanitizer's runtime asks of the program that it stands in. Linked into the C programs of the tests by
 * `./test sanitize` alone. */
#include <unistd.h>

static pid_t own;

__attribute__((constructor)) static void remember_own_pid(void)
{
	own = getpid();
}

/* A forked child has its parent's memory without the threads that know it: all of that would be leaks. */
int __lsan_is_turned_off(void)
{
	return getpid() != own;
}
