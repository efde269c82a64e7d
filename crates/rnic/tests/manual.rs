//! Queue pairs whose states the program changes itself: the state table is in front of the device.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rnic::{
    Access, AhAttr, CompletionQueue, Connected, Context, Destination, Error, ManualQueuePair,
    ManualXrcTarget, PathMtu, ProtectionDomain, QpAttr, QpAttrMask as M, QpChange, QpState, QpType,
    Rc, SendRequest, StableMemory, TransitionError, Transport, Uc, Ud, Xrc,
};

use crate::loopback::PATIENCE;
use QpState::{Err as Broken, Init, Reset, Rtr, Rts, Sqd, Sqe};

/// Of IBTA vol. 1, 11.2.5.2 and ibv_modify_qp(3), written down once more: for which types, from
/// where, to where, what is needed, and what else is taken. X is XRC_SEND, x is XRC_RECV.
const TABLE: &[(&str, QpState, QpState, &str, &str)] = &[
    ("RC UC X x", Reset, Init, "PKEY_INDEX PORT ACCESS_FLAGS", ""),
    ("UD", Reset, Init, "PKEY_INDEX PORT QKEY", ""),
    ("RC UC X x", Init, Init, "", "PKEY_INDEX PORT ACCESS_FLAGS"),
    ("UD", Init, Init, "", "PKEY_INDEX PORT QKEY"),
    (
        "RC x",
        Init,
        Rtr,
        "AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER",
        "ALT_PATH ACCESS_FLAGS PKEY_INDEX",
    ),
    (
        "UC X",
        Init,
        Rtr,
        "AV PATH_MTU DEST_QPN RQ_PSN",
        "ALT_PATH ACCESS_FLAGS PKEY_INDEX",
    ),
    ("UD", Init, Rtr, "", "PKEY_INDEX QKEY"),
    (
        "RC",
        Rtr,
        Rts,
        "TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC",
        "CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE MIN_RNR_TIMER",
    ),
    (
        "X",
        Rtr,
        Rts,
        "TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC",
        "CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE",
    ),
    (
        "x",
        Rtr,
        Rts,
        "TIMEOUT SQ_PSN",
        "CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE MIN_RNR_TIMER",
    ),
    (
        "UC",
        Rtr,
        Rts,
        "SQ_PSN",
        "CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE",
    ),
    ("UD", Rtr, Rts, "SQ_PSN", "CUR_STATE QKEY"),
    (
        "RC x",
        Rts,
        Rts,
        "",
        "CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE MIN_RNR_TIMER",
    ),
    (
        "UC X",
        Rts,
        Rts,
        "",
        "CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE",
    ),
    ("UD", Rts, Rts, "", "CUR_STATE QKEY"),
    ("RC UC UD X x", Rts, Sqd, "", "EN_SQD_ASYNC_NOTIFY"),
    (
        "RC x",
        Sqd,
        Rts,
        "",
        "CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE MIN_RNR_TIMER",
    ),
    (
        "UC X",
        Sqd,
        Rts,
        "",
        "CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE",
    ),
    ("UD", Sqd, Rts, "", "CUR_STATE QKEY"),
    (
        "RC",
        Sqd,
        Sqd,
        "",
        "ALT_PATH ACCESS_FLAGS PATH_MIG_STATE AV PKEY_INDEX PORT TIMEOUT RETRY_CNT RNR_RETRY \
         MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC MIN_RNR_TIMER",
    ),
    (
        "X",
        Sqd,
        Sqd,
        "",
        "ALT_PATH ACCESS_FLAGS PATH_MIG_STATE AV PKEY_INDEX PORT TIMEOUT RETRY_CNT RNR_RETRY \
         MAX_QP_RD_ATOMIC",
    ),
    (
        "x",
        Sqd,
        Sqd,
        "",
        "ALT_PATH ACCESS_FLAGS PATH_MIG_STATE AV PKEY_INDEX PORT TIMEOUT MAX_DEST_RD_ATOMIC \
         MIN_RNR_TIMER",
    ),
    (
        "UC",
        Sqd,
        Sqd,
        "",
        "ALT_PATH ACCESS_FLAGS PATH_MIG_STATE AV PKEY_INDEX",
    ),
    ("UD", Sqd, Sqd, "", "PKEY_INDEX QKEY"),
    ("UC", Sqe, Rts, "", "CUR_STATE ACCESS_FLAGS"),
    ("UD", Sqe, Rts, "", "CUR_STATE QKEY"),
];

