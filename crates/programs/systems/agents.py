"""NIXL: an agent writes buffers into another process and notifies it.

    agents.py BYTES COUNT

`UCX_TLS` says how. The process that is written to compares each buffer with what it makes itself.
"""

import os
import socket
import sys
import time

size, count = int(sys.argv[1]), int(sys.argv[2])
ours, theirs = socket.socketpair()
is_client = os.fork() != 0
peer = ours if is_client else theirs
(theirs if is_client else ours).close()

import numpy
from nixl_cu12._api import nixl_agent, nixl_agent_config


def tell(data):
    peer.sendall(len(data).to_bytes(8, "big") + data)


def told():
    return peer.recv(int.from_bytes(peer.recv(8, socket.MSG_WAITALL), "big"), socket.MSG_WAITALL)


def noise(nth):
    return numpy.frombuffer(numpy.random.default_rng(nth).bytes(size), dtype=numpy.uint8)


agent = nixl_agent("from" if is_client else "to", nixl_agent_config(backends=["UCX"]))
buffer = numpy.zeros(size, dtype=numpy.uint8)
mine = [(buffer.ctypes.data, size, 0)]
agent.register_memory([(buffer.ctypes.data, size, 0, "")], "DRAM")
tell(agent.get_agent_metadata())
name = agent.add_remote_agent(told())
name = name.decode() if isinstance(name, bytes) else name
if is_client:
    local = agent.get_xfer_descs(mine, "DRAM")
    remote = agent.get_xfer_descs([(int(told()), size, 0)], "DRAM")
    handle = agent.initialize_xfer("WRITE", local, remote, name, b"written")
    used = 0
    for nth in range(count):
        buffer[:] = noise(nth)
        began = time.perf_counter()
        state = agent.transfer(handle)
        while state == "PROC":
            state = agent.check_xfer_state(handle)
        used += time.perf_counter() - began
        assert state == "DONE", state
        assert told() == b"right", f"buffer {nth} is wrong"
    print(f"all bytes are right: {size * count / used / 1e6:.1f} MB/s", flush=True)
    peer.close()
    assert os.wait()[1] == 0
else:
    tell(str(buffer.ctypes.data).encode())
    for nth in range(count):
        while not agent.get_new_notifs().get(name):
            pass
        tell(b"right" if (buffer == noise(nth)).all() else b"wrong")
    # The other end goes first: this one has what it wants to tear down.
    peer.recv(1)
os._exit(0)
