"""Moves a guest from one QEMU to another, and compares its memory.

    migrate.py URI FROM TO BYTES

FROM and TO are the sockets of QMP, QEMU's protocol for programs. The guest's memory from 64 MiB on
is written to a file on both sides, BYTES of it. QEMU itself says how fast it was.
"""

import filecmp
import json
import socket
import sys
import time


class Qemu:
    def __init__(self, path):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(path)
        self.file = connection.makefile("rw")
        json.loads(self.file.readline())
        self.ask("qmp_capabilities")

    def ask(self, what, **arguments):
        self.file.write(json.dumps({"execute": what, "arguments": arguments}) + "\n")
        self.file.flush()
        while True:
            answer = json.loads(self.file.readline())
            if "event" in answer:
                continue
            assert "return" in answer, f"{what}: {answer}"
            return answer["return"]


uri, source, target, size = sys.argv[1], Qemu(sys.argv[2]), Qemu(sys.argv[3]), int(sys.argv[4])
source.ask("migrate-set-parameters", **{"max-bandwidth": 10**11})
source.ask("pmemsave", val=1 << 26, size=size, filename="before")
source.ask("migrate", uri=uri)
while (state := source.ask("query-migrate"))["status"] not in ("completed", "failed"):
    time.sleep(0.02)
assert state["status"] == "completed", state
while target.ask("query-status")["status"] == "inmigrate":
    time.sleep(0.02)
target.ask("pmemsave", val=1 << 26, size=size, filename="after")
assert filecmp.cmp("before", "after", shallow=False), "the memory is not the same"
with open("before", "rb") as file:
    assert any(file.read(4096)), "the memory is empty"
seconds = (state["total-time"] - state["setup-time"]) / 1e3
ram = state["ram"]["transferred"]
print(f"all bytes are right: {ram / seconds / 1e6:.1f} MB/s ({ram / 1e6:.0f} MB in {seconds:.2f} s, downtime {state['downtime']} ms)")
for qemu in (source, target):
    qemu.ask("quit")