const NAMES: [(&str, M); 20] = [
    ("CUR_STATE", M::CUR_STATE),
    ("EN_SQD_ASYNC_NOTIFY", M::EN_SQD_ASYNC_NOTIFY),
    ("ACCESS_FLAGS", M::ACCESS_FLAGS),
    ("PKEY_INDEX", M::PKEY_INDEX),
    ("PORT", M::PORT),
    ("QKEY", M::QKEY),
    ("AV", M::AV),
    ("PATH_MTU", M::PATH_MTU),
    ("TIMEOUT", M::TIMEOUT),
    ("RETRY_CNT", M::RETRY_CNT),
    ("RNR_RETRY", M::RNR_RETRY),
    ("RQ_PSN", M::RQ_PSN),
    ("MAX_QP_RD_ATOMIC", M::MAX_QP_RD_ATOMIC),
    ("ALT_PATH", M::ALT_PATH),
    ("MIN_RNR_TIMER", M::MIN_RNR_TIMER),
    ("SQ_PSN", M::SQ_PSN),
    ("MAX_DEST_RD_ATOMIC", M::MAX_DEST_RD_ATOMIC),
    ("PATH_MIG_STATE", M::PATH_MIG_STATE),
    ("CAP", M::CAP),
    ("DEST_QPN", M::DEST_QPN),
];
const STATES: [QpState; 7] = [Reset, Init, Rtr, Rts, Sqd, Sqe, Broken];

fn mask(names: &str) -> M {
    let bit = |name: &str| NAMES.iter().find(|(n, _)| *n == name).expect("a name").1;
    names
        .split_whitespace()
        .map(bit)
        .fold(M(0), |all, b| all | b)
}

/// What a transition needs and what else it takes; `None`: there is none.
fn row(qp_type: QpType, from: QpState, to: QpState) -> Option<(M, M)> {
    let its = match qp_type {
        QpType::Rc => "RC",
        QpType::Uc => "UC",
        QpType::Ud => "UD",
        QpType::XrcSend => "X",
        QpType::XrcRecv => "x",
    };
    let mut rows = TABLE.iter();
    let found = rows.find(|(types, f, t, ..)| {
        *f == from && *t == to && types.split_whitespace().any(|name| name == its)
    });
    if let Some((.., needed, taken)) = found {
        return Some((mask(needed), mask(taken)));
    }
    // From everywhere back, and from everywhere but RESET to failure.
    let always = to == Reset || to == Broken && from != Reset;
    always.then_some((M(0), M(0)))
}

/// The attributes of the other half of XRC, which mean nothing to this one.
fn ignored(qp_type: QpType) -> M {
    match qp_type {
        QpType::XrcSend => mask("MAX_DEST_RD_ATOMIC MIN_RNR_TIMER"),
        QpType::XrcRecv => mask("MAX_QP_RD_ATOMIC RETRY_CNT RNR_RETRY"),
        _ => M(0),
    }
}

/// A queue pair of any type.
trait Subject {
    fn qp_type(&self) -> QpType;
    fn qpn(&self) -> u32;
    fn modify(&self, change: &QpChange) -> rnic::Result<()>;
    fn query(&self) -> QpAttr;
}

impl<T: Transport> Subject for ManualQueuePair<T> {
    fn qp_type(&self) -> QpType {
        self.qp_type()
    }
    fn qpn(&self) -> u32 {
        self.qpn()
    }
    fn modify(&self, change: &QpChange) -> rnic::Result<()> {
        self.modify(change)
    }
    fn query(&self) -> QpAttr {
        self.query().expect("it answers")
    }
}

impl Subject for ManualXrcTarget {
    fn qp_type(&self) -> QpType {
        QpType::XrcRecv
    }
    fn qpn(&self) -> u32 {
        self.qpn()
    }
    fn modify(&self, change: &QpChange) -> rnic::Result<()> {
        self.modify(change)
    }
    fn query(&self) -> QpAttr {
        self.query().expect("it answers")
    }
}

struct Bench {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
}

impl Bench {
    fn new() -> Bench {
        let context = Context::open().expect("the device opens");
        let pd = context.alloc_pd().expect("pd");
        let cq = context.create_cq(256).build().expect("cq");
        Bench { context, pd, cq }
    }

