//! What the device tells `rnic run` of connections: those that do not come about, and what became
//! of the ones behind them.

use crate::environment;

use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::DirBuilderExt;
use std::time::Duration;

use rnic::{CmConnector, CmListener, Context, Rc};

const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn connections_that_come_about_after_others_did_not_are_told() {
    // Nobody else has ports there.
    let folder = std::env::temp_dir().join(format!("rnic-told-{}", std::process::id()));
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&folder)
        .expect("a folder");
    let report = folder.join("report");
    std::fs::write(&report, "").expect("a file");
    environment::set("RNIC_REPORT", &report);
    environment::set("RNIC_RUNTIME_DIR", &folder);
    let context = Context::open().expect("the device opens");
    if context.back_end() != rnic::BackEnd::Software {
        return;
    }
    let pd = context.alloc_pd().expect("pd");
    let cq = context.create_cq(64).build().expect("cq");
    let prepare = || {
        let qp = pd.create_qp::<Rc>(&cq, &cq).build();
        qp.expect("a queue pair")
    };
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let connect = |addr| {
        let connector = CmConnector::new(addr).expect("an address");
        connector.timeout(PATIENCE).connect(prepare())
    };

    // A port that nobody listens at any more.
    let listener = CmListener::<Rc>::bind((here, 0)).expect("listens");
    let addr = listener.local_addr().expect("an address");
    drop(listener);
    connect(addr).expect_err("nobody listens");

    let listener = CmListener::<Rc>::bind((here, 0)).expect("listens");
    let addr = listener.local_addr().expect("an address");
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| {
            let request = listener.request(Some(PATIENCE)).expect("a request");
            request.accept(prepare()).expect("accepts")
        });
        connect(addr).expect("connects");
        accepted.join().expect("no panic");
    });
    let told = std::fs::read_to_string(&report).expect("the file");
    let count = |what: &str| told.lines().filter(|line| line.contains(what)).count();
    assert_eq!(count("\"answered\""), 1, "{told}");
    assert!(count("\"rejected\"") > 0, "{told}");
    std::fs::remove_dir_all(&folder).expect("removed");
}
