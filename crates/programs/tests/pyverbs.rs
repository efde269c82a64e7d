//! rdma-core's Python bindings list and query the device, and use its objects.

use rnic_programs::{Trial, User, skip};
use std::process::Command;

const SCRIPT: &str = r#"
import pyverbs.device as d
from pyverbs.pd import PD
from pyverbs.mr import MR
from pyverbs.cq import CQ, CQEX, CqInitAttrEx, PollCqAttr
from pyverbs.qp import DataBuffer, QPAttr, QPCap, QPEx, QPInitAttrEx
from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.wr import RecvWR, SGE
import pyverbs.enums as e

def connect(qp, peer, gid, index):
    attr = QPAttr(port_num=1)
    attr.dest_qp_num, attr.path_mtu, attr.max_rd_atomic, attr.max_dest_rd_atomic = peer, e.IBV_MTU_1024, 1, 1
    attr.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE
    attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 14, 7, 7, 12
    attr.ah_attr = AHAttr(gr=GlobalRoute(dgid=GID(gid), sgid_index=index), is_global=1, port_num=1)
    qp.to_rts(attr)

def traffic(context, table):
    """A batch of the extended queue pair, read through the extended completion queue."""
    entry = next(e for e in table if "127.0.0.1" in e.gid_str() or e.gid_str().endswith("7f00:0001"))
    flags = e.IBV_WC_STANDARD_FLAGS | e.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
    with PD(context) as pd, CQEX(context, CqInitAttrEx(cqe=20, wc_flags=flags)) as cq, CQ(context, 20) as plain:
        def make(cq, **more):
            caps = QPCap(max_send_wr=4, max_recv_wr=4, max_inline_data=32)
            return QPEx(context, QPInitAttrEx(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=caps, pd=pd,
                                              comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, **more))
        ops = e.IBV_QP_EX_WITH_SEND_WITH_IMM | e.IBV_QP_EX_WITH_RDMA_WRITE
        left, right = make(cq, send_ops_flags=ops), make(plain, send_ops_flags=ops)
        mr = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE)
        connect(left, right.qp_num, entry.gid_str(), entry.gid_index)
        connect(right, left.qp_num, entry.gid_str(), entry.gid_index)
        right.post_recv(RecvWR(wr_id=3, sg=[SGE(mr.buf + 100, 16, mr.lkey)], num_sge=1))
        left.wr_start()
        left.wr_id, left.wr_flags = 1, e.IBV_SEND_SIGNALED
        left.wr_rdma_write(mr.rkey, mr.buf)
        mr.write("written", 7, 200)
        left.wr_set_inline_data(mr.buf + 200, 7)
        left.wr_id = 2
        left.wr_send_imm(7)
        mr.write("ntse", 4, 300)
        left.wr_set_inline_data_list(2, [DataBuffer(mr.buf + 302, 2), DataBuffer(mr.buf + 300, 2)])
        left.wr_complete()
        stamps = []
        while len(stamps) < 2:
            if cq.start_poll(PollCqAttr()) == 0:
                assert cq.status == e.IBV_WC_SUCCESS and cq.wr_id == len(stamps) + 1, cq
                stamps.append(cq.read_timestamp())
                cq.end_poll()
        assert stamps == sorted(stamps) and stamps[0] > 0, stamps
        count, completions = 0, []
        while not completions:
            count, completions = plain.poll()
        assert completions[0].wr_id == 3 and completions[0].byte_len == 4, completions
        assert mr.read(7, 0) == b"written" and mr.read(4, 100) == b"sent"
        state = left.query(e.IBV_QP_STATE)[0].qp_state
        assert state == e.IBV_QPS_RTS, state

names = [device.name.decode() for device in d.get_device_list()]
assert "rnic0" in names, names
with d.Context(name="rnic0") as context:
    attr = context.query_device()
    assert attr.max_qp > 0 and attr.phys_port_cnt == 1, attr
    context.query_device_ex()
    port = context.query_port(1)
    assert port.state == e.IBV_PORT_ACTIVE, port
    assert port.link_layer == e.IBV_LINK_LAYER_ETHERNET, port
    table = context.query_gid_table(64)
    assert all(str(context.query_gid(1, entry.gid_index)) == entry.gid_str() for entry in table), table
    assert context.query_pkey(1, 0) == 0xffff
    with PD(context) as pd:
        with MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE) as mr:
            mr.write("hello", 5)
            assert mr.read(5, 0) == b"hello"
            assert mr.lkey != 0
    with CQ(context, 16) as cq:
        assert cq.poll()[0] == 0
        cq.resize(40)
        assert cq.cqe >= 40, cq.cqe
    traffic(context, table)
print("gids", len(table))
"#;

#[test]
fn pyverbs_lists_and_queries() {
    let trial = Trial::start_beside_others("pyverbs_lists_and_queries");
    let has = Command::new("/usr/bin/python3")
        .args(["-c", "import pyverbs.device"])
        .output();
    if !has.is_ok_and(|output| output.status.success()) {
        skip::skipped(trial.name(), "python3-pyverbs is not installed");
        return;
    }
    for user in [User::Current, User::Nobody] {
        let Some(place) = trial.loopback(user) else {
            continue;
        };
        let finished = place.finish("/usr/bin/python3", ["-c", SCRIPT]);
        finished.expect_success();
        let count = place.gids().len();
        assert!(
            finished.stdout.contains(&format!("gids {count}\n")),
            "{}",
            finished.describe()
        );
    }
}