    fn make<T: Transport>(&self) -> ManualQueuePair<T> {
        let builder = self.pd.create_qp::<T>(&self.cq, &self.cq);
        builder.build_in_reset().expect("a queue pair")
    }

    /// Values that a device takes, of a queue pair that talks with the one of this number.
    fn values(&self, peer: u32) -> QpAttr {
        let gid = self.context.loopback_gid().expect("an address");
        QpAttr {
            path_mtu: Some(PathMtu::M256),
            qkey: 0x1111,
            rq_psn: 77,
            sq_psn: 77,
            dest_qp_num: peer,
            qp_access_flags: Access::REMOTE_WRITE | Access::REMOTE_READ,
            ah: AhAttr {
                dgid: gid.gid,
                sgid_index: u8::try_from(gid.index).expect("a small index"),
                hop_limit: 3,
                is_global: true,
                port_num: 1,
                ..AhAttr::default()
            },
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12,
            port_num: 1,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            ..QpAttr::default()
        }
    }

    /// The change of this mask, with STATE or without.
    fn change(&self, of: &dyn Subject, from: QpState, to: QpState, mask: M) -> QpChange {
        let attr = QpAttr {
            qp_state: to,
            cur_qp_state: from,
            ..self.values(of.qpn())
        };
        QpChange::of(attr, mask)
    }

    fn step(&self, subject: &dyn Subject, from: QpState, to: QpState) {
        let (needed, _) = row(subject.qp_type(), from, to).expect("a transition");
        let change = self.change(subject, from, to, needed | M::STATE);
        let what = format!("{} from {from} to {to}", subject.qp_type());
        subject.modify(&change).expect(&what);
        assert_eq!(subject.query().qp_state, to, "{what}");
    }

    /// Leads it there from RESET; `fail_send` has a request fail.
    fn lead(&self, subject: &dyn Subject, state: QpState, fail_send: &dyn Fn()) {
        let up: &[QpState] = match state {
            Reset => &[],
            Init => &[Init],
            Rtr => &[Init, Rtr],
            Rts | Sqe => &[Init, Rtr, Rts],
            Sqd => &[Init, Rtr, Rts, Sqd],
            Broken => &[Init, Broken],
        };
        let mut from = Reset;
        for to in up {
            self.step(subject, from, *to);
            from = *to;
        }
        if state == Sqe {
            fail_send();
            assert_eq!(subject.query().qp_state, Sqe);
        }
    }
}

/// What it refused, which has left everything as it was.
fn refused(subject: &dyn Subject, change: &QpChange) -> TransitionError {
    let before = subject.query().qp_state;
    let error = subject.modify(change).expect_err("refused");
    assert_eq!(error.errno(), Some(libc::EINVAL), "{error}");
    assert_eq!(subject.query().qp_state, before, "{error}");
    match error {
        Error::Transition(refused) => refused,
        other => panic!("the device was asked: {other}"),
    }
}

