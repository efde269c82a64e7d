"""PyTorch RPC: tensors go to another process and come back with their sign changed.

    rpc.py TRANSPORT BYTES COUNT

TRANSPORT is one of TensorPipe's: ibv, or uv (TCP). Each tensor is random, and compared.
"""

import os
import sys
import time

transport, size, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rank = 0 if os.fork() else 1
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")

import torch
import torch.distributed.rpc as rpc

torch.set_num_threads(1)
options = rpc.TensorPipeRpcBackendOptions(
    _transports=[transport], _channels=["basic"], init_method="tcp://127.0.0.1:29500", rpc_timeout=120
)
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options)
if rank == 0:
    used = 0
    for nth in range(count):
        generator = torch.Generator().manual_seed(nth)
        tensor = torch.randint(-(2**31) + 1, 2**31 - 1, (size // 4,), dtype=torch.int32, generator=generator)
        began = time.perf_counter()
        back = rpc.rpc_sync("worker1", torch.neg, args=(tensor,))
        used += time.perf_counter() - began
        assert torch.equal(back, -tensor), f"tensor {nth} is wrong"
    # It went there and back.
    print(f"all bytes are right: {2 * size * count / used / 1e6:.1f} MB/s")
rpc.shutdown()
if rank == 0:
    assert os.wait()[1] == 0
