package sample

import (
	"os"
	"testing"
)

// What a project has: a test that needs an RDMA device. With SAMPLE_BREAK the project has a defect:
// it asks for memory with rights that exclude each other.
func TestRegister(t *testing.T) {
	_, broken := os.LookupEnv("SAMPLE_BREAK")
	name, err := Register(4096, broken)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("registered with", name)
}