/// Every transition of a service with every attribute too few and too many, and with all that it
/// takes. `make` gives a queue pair and a way to have a send fail, if that leads to SQE.
fn whole_table<S: Subject>(bench: &Bench, make: impl Fn() -> (S, Option<Box<dyn Fn()>>)) {
    let (mut refusals, mut passed) = (0, 0);
    let nothing: Box<dyn Fn()> = Box::new(|| ());
    for from in STATES {
        let (subject, fail_send) = make();
        if from == Sqe && fail_send.is_none() {
            continue;
        }
        let qp_type = subject.qp_type();
        bench.lead(&subject, from, fail_send.as_ref().unwrap_or(&nothing));
        for to in STATES {
            let with = |bits: M| bench.change(&subject, from, to, bits | M::STATE);
            let Some((needed, taken)) = row(qp_type, from, to) else {
                for bits in [M(0), mask("PKEY_INDEX PORT QKEY AV TIMEOUT CAP")] {
                    let error = refused(&subject, &with(bits));
                    assert!(!error.exists, "{qp_type}: {error}");
                    assert_eq!((error.from, error.to, error.qp_type), (from, to, qp_type));
                    refusals += 1;
                }
                continue;
            };
            for (name, bit) in NAMES {
                let whole = needed | taken | ignored(qp_type);
                let (given, expected) = match (needed.contains(bit), whole.contains(bit)) {
                    (true, _) => (needed.without(bit), (bit, M(0))),
                    (_, false) => (needed | bit, (M(0), bit)),
                    (_, true) => continue,
                };
                let error = refused(&subject, &with(given));
                assert!(error.exists, "{qp_type}, {name}: {error}");
                assert_eq!((error.missing, error.superfluous), expected, "{name}");
                assert!(
                    error.to_string().contains(&format!("IBV_QP_{name}")),
                    "{error}"
                );
                refusals += 1;
            }
            // What is taken in addition, one by one and all at once. No device of RoCE has another
            // path; those that the table lets through are its to refuse.
            let one_by_one = NAMES.iter().map(|(_, bit)| *bit);
            let one_by_one = one_by_one.filter(|bit| taken.contains(*bit));
            let all = [M(0), taken.without(M::ALT_PATH), ignored(qp_type)];
            for more in all.into_iter().chain(one_by_one) {
                let (subject, fail_send) = make();
                bench.lead(&subject, from, fail_send.as_ref().unwrap_or(&nothing));
                let change = bench.change(&subject, from, to, needed | more | M::STATE);
                let outcome = subject.modify(&change);
                match more {
                    M::ALT_PATH => assert!(!matches!(outcome, Err(Error::Transition(_)))),
                    // A device of the system may lack what the table has.
                    _ if !bench.context.capabilities().exact_failures && outcome.is_err() => {
                        assert!(matches!(outcome, Err(Error::Verb { .. })));
                        continue;
                    }
                    _ => {
                        let what = format!("{qp_type}, {from} to {to}, {}", more.names());
                        outcome.expect(&what);
                        assert_eq!(subject.query().qp_state, to, "{what}");
                    }
                }
                passed += 1;
            }
        }
    }
    assert!(refusals > 300 && passed > 30, "{refusals}, {passed}");
}

#[test]
fn the_table_of_rc_is_in_front_of_the_device() {
    let bench = Bench::new();
    whole_table(&bench, || (bench.make::<Rc>(), None));
}

#[test]
fn the_table_of_uc_is_in_front_of_the_device() {
    if !crate::device().uc {
        return;
    }
    let bench = Bench::new();
    whole_table(&bench, || {
        let qp = bench.make::<Uc>();
        if !crate::device().exact_failures {
            return (qp, None);
        }
        let (its, foreign) = (qp.clone(), bench.context.alloc_pd().expect("pd"));
        let cq = bench.cq.clone();
        let fail: Box<dyn Fn()> = Box::new(move || {
            let buffer = foreign.buffer(8).expect("memory");
            its.post(SendRequest::send(buffer)).expect("posted");
            cq.wait(PATIENCE).expect("failed").ok().expect_err("failed");
        });
        (qp, Some(fail))
    });
}

#[test]
fn the_table_of_ud_is_in_front_of_the_device() {
    if !crate::device().ud {
        return;
    }
    let bench = Bench::new();
    let gid = bench.context.loopback_gid().expect("an address");
    whole_table(&bench, || {
        let qp = bench.make::<Ud>();
        if !crate::device().exact_failures {
            return (qp, None);
        }
        let to = Destination {
            ah: bench.pd.create_ah(&gid, gid.addr).expect("a way"),
            qpn: qp.qpn(),
            qkey: 1,
        };
        let (its, foreign) = (qp.clone(), bench.context.alloc_pd().expect("pd"));
        let cq = bench.cq.clone();
        let fail: Box<dyn Fn()> = Box::new(move || {
            let buffer = foreign.buffer(8).expect("memory");
            its.post(SendRequest::send(buffer), &to).expect("posted");
            cq.wait(PATIENCE).expect("failed").ok().expect_err("failed");
        });
        (qp, Some(fail))
    });
}

#[test]
fn the_tables_of_xrc_are_in_front_of_the_device() {
    if !crate::device().xrc {
        return;
    }
    let bench = Bench::new();
    whole_table(&bench, || (bench.make::<Xrc>(), None));
    let domain = bench.context.open_xrc_domain().expect("a domain");
    whole_table(&bench, || {
        let target = domain.create_target().build_in_reset();
        (target.expect("a target"), None)
    });
}

/// The state that the program takes it to be in is the one that is checked.
#[test]
fn a_state_that_it_is_not_in_is_refused() {
    let bench = Bench::new();
    let qp = bench.make::<Rc>();
    bench.lead(&qp, Rts, &|| ());
    let wrong = QpChange::to(Rts).current(Sqd);
    let error = qp.modify(&wrong).expect_err("it is in RTS");
    assert!(matches!(error, Error::Verb { .. }), "{error}");
    assert_eq!(qp.state(), Rts);
    qp.modify(&QpChange::to(Rts).current(Rts)).expect("it is");
}

