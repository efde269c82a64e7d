//! The second back end: devices of a libibverbs that is loaded at run time. The tests of this
//! program run on rnic's own drop-in library once more, and libraries that are not what they should
//! be give errors that say so.

use crate::environment;
use crate::manual::Counted;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rnic::{AsyncEvent, BackEnd, Context, Error, QpState, Rc, SendRequest};

/// A folder of this test's own, removed with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let name = format!("{name}-{}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&folder).expect("a folder");
        Scratch(folder)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// `librnic_verbs.so` of this profile. `./test` builds it once and says where it is.
fn drop_in() -> PathBuf {
    if let Some(library) = std::env::var_os("RNIC_TEST_LIBRARY") {
        return library.into();
    }
    let exe = std::env::current_exe().expect("own path");
    // <target>/<profile folder>/deps/<test>
    let folder = exe.ancestors().nth(2).expect("a folder of the profile");
    let target = folder.parent().expect("the target folder");
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") => "test",
        Some(other) => other,
        None => panic!("no profile in {}", folder.display()),
    };
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--quiet", "--lib", "--package", "rnic-abi"]);
    command.args(["--profile", profile]);
    command.arg("--target-dir").arg(target);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    let built = command.status().expect("cargo runs");
    assert!(built.success(), "cargo build of the library: {built}");
    folder.join("librnic_verbs.so")
}

/// The tests of this program that are for any device.
fn tests_of_devices() -> Vec<String> {
    let this = std::env::current_exe().expect("own path");
    let list = Command::new(this).arg("--list").output();
    let list = String::from_utf8(list.expect("it lists").stdout).expect("text");
    let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
    let other = [
        "abilities::",
        "libibverbs::",
        "surface::",
        "stopped_peer::the_peer",
    ];
    let of_devices = names.filter(|name| !other.iter().any(|other| name.starts_with(other)));
    of_devices.map(str::to_owned).collect()
}

/// One after another, each in a process of its own. The library is rnic's drop-in, or that of this
/// machine if `RNIC_TEST_DEVICE` names a device of it (`interop/run --api`); `RNIC_TEST_ONLY` chooses
/// those whose name has one of its parts, which commas separate.
#[test]
fn the_same_tests_pass_on_a_device_of_a_library() {
    let scratch = Scratch::new("drop-in");
    let device = std::env::var("RNIC_TEST_DEVICE").ok();
    if device.is_none() {
        for name in ["libibverbs.so.1", "librdmacm.so.1"] {
            symlink(drop_in(), scratch.0.join(name)).expect("a link");
        }
    }
    let mut tests = tests_of_devices();
    assert!(tests.len() >= 75, "{}", tests.len());
    if let Ok(parts) = std::env::var("RNIC_TEST_ONLY") {
        tests.retain(|name| parts.split(',').any(|part| name.contains(part)));
    }
    let mut failed = Vec::new();
    for name in &tests {
        // One that waits for ever fails like any other.
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "150"]);
        command.arg(std::env::current_exe().expect("own path"));
        command.args(["--exact", name]);
        if device.is_none() {
            command.env("LD_LIBRARY_PATH", &scratch.0);
        }
        command.env("RNIC_DEVICE", device.as_deref().unwrap_or("system:rnic0"));
        let began = Instant::now();
        let output = command.stdin(Stdio::null()).output().expect("it starts");
        let took = began.elapsed().as_secs_f64();
        let said = String::from_utf8_lossy(&output.stdout);
        println!("{name}: {}, {took:.1} s", output.status);
        if !output.status.success() || !said.contains("1 passed") {
            let told = String::from_utf8_lossy(&output.stderr);
            failed.push(format!("{name}: {}\n{said}\n{told}", output.status));
        }
    }
    let count = failed.len();
    println!("{} of {} tests passed", tests.len() - count, tests.len());
    assert!(failed.is_empty(), "{count} failed:\n{}", failed.join("\n"));
}

/// Listing loads the library and opens nothing.
#[test]
fn both_kinds_of_devices_are_listed() {
    environment::set("RNIC_LIBIBVERBS", drop_in());
    let devices = rnic::devices();
    let told: Vec<_> = devices.iter().map(|d| (d.name(), d.back_end())).collect();
    let both = [
        ("rnic0", BackEnd::Software),
        ("system:rnic0", BackEnd::System),
    ];
    assert_eq!(told, both);
    let opened: Vec<_> = devices.iter().map(|d| d.open().expect("opens")).collect();
    assert_eq!(opened[0].back_end(), BackEnd::Software);
    assert_eq!(opened[1].back_end(), BackEnd::System);
    assert_eq!(opened[1].name(), "rnic0");
    assert_eq!(devices[0].guid(), devices[1].guid());
    // Without a word the software NIC is opened.
    let default = Context::open().expect("opens");
    assert_eq!(default.back_end(), BackEnd::Software);
}

