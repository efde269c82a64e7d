//! rdma-core's Python bindings list and query the device.

use rnic_programs::{Trial, User, skip};
use std::process::Command;

const SCRIPT: &str = r#"
import pyverbs.device as d
from pyverbs.pd import PD
from pyverbs.mr import MR
from pyverbs.cq import CQ
import pyverbs.enums as e

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
print("gids", len(table))
"#;

#[test]
fn pyverbs_lists_and_queries() {
    let trial = Trial::start("pyverbs_lists_and_queries");
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
