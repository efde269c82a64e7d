"""What a project has: tests that need an RDMA device, by pyverbs and by programs."""

import os
import subprocess

import pyverbs.device as d
import pyverbs.enums as e
from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR


def write_to_itself(past: int) -> int:
    """RDMA WRITE of 64 bytes, `past` bytes behind the middle of the memory; return the status."""
    context = d.Context(name=d.get_device_list()[0].name.decode())
    gid = next(g for g in context.query_gid_table(64) if not g.gid_str().startswith("fe80"))
    pd, cq = PD(context), CQ(context, 16)
    caps = QPCap(max_send_wr=1, max_recv_wr=1)
    qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=caps))
    access = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
    mr = MR(pd, 128, access)
    mr.write("written " * 8, 64)
    attr = QPAttr(port_num=1)
    attr.dest_qp_num, attr.path_mtu, attr.qp_access_flags = qp.qp_num, e.IBV_MTU_1024, access
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
    attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 14, 7, 7, 12
    route = GlobalRoute(dgid=GID(gid.gid_str()), sgid_index=gid.gid_index)
    attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
    qp.to_rts(attr)
    request = SendWR(
        wr_id=1, opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(mr.buf, 64, mr.lkey)]
    )
    request.set_wr_rdma(mr.rkey, mr.buf + 64 + past)
    qp.post_send(request)
    while True:
        count, completions = cq.poll()
        if count:
            assert completions[0].status or mr.read(64, 64) == b"written " * 8
            return completions[0].status


def test_bytes_arrive() -> None:
    """With SAMPLE_BREAK the project has a defect: it writes one byte past the end of its memory."""
    assert write_to_itself(past=int("SAMPLE_BREAK" in os.environ)) == 0


def test_a_program_sees_the_device() -> None:
    """Programs that a test starts have the device, too."""
    listed = subprocess.run(["ibv_devices"], stdout=subprocess.PIPE, text=True, check=True)
    assert len(listed.stdout.splitlines()) > 2