/// Objects of two devices are not used with each other.
#[test]
fn devices_do_not_mix() {
    environment::set("RNIC_LIBIBVERBS", drop_in());
    let software = Context::open_by_name("rnic0").expect("opens");
    let system = Context::open_by_name("system:rnic0").expect("opens");
    let refused = |result: rnic::Result<()>| {
        let error = result.expect_err("of another device");
        assert_eq!(error.errno(), Some(libc::EINVAL), "{error}");
        assert!(error.to_string().contains("another device"), "{error}");
    };
    let channel = software.create_comp_channel().expect("a channel");
    refused(system.create_cq(1).channel(&channel).build().map(drop));
    let [here, there] = [&software, &system].map(|context| {
        let pd = context.alloc_pd().expect("pd");
        let cq = context.create_cq(4).build().expect("cq");
        (pd, cq)
    });
    refused(here.0.create_qp::<Rc>(&there.1, &here.1).build().map(drop));
    refused(there.0.create_qp::<Rc>(&here.1, &here.1).build().map(drop));
    let srq = here.0.create_srq(4).expect("srq");
    let builder = there.0.create_qp::<Rc>(&there.1, &there.1).srq(&srq);
    refused(builder.build().map(drop));
    let domain = software.open_xrc_domain().expect("domain");
    refused(domain.create_srq(&there.0, &there.1, 4).map(drop));
    // A way of the one in a queue pair of the other.
    let gid = software.loopback_gid().expect("an address");
    let to = rnic::Destination {
        ah: here.0.create_ah(&gid, gid.addr).expect("a way"),
        qpn: 5,
        qkey: 5,
    };
    let gid = system.loopback_gid().expect("an address");
    let qp = there.0.create_qp::<rnic::Ud>(&there.1, &there.1).gid(&gid);
    let qp = qp.build().expect("a queue pair");
    let error = qp.post(SendRequest::send_inline(b"lost"), &to);
    refused(error.map_err(Error::from));
}

/// A connection is of one back end: that of its channel.
#[test]
fn channels_of_the_connection_manager_do_not_mix() {
    environment::set("RNIC_LIBIBVERBS", drop_in());
    let software = Context::open_by_name("rnic0").expect("opens");
    let system = Context::open_by_name("system:rnic0").expect("opens");
    let gid = system.loopback_gid().expect("an address");
    let pd = system.alloc_pd().expect("pd");
    let cq = system.create_cq(4).build().expect("cq");
    let qp = pd.create_qp::<Rc>(&cq, &cq).gid(&gid).build();
    let channel = rnic::CmChannel::of(&software).expect("a channel");
    let connector = rnic::CmConnector::new((gid.addr, 1)).expect("an address");
    let refused = connector.start(&channel, 1, qp.expect("a queue pair"));
    let text = refused
        .map(drop)
        .expect_err("of another device")
        .to_string();
    assert!(text.contains("another back end"), "{text}");
}

/// The error when a device of this library is opened.
fn refusal(library: impl AsRef<std::ffi::OsStr>) -> String {
    environment::set("RNIC_LIBIBVERBS", library.as_ref());
    // The software NIC needs none.
    assert_eq!(rnic::devices().len(), 1);
    let error = Context::open_by_name("fake0").expect_err("no such library");
    let text = error.to_string();
    assert!(matches!(error, Error::Verb { .. }), "{text}");
    text
}

#[test]
fn a_machine_without_the_library_says_so() {
    let text = refusal("/nowhere/libibverbs.so.1");
    assert!(text.contains("need libibverbs.so.1 (package"), "{text}");
    assert!(text.contains("/nowhere/libibverbs.so.1"), "{text}");
    Context::open().expect("the software NIC is there in any case");
}

#[test]
fn a_file_that_is_no_library_is_named() {
    let scratch = Scratch::new("no-library");
    let file = scratch.0.join("libibverbs.so.1");
    fs::write(&file, "INPUT(-libverbs)\n").expect("a file");
    let text = refusal(&file);
    assert!(text.contains("no-library"), "{text}");
}

