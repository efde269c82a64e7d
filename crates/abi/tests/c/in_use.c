/* Ends a completion queue before its queue pair, and does nothing else wrong. */
#include "check.h"

int main(void)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd);
	struct side side = make_side(pd, NULL);
	destroy_side(&side);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("in_use: ok");
	return 0;
}
