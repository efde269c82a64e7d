/* The vendors' provider libraries, which programs link for their own devices: they load against the library, with all the
 * private symbols they need, and find that this device is none of theirs. */
#include <dirent.h>
#include <dlfcn.h>
#include <stdbool.h>
#include "check.h"

static void *open_library(const char *path)
{
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		fprintf(stderr, "%s\n", dlerror());
	CHECK(handle);
	return handle;
}

static void *function(const char *library, const char *name)
{
	void *found = dlsym(open_library(library), name);
	CHECK(found);
	return found;
}

int main(void)
{
	static const char *const folders[] = { "/usr/lib/x86_64-linux-gnu/libibverbs", "/usr/lib/aarch64-linux-gnu/libibverbs",
		"/usr/lib64/libibverbs" };
	DIR *folder = NULL;
	size_t at = 0;
	while (!folder && at < 3)
		folder = opendir(folders[at++]);
	CHECK(folder);
	int loaded = 0;
	for (struct dirent *entry; (entry = readdir(folder));) {
		if (!strstr(entry->d_name, "-rdmav"))
			continue;
		char path[1000];
		snprintf(path, sizeof(path), "%s/%s", folders[at - 1], entry->d_name);
		open_library(path);
		loaded++;
	}
	closedir(folder);
	CHECK(loaded > 10);

	/* Their constructors have registered drivers meanwhile: the list is what it was. */
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list && count == 1 && !strcmp(ibv_get_device_name(list[0]), "rnic0"));
	bool (*mlx5_supported)(struct ibv_device *) = function("libmlx5.so.1", "mlx5dv_is_supported");
	CHECK(!mlx5_supported(list[0]));
	struct ibv_context *context = ibv_open_device(list[0]);
	CHECK(context);
	int (*mlx5_query)(struct ibv_context *, void *) = function("libmlx5.so.1", "mlx5dv_query_device");
	char attributes[1024] = { 0 };
	CHECK(mlx5_query(context, attributes) == EOPNOTSUPP);
	void *(*mlx5_create)(struct ibv_context *, void *, void *) = function("libmlx5.so.1", "mlx5dv_create_cq");
	char init[1024] = { 0 };
	CHECK(!mlx5_create(context, init, init) && errno == EOPNOTSUPP);
	int (*efa_query)(struct ibv_context *, void *, uint32_t) = function("libefa.so.1", "efadv_query_device");
	CHECK(efa_query(context, attributes, sizeof(attributes)) == EOPNOTSUPP);
	CHECK(!ibv_close_device(context));
	ibv_free_device_list(list);
	puts("providers: ok");
	return 0;
}