/// Compiles the fake library. `None`, and said, on a machine without a C compiler.
fn fake(scratch: &Scratch, versions: Option<&str>) -> Option<PathBuf> {
    let library = scratch.0.join("libibverbs.so.1");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/fake_verbs.c");
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-O1", "-o"]);
    command.arg(&library).arg(source);
    if let Some(versions) = versions {
        let script = scratch.0.join("versions.map");
        fs::write(&script, versions).expect("a file");
        let mut option = std::ffi::OsString::from("-Wl,--version-script=");
        option.push(script);
        command.arg(option);
    }
    match command.output() {
        Ok(output) => {
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{told}");
            Some(library)
        }
        Err(error) => {
            rnic_skip::skipped("a libibverbs that misbehaves", &format!("no cc: {error}"));
            None
        }
    }
}

/// The versions of rdma-core.
const VERSIONS: &str = "
    IBVERBS_1.0 { global: ibv_create_comp_channel; ibv_destroy_comp_channel; };
    IBVERBS_1.1 { global: ibv_*; local: *; } IBVERBS_1.0;
";

#[test]
fn a_library_without_a_function_is_told_which() {
    let scratch = Scratch::new("no-function");
    let hidden = "IBVERBS_1.1 { global: ibv_get_device_list; local: *; };";
    let Some(library) = fake(&scratch, Some(hidden)) else {
        return;
    };
    let text = refusal(library);
    assert!(
        text.contains("has no function ibv_free_device_list"),
        "{text}"
    );
}

#[test]
fn a_library_of_another_version_is_told_so() {
    let scratch = Scratch::new("no-version");
    let Some(library) = fake(&scratch, None) else {
        return;
    };
    let text = refusal(library);
    let why = "has ibv_get_device_list, but not of the version IBVERBS_1.1: it has another ABI";
    assert!(text.contains(why), "{text}");
}

/// Opens the fake device in this mood; see `fake_verbs.c`.
fn in_mood(scratch: &Scratch, mood: &str) -> Option<rnic::Result<Context>> {
    let library = fake(scratch, Some(VERSIONS))?;
    environment::set("RNIC_LIBIBVERBS", library);
    environment::set("FAKE_VERBS", mood);
    Some(Context::open_by_name("fake0"))
}

#[test]
fn a_device_without_an_operation_is_refused_by_name() {
    let scratch = Scratch::new("no-operation");
    let Some(opened) = in_mood(&scratch, "no_post_send") else {
        return;
    };
    let text = opened.expect_err("it lacks one").to_string();
    assert!(text.contains("the device fake0 has another ABI"), "{text}");
    assert!(text.contains("no post_send"), "{text}");
}

#[test]
fn a_context_of_an_old_abi_is_refused() {
    let scratch = Scratch::new("old-abi");
    let Some(opened) = in_mood(&scratch, "old_abi") else {
        return;
    };
    let text = opened.expect_err("it is too old").to_string();
    assert!(text.contains("its context is no verbs_context"), "{text}");
}

#[test]
fn a_device_that_is_not_there_is_told_with_those_that_are() {
    let scratch = Scratch::new("other-device");
    let Some(opened) = in_mood(&scratch, "good") else {
        return;
    };
    assert_eq!(opened.expect("opens").name(), "fake0");
    let text = Context::open_by_name("mlx5_0")
        .expect_err("none")
        .to_string();
    assert!(
        text.contains("no device \"mlx5_0\"; it has fake0"),
        "{text}"
    );
}

/// A device that goes away answers EIO, or nonsense.
#[test]
fn a_device_that_goes_away_gives_errors_that_name_it() {
    let scratch = Scratch::new("gone");
    let Some(opened) = in_mood(&scratch, "good") else {
        return;
    };
    let context = opened.expect("opens");
    let pd = context.alloc_pd().expect("pd");
    let cq = context.create_cq(4).build().expect("cq");
    let qp = pd.create_qp::<Rc>(&cq, &cq).gid(&fake_gid()).build();
    let qp = qp.expect("a queue pair");
    let (peer, buffer) = (qp.endpoint(), pd.buffer(64).expect("memory"));
    let qp = qp.handshake(peer).expect("handshake");
    qp.post_recv(buffer, 1).expect("posted");

    environment::set("FAKE_VERBS", "gone");
    let named = |error: Error| {
        assert_eq!(error.errno(), Some(libc::EIO), "{error}");
        let text = error.to_string();
        assert!(text.contains("the device fake0"), "{text}");
    };
    named(context.alloc_pd().expect_err("gone"));
    named(context.create_cq(1).build().expect_err("gone"));
    named(pd.buffer(64).map(drop).expect_err("gone"));
    named(context.port_attr(1).map(drop).expect_err("gone"));
    named(cq.poll_one().map(drop).expect_err("gone"));
    let sent = qp.post(SendRequest::send_inline(b"lost"));
    named(sent.expect_err("gone").error);
    assert_eq!(qp.state(), QpState::Err);
    assert!(context.gid_table().is_empty());
    // What it will not give back stays, and nothing else breaks.
    drop((qp, cq, pd, context));
}

