/* The words and numbers of the library against those of the stock libibverbs and librdmacm, which lie beside it under
 * their absolute paths: programs print them, and scripts look for them. */
#include <dlfcn.h>
#include <strings.h>
#include <rdma/rdma_cma.h>
#include "check.h"

static int compared, newer;

static void *stock(const char *library, const char *symbol)
{
	static const char *const folders[] = { "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64" };
	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++) {
		char path[200];
		snprintf(path, sizeof(path), "%s/%s", folders[i], library);
		void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		if (handle) {
			void *found = dlsym(handle, symbol);
			CHECK(found);
			return found;
		}
	}
	fprintf(stderr, "%s: %s\n", library, dlerror());
	exit(1);
}

static int is_unknown(const char *text)
{
	return !strcasecmp(text, "unknown") || !strcasecmp(text, "unknown event");
}

/* Functions from an enum to text. Where the stock library knows a value, or both do not, the words are the same; a
 * newer release may have added values. */
#define SAME_TEXT(library, function)                                                                                 \
	do {                                                                                                             \
		const char *(*theirs)(int) = stock(library, #function), *(*mine)(int) = (void *)function;                    \
		CHECK(theirs != mine);                                                                                       \
		for (int value = -3; value < 300; value++) {                                                                 \
			const char *ours = mine(value), *real = theirs(value);                                                \
			if (strcmp(ours, real))                                                                                  \
				fprintf(stderr, #function "(%d): ours \"%s\", theirs \"%s\"\n", value, ours, real);                  \
			CHECK(!strcmp(ours, real) || (is_unknown(real) && value > 0 && ++newer));                                 \
			compared++;                                                                                              \
		}                                                                                                            \
	} while (0)

#define SAME_NUMBER(function, highest)                                                                               \
	do {                                                                                                             \
		int (*theirs)(int) = stock("libibverbs.so.1", #function), (*mine)(int) = (void *)function;                   \
		for (int value = -3; value < highest; value++) {                                                             \
			int ours = mine(value), real = theirs(value);                                                            \
			if (ours != real)                                                                                        \
				fprintf(stderr, #function "(%d): ours %d, theirs %d\n", value, ours, real);                          \
			CHECK(ours == real || ((real == -1 || real == IBV_RATE_MAX) && ++newer));                                 \
			compared++;                                                                                              \
		}                                                                                                            \
	} while (0)

int main(void)
{
	SAME_TEXT("libibverbs.so.1", ibv_node_type_str);
	SAME_TEXT("libibverbs.so.1", ibv_port_state_str);
	SAME_TEXT("libibverbs.so.1", ibv_event_type_str);
	SAME_TEXT("libibverbs.so.1", ibv_wc_status_str);
	SAME_TEXT("librdmacm.so.1", rdma_event_str);
	SAME_NUMBER(ibv_rate_to_mult, 100);
	SAME_NUMBER(mult_to_ibv_rate, 1000);
	SAME_NUMBER(ibv_rate_to_mbps, 100);
	SAME_NUMBER(mbps_to_ibv_rate, 1300000);
	CHECK(compared > 1000000 && newer < 100);
	puts("strings: ok");
	return 0;
}
