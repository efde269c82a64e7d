"""Mooncake's transfer engine: buffers are written to another process and read back.

    transfer.py PROTOCOL BYTES COUNT

PROTOCOL is rdma or tcp. Both processes agree by themselves (P2PHANDSHAKE). What comes back is
compared.
"""

import os
import socket
import sys
import time

protocol, size, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ours, theirs = socket.socketpair()
is_client = os.fork() != 0
peer = ours if is_client else theirs
(theirs if is_client else ours).close()

import numpy
from mooncake.engine import TransferEngine

engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", protocol, "rnic0" if protocol == "rdma" else "") == 0
buffer = numpy.zeros(2 * size, dtype=numpy.uint8)
address = buffer.ctypes.data
assert engine.register_memory(address, buffer.nbytes) == 0
peer.sendall(f"{engine.get_rpc_port():8}{address:24}".encode())
told = peer.recv(32, socket.MSG_WAITALL)
if is_client:
    other, there = f"127.0.0.1:{int(told[:8])}", int(told[8:])
    used = 0
    for nth in range(count):
        buffer[:size] = numpy.frombuffer(numpy.random.default_rng(nth).bytes(size), dtype=numpy.uint8)
        began = time.perf_counter()
        assert engine.transfer_sync_write(other, address, there, size) == 0
        assert engine.transfer_sync_read(other, address + size, there, size) == 0
        used += time.perf_counter() - began
        assert (buffer[:size] == buffer[size:]).all(), f"buffer {nth} is wrong"
        buffer[size:] = 0
    print(f"all bytes are right: {2 * size * count / used / 1e6:.1f} MB/s", flush=True)
    peer.close()
    assert os.wait()[1] == 0
else:
    peer.recv(1)
# Its threads need no goodbye.
os._exit(0)