/// Futures end with an error that names it, too.
#[test]
fn a_device_that_goes_away_ends_futures() {
    let scratch = Scratch::new("gone-futures");
    let Some(opened) = in_mood(&scratch, "good") else {
        return;
    };
    let context = opened.expect("opens");
    let pd = context.alloc_pd().expect("pd");
    let cq = rnic::aio::CompletionQueue::new(&context, 256).expect("cq");
    let qp = cq.create_qp::<Rc>(&pd).gid(&fake_gid()).receives(2, 64);
    let qp = qp.build().expect("a queue pair");
    let peer = qp.endpoint();
    let qp = qp.handshake(peer).expect("handshake");
    let receive = qp.recv();
    environment::set("FAKE_VERBS", "gone");
    let named = |error: Error| {
        let text = error.to_string();
        assert!(text.contains("the device fake0"), "{text}");
    };
    named(rnic::aio::block_on(receive).map(drop).expect_err("gone"));
    let sent = rnic::aio::block_on(qp.send_inline(b"lost"));
    named(sent.expect_err("gone").error);
    let mut pipeline = qp.pipeline(2).expect("a pipeline");
    let pushed = pipeline.push_blocking(SendRequest::send_inline(b"lost"));
    named(pushed.expect_err("gone").error);
}

/// Counts, addresses and completions that cannot be.
#[test]
fn nonsense_of_a_library_breaks_nothing() {
    let scratch = Scratch::new("nonsense");
    let Some(opened) = in_mood(&scratch, "nonsense") else {
        return;
    };
    let context = opened.expect("opens");
    let pd = context.alloc_pd().expect("pd");
    let cq = context.create_cq(4).build().expect("cq");
    let qp = pd.create_qp::<Rc>(&cq, &cq).gid(&fake_gid()).build();
    let qp = qp.expect("a queue pair");
    let peer = qp.endpoint();
    let qp = qp.handshake(peer).expect("handshake");
    // More completions than there was room for.
    let error = cq.poll_one().expect_err("nonsense").to_string();
    assert!(error.contains("fake0 cannot be polled"), "{error}");
    // It says that it refused, and names a request that was not posted: the buffer may be in use,
    // so it is not given back.
    let buffer = pd.buffer_from(b"kept").expect("memory");
    qp.post(SendRequest::send(buffer))
        .expect("taken for posted");
    let buffer = pd.buffer(8).expect("memory");
    qp.post_recv(buffer, 1).expect("taken for posted");
    assert_eq!(qp.state(), QpState::Err, "a state that there is not");
    let event = context.wait_async_event(Some(Duration::from_secs(5)));
    assert!(matches!(event, Ok(AsyncEvent::PortError(1))), "{event:?}");
    // It refuses to end registrations: their memory stays.
    let bytes = pd.buffer_from(b"shared").expect("memory");
    let region = pd.share(bytes).expect("shared");
    let region = region.reclaim().expect_err("still registered");
    assert_eq!(&region[..], b"shared");
    drop(region);
}

/// Of a request that a library refuses without naming it, the memory may be in use: it stays, and
/// the queue pair ends, so that the program is told.
#[test]
fn what_is_refused_vaguely_counts_as_posted() {
    let scratch = Scratch::new("vague");
    let Some(opened) = in_mood(&scratch, "good") else {
        return;
    };
    let context = opened.expect("opens");
    let pd = context.alloc_pd().expect("pd");
    let cq = context.create_cq(4).build().expect("cq");
    let qp = pd.create_qp::<Rc>(&cq, &cq).gid(&fake_gid()).build();
    let qp = qp.expect("a queue pair");
    let peer = qp.endpoint();
    let qp = qp.handshake(peer).expect("handshake");
    assert_eq!(qp.state(), QpState::Rts);
    environment::set("FAKE_VERBS", "vague");
    let gone = Arc::new(AtomicUsize::new(0));
    let kept = || {
        let memory = Counted(vec![0; 8], gone.clone());
        pd.adopt(memory).expect("registered")
    };
    qp.post_recv(kept(), 1).expect("taken for posted");
    assert_eq!(qp.state(), QpState::Rts);
    qp.post(SendRequest::send(kept()))
        .expect("taken for posted");
    assert_eq!(qp.state(), QpState::Err);
    assert_eq!(gone.load(Ordering::Relaxed), 0, "both may be in use");
    drop(qp);
    assert_eq!(gone.load(Ordering::Relaxed), 2, "the device has let go");
}

