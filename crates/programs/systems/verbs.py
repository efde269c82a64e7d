"""rdma-core's Python bindings: a process writes into the memory of another, which looks at it.

    verbs.py rdma|tcp BYTES COUNT

Both ends agree over a TCP connection. With `tcp` the bytes take that connection, too.
"""

import hashlib
import os
import socket
import sys
import time

how, size, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
listener = socket.create_server(("127.0.0.1", 0))
is_client = os.fork() != 0
if is_client:
    peer = socket.create_connection(listener.getsockname())
else:
    peer = listener.accept()[0]
peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def said(count):
    text = bytearray()
    while len(text) < count:
        part = peer.recv(count - len(text))
        assert part, "the peer has gone"
        text += part
    return bytes(text)


def pattern(nth):
    return hashlib.shake_128(nth.to_bytes(8, "big")).digest(size)


def rdma():
    import pyverbs.enums as e
    from pyverbs.addr import GID, AHAttr, GlobalRoute
    from pyverbs.cq import CQ
    from pyverbs.device import Context
    from pyverbs.mr import MR
    from pyverbs.pd import PD
    from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
    from pyverbs.wr import SGE, SendWR

    context = Context(name="rnic0")
    entry = next(e for e in context.query_gid_table(64) if e.gid_str().endswith("7f00:0001") or "127.0.0.1" in e.gid_str())
    pd, cq = PD(context), CQ(context, 64)
    qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=64, max_recv_wr=1)))
    mr = MR(pd, size, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE)
    peer.sendall(b"%16d%20d%16d" % (qp.qp_num, mr.buf, mr.rkey))
    told = said(52)
    number, address, rkey = int(told[:16]), int(told[16:36]), int(told[36:])
    attr = QPAttr(port_num=1)
    attr.dest_qp_num, attr.path_mtu, attr.max_rd_atomic, attr.max_dest_rd_atomic = number, e.IBV_MTU_4096, 1, 1
    attr.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE
    attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 14, 7, 7, 12
    attr.ah_attr = AHAttr(gr=GlobalRoute(dgid=GID(entry.gid_str()), sgid_index=entry.gid_index), is_global=1, port_num=1)
    qp.to_rts(attr)
    request = SendWR(opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(mr.buf, size, mr.lkey)])
    request.set_wr_rdma(rkey, address)

    def send(data):
        mr.write(data, size)
        began = time.perf_counter()
        qp.post_send(request)
        while True:
            found, completions = cq.poll()
            if found:
                assert completions[0].status == e.IBV_WC_SUCCESS, completions[0]
                return time.perf_counter() - began

    # The objects go when nothing holds them.
    return send, lambda: mr.read(size, 0), (context, pd, cq, qp, mr)


def tcp():
    def send(data):
        began = time.perf_counter()
        peer.sendall(data)
        assert said(1) == b"g"
        return time.perf_counter() - began

    def receive():
        data = said(size)
        peer.sendall(b"g")
        return data

    return send, receive, None


send, receive, _held = {"rdma": rdma, "tcp": tcp}[how]()
if is_client:
    used = 0
    for nth in range(count):
        used += send(pattern(nth))
        # It is there; and it was right.
        peer.sendall(b"t")
        assert said(1) == b"y", f"message {nth} is wrong"
    print(f"all bytes are right: {size * count / used / 1e6:.1f} MB/s")
    assert os.wait()[1] == 0
else:
    for nth in range(count):
        if how == "tcp":
            data = receive()
            assert said(1) == b"t"
        else:
            assert said(1) == b"t"
            data = receive()
        peer.sendall(b"y" if data == pattern(nth) else b"n")
