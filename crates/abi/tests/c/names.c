/* Who finds the library how: DT_NEEDED, dlopen by either name, dlsym, dlvsym; and that there is one copy of it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <rdma/rdma_cma.h>
#include "check.h"

int main(void)
{
	void *linked = dlsym(RTLD_DEFAULT, "ibv_get_device_list");
	CHECK(linked == (void *)ibv_get_device_list);
	static const char *const names[] = { "libibverbs.so.1", "libibverbs.so", "librdmacm.so.1", "librdmacm.so" };
	for (int i = 0; i < 4; i++) {
		void *handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
		if (!handle)
			fprintf(stderr, "%s\n", dlerror());
		CHECK(handle);
		CHECK(dlsym(handle, "ibv_get_device_list") == linked);
		CHECK(dlvsym(handle, "ibv_get_device_list", "IBVERBS_1.1") == linked);
		CHECK(dlvsym(handle, "ibv_get_device_list", "IBVERBS_1.0") != linked);
		CHECK(dlvsym(handle, "ibv_reg_mr_iova2", "IBVERBS_1.8"));
		CHECK(!dlvsym(handle, "ibv_reg_mr_iova2", "IBVERBS_1.1"));
		CHECK(dlvsym(handle, "rdma_create_id", "RDMACM_1.0") == (void *)rdma_create_id);
		CHECK(!dlclose(handle));
	}
	Dl_info info;
	CHECK(dladdr(linked, &info));
	printf("%s\n", info.dli_fname);
	struct rdma_addrinfo *result = NULL;
	CHECK(!rdma_getaddrinfo("127.0.0.1", "1", NULL, &result) && result);
	rdma_freeaddrinfo(result);
	CHECK(!strcmp(rdma_event_str(RDMA_CM_EVENT_ESTABLISHED), "RDMA_CM_EVENT_ESTABLISHED"));
	puts("names: ok");
	return 0;
}