/// Soft-RoCE takes requests without end, and what a queue pair does not have. Here it is refused as
/// on the software NIC.
#[test]
fn what_a_device_lets_pass_is_refused() {
    let scratch = Scratch::new("lets-pass");
    let Some(opened) = in_mood(&scratch, "good") else {
        return;
    };
    let context = opened.expect("opens");
    let pd = context.alloc_pd().expect("pd");
    let cq = context.create_cq(64).build().expect("cq");
    let told = context.create_cq(1001).build().expect_err("too many");
    assert!(
        told.to_string().contains("max_cqe 1000, not 1001"),
        "{told}"
    );

    // A queue is full until completions are taken.
    let qp = pd.create_qp::<Rc>(&cq, &cq).gid(&fake_gid());
    let qp = qp.max_send_wr(3).max_recv_wr(2).build().expect("qp");
    let peer = qp.endpoint();
    let qp = qp.handshake(peer).expect("handshake");
    let empty = || SendRequest::send_inline(&[]);
    qp.post(empty()).expect("room");
    let mut list: Vec<_> = (0..3).map(|_| empty()).collect();
    let full = qp.post_list(&mut list).expect_err("one too many");
    assert!(full.is_queue_full() && list.len() == 1, "{full}");
    assert!(qp.post(empty()).expect_err("full").error.is_queue_full());
    for id in 0..2 {
        qp.post_recv_empty(id).expect("room");
    }
    let full = qp.post_recv_empty(2).expect_err("full");
    assert!(full.error.is_queue_full());

    // UC has no READ.
    let uc = pd.create_qp::<rnic::Uc>(&cq, &cq).gid(&fake_gid());
    let uc = uc.build().expect("qp");
    let peer = uc.endpoint();
    let uc = uc.handshake(peer).expect("handshake");
    let region = pd.writable(64).readable().build().expect("memory");
    let read = SendRequest::read(pd.buffer(8).expect("memory"), region.remote());
    let refused = uc.post(read).expect_err("no READ over UC").error;
    assert_eq!(refused.errno(), Some(libc::EINVAL), "{refused}");

    // RESET takes no receives, and another state than it is in is not believed.
    let manual = pd.create_qp::<Rc>(&cq, &cq).build_in_reset().expect("qp");
    let refused = manual.post_recv_empty(1).expect_err("in RESET").error;
    assert_eq!(refused.errno(), Some(libc::EINVAL), "{refused}");
    let wrong = rnic::QpChange::to(QpState::Rts).current(QpState::Sqd);
    let refused = manual.modify(&wrong).expect_err("it is in RESET");
    assert_eq!(refused.errno(), Some(libc::EINVAL), "{refused}");
}

/// Soft-RoCE says of every message that a network header is in front of it. Only datagrams have one.
#[test]
fn a_header_is_in_front_of_datagrams_alone() {
    let scratch = Scratch::new("header");
    let Some(opened) = in_mood(&scratch, "receives") else {
        return;
    };
    let context = opened.expect("opens");
    let pd = context.alloc_pd().expect("pd");
    let cq = context.create_cq(4).build().expect("cq");
    let qp = pd.create_qp::<Rc>(&cq, &cq).gid(&fake_gid()).build();
    let qp = qp.expect("a queue pair");
    qp.post_recv(pd.buffer(64).expect("memory"), 1)
        .expect("posted");
    let received = cq.poll_one().expect("polls").expect("one");
    assert!(received.header().is_none());
    assert_eq!(received.message().len(), 48);
    drop(qp);
    let qp = pd.create_qp::<rnic::Ud>(&cq, &cq).gid(&fake_gid()).build();
    let qp = qp.expect("a queue pair");
    qp.post_recv(pd.buffer(64).expect("memory"), 1)
        .expect("posted");
    let received = cq.poll_one().expect("polls").expect("one");
    assert_eq!(received.message().len(), 48 - rnic::HEADER_LEN);
}

/// The fake device has no table, so this stands for an entry of one.
fn fake_gid() -> rnic::GidEntry {
    let software = Context::open_by_name("rnic0").expect("opens");
    let mut gid = software.loopback_gid().expect("an address");
    gid.index = 0;
    gid
}