/// What was set is what is told.
#[test]
fn attributes_are_told_as_they_were_set() {
    let bench = Bench::new();
    let qp = bench.make::<Rc>();
    bench.lead(&qp, Rts, &|| ());
    let (told, set) = (qp.query().expect("answers"), bench.values(qp.qpn()));
    assert_eq!(told.path_mtu, set.path_mtu);
    assert_eq!((told.dest_qp_num, told.sq_psn), (qp.qpn(), set.sq_psn));
    assert_eq!((told.timeout, told.retry_cnt, told.rnr_retry), (14, 7, 7));
    // Linux has the hop limit of the route instead, for devices that are its own.
    let hops = crate::device().exact_failures.then_some(3);
    assert_eq!(told.ah.dgid, set.ah.dgid);
    assert_eq!(told.ah.hop_limit, hops.unwrap_or(told.ah.hop_limit));
    assert_eq!(told.min_rnr_timer, 12);
    let change = QpChange::within()
        .min_rnr_timer(20)
        .access(Access::REMOTE_READ);
    qp.modify(&change).expect("both may change in RTS");
    let told = qp.query().expect("answers");
    assert_eq!(
        (told.min_rnr_timer, told.qp_access_flags),
        (20, Access::REMOTE_READ)
    );
}

/// Memory that counts when it goes.
#[derive(Debug)]
pub(crate) struct Counted(pub(crate) Vec<u8>, pub(crate) Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: a vector's.
unsafe impl StableMemory for Counted {
    fn bytes(&mut self) -> (NonNull<u8>, usize) {
        self.0.bytes()
    }
}

fn to_itself<T: Connected>(bench: &Bench, qp: &ManualQueuePair<T>) {
    bench.lead(qp, Rts, &|| ());
}

/// RESET discards what is posted and what nobody polled, and the queue pair starts anew.
#[test]
fn a_reset_queue_pair_has_nothing_of_its_past() {
    let bench = Bench::new();
    let qp = bench.make::<Rc>();
    let gone = Arc::new(AtomicUsize::new(0));
    let counted = || {
        let memory = Counted(vec![0; 16], gone.clone());
        bench.pd.adopt(memory).expect("registered")
    };
    for round in 0..3 {
        gone.store(0, Ordering::Relaxed);
        to_itself(&bench, &qp);
        for id in 0..3 {
            qp.post_recv(counted(), id).expect("posted");
        }
        // One message arrives, and nobody polls; two receives wait.
        qp.post(SendRequest::send(counted()).id(9)).expect("posted");
        let sent = bench.cq.wait(PATIENCE).expect("one of two");
        assert!(sent.id() == 9 || sent.id() == 0, "round {round}: {sent:?}");
        drop(sent);
        qp.modify(&QpChange::to(Reset)).expect("always possible");
        assert_eq!(gone.load(Ordering::Relaxed), 4, "all buffers are free");
        assert!(bench.cq.poll_one().expect("polls").is_none());
        let refused = qp.post_recv(counted(), 1);
        assert!(refused.is_err(), "RESET takes no receives");
    }
    to_itself(&bench, &qp);
    qp.post_recv(counted(), 21).expect("posted");
    let request = SendRequest::send_inline(b"anew").unsignaled();
    qp.post(request).expect("posted");
    let received = bench.cq.wait(PATIENCE).expect("received");
    assert_eq!((received.id(), received.data()), (21, &b"anew"[..]));
}

/// A change that is refused discards nothing.
#[test]
fn a_refused_reset_leaves_what_is_posted() {
    let bench = Bench::new();
    let qp = bench.make::<Rc>();
    to_itself(&bench, &qp);
    qp.post_recv(bench.pd.buffer(8).expect("memory"), 5)
        .expect("posted");
    let odd = QpChange::to(Reset).qkey(1);
    let refused = refused(&qp, &odd);
    assert_eq!(refused.superfluous, M::QKEY);
    let request = SendRequest::send_inline(b"still").unsignaled();
    qp.post(request).expect("posted");
    assert_eq!(bench.cq.wait(PATIENCE).expect("received").data(), b"still");
}
