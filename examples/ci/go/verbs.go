// Package sample is a sample of a Go project over libibverbs, by cgo.
package sample

/*
#cgo LDFLAGS: -libverbs
#include <stdlib.h>
#include <infiniband/verbs.h>

// ibv_reg_mr is a macro.
static struct ibv_mr *sample_reg_mr(struct ibv_pd *pd, void *memory, size_t length, int access)
{
	return ibv_reg_mr(pd, memory, length, access);
}
*/
import "C"

import "fmt"

// Register opens the first RDMA device and registers that many bytes of memory, for remote writes
// alone if remoteOnly is set: such memory no device takes. It returns the device's name.
func Register(bytes int, remoteOnly bool) (string, error) {
	var count C.int
	devices := C.ibv_get_device_list(&count)
	if devices == nil || count == 0 {
		return "", fmt.Errorf("no RDMA device")
	}
	defer C.ibv_free_device_list(devices)
	name := C.GoString(C.ibv_get_device_name(*devices))
	context, err := C.ibv_open_device(*devices)
	if context == nil {
		return name, fmt.Errorf("ibv_open_device: %w", err)
	}
	defer C.ibv_close_device(context)
	pd, err := C.ibv_alloc_pd(context)
	if pd == nil {
		return name, fmt.Errorf("ibv_alloc_pd: %w", err)
	}
	defer C.ibv_dealloc_pd(pd)
	memory := C.malloc(C.size_t(bytes))
	defer C.free(memory)
	access := C.int(C.IBV_ACCESS_REMOTE_WRITE)
	if !remoteOnly {
		access |= C.IBV_ACCESS_LOCAL_WRITE
	}
	region, err := C.sample_reg_mr(pd, memory, C.size_t(bytes), access)
	if region == nil {
		return name, fmt.Errorf("ibv_reg_mr: %w", err)
	}
	C.ibv_dereg_mr(region)
	return name, nil
}
