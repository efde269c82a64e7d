"""What the tests share: an rnic to test, and programs that use it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 10):
    from importlib.metadata import entry_points

    INSTALLED = bool([e for e in entry_points(group="pytest11") if e.name == "rnic"])
else:
    from importlib.metadata import entry_points

    INSTALLED = any(e.name == "rnic" for e in entry_points().get("pytest11", []))

#: Options that load the plug-in where the wheel is not installed.
PLUGIN = [] if INSTALLED else ["-p", "rnic.pytest_plugin"]

#: Two connected queue pairs of one process, and a work request of each kind that may fail.
PAIR = '''
import pyverbs.device as d
import pyverbs.enums as e
from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR


class Pair:
    """Two connected queue pairs over 127.0.0.1, and memory of 4096 bytes for both."""

    def __init__(self):
        self.context = d.Context(name="rnic0")
        table = self.context.query_gid_table(64)
        ends = ("7f00:0001", "127.0.0.1")
        gid = next(g for g in table if g.gid_str().endswith(ends))
        self.pd, self.cq = PD(self.context), CQ(self.context, 16)
        caps = QPCap(max_send_wr=4, max_recv_wr=4)
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=caps)
        self.left, self.right = QP(self.pd, init), QP(self.pd, init)
        access = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
        self.mr = MR(self.pd, 4096, access)
        for qp, peer in ((self.left, self.right), (self.right, self.left)):
            attr = QPAttr(port_num=1)
            attr.dest_qp_num, attr.path_mtu = peer.qp_num, e.IBV_MTU_1024
            attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
            attr.qp_access_flags = access
            attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 14, 7, 7, 12
            route = GlobalRoute(dgid=GID(gid.gid_str()), sgid_index=gid.gid_index)
            attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
            qp.to_rts(attr)

    def write(self, offset=0, length=64):
        """RDMA WRITE into the own memory at an offset; return the status."""
        request = SendWR(wr_id=1, opcode=e.IBV_WR_RDMA_WRITE, num_sge=1,
                         sg=[SGE(self.mr.buf, length, self.mr.lkey)])
        request.set_wr_rdma(self.mr.rkey, self.mr.buf + offset)
        self.left.post_send(request)
        while True:
            count, completions = self.cq.poll()
            if count:
                return completions[0].status
'''


def need(there: object, what: str) -> None:
    """Skip the test without something, or fail where nothing may be skipped."""
    if there:
        return
    if os.environ.get("RNIC_TEST_NO_SKIP") or os.environ.get("CI") in ("true", "1"):
        pytest.fail(f"{what} is missing")
    line = f"SKIPPED python: {what} is missing\n"
    print(line, end="", file=sys.__stderr__)
    if os.environ.get("RNIC_SKIP_LOG"):
        with Path(os.environ["RNIC_SKIP_LOG"]).open("a") as log:
            log.write(line)
    pytest.skip(f"{what} is missing")


def need_program(name: str) -> None:
    """Skip the test without a program."""
    need(shutil.which(name), name)


@pytest.fixture
def tests(plain: pytest.Pytester) -> pytest.Pytester:
    """Return a folder for tests that use pyverbs, and for pytest to run them."""
    need(has("pyverbs"), "pyverbs (Debian: python3-pyverbs, with /usr/bin/python3)")
    return plain


@pytest.fixture
def plain(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Return a folder for tests that any Python can run, and for pytest to run them."""
    pytester.makepyfile(pair=PAIR, wait=WAIT)
    for name in ("LD_PRELOAD", "RNIC_REPORT", "RNIC_PCAP", "RNIC_FAULTS"):
        monkeypatch.delenv(name, raising=False)
    source = str(Path(__file__).resolve().parent.parent)
    if not INSTALLED:
        monkeypatch.setenv("PYTHONPATH", source)
    return pytester


#: Waits until a program listens on a TCP port: its output may come only at its end.
WAIT = """
import time

def wait_for_listener(port):
    for _ in range(1200):
        with open("/proc/net/tcp") as table:
            lines = [line.split() for line in table][1:]
        if any(line[3] == "0A" and line[1].endswith(f":{port:04X}") for line in lines):
            return
        time.sleep(0.05)
    raise TimeoutError(f"nobody listens on port {port}")
"""


def wait_for_listener(port: int) -> None:
    """Wait until a program listens on a TCP port."""
    names: dict[str, Any] = {}
    exec(WAIT, names)  # noqa: S102
    names["wait_for_listener"](port)


def has(module: str) -> bool:
    """Tell whether a module can be imported."""
    return importlib.util.find_spec(module) is not None
