/* The device cannot be opened: NULL and errno, whatever the reason. */
#include "check.h"

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	errno = 0;
	CHECK(!ibv_open_device(list[0]) && errno != 0);
	ibv_free_device_list(list);
	puts("unopenable: ok");
	return 0;
}
