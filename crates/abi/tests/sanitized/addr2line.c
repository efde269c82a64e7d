/* addr2line, for a sanitizer's runtime: that starts it with the environment of a program which has our library, built
 * for the sanitizer, in LD_PRELOAD. A program without the runtime would not start then; this one is linked statically. */
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	(void)argc;
	unsetenv("LD_PRELOAD");
	unsetenv("LD_LIBRARY_PATH");
	execvp("addr2line", argv);
	return 127;
}
