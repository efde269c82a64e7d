//! `ibv_modify_qp`: checks of attribute values, and what each transition does.

use rnic_transport::{Placement, QueuePair, Rc, RcAttr, Role, Uc, UcAttr, Ud, UdAttr};
use rnic_types::transitions;
use rnic_wire::{PathMtu, Psn, Xrceth};

use super::Qp;
use super::post::gone;
use crate::addressing::address::{address_vector, headroom};
use crate::addressing::gid_table::{GidEntry, active_mtu};
use crate::device::MAX_RD_ATOM;
use crate::engine::{Acks, Engine, Peer, QpEntry};
use crate::error::{Error, Result, meaning};
use crate::memory::Access;
use crate::observe;
use crate::queues::{QpAttr, QpAttrMask as M, QpState, QpType};

const VERB: &str = "ibv_modify_qp";

/// `IBV_MIG_MIGRATED`.
const MIGRATED: u8 = 0;

impl Qp {
    /// Changes state and attributes (`ibv_modify_qp(3)`).
    ///
    /// # Errors
    /// EINVAL with the attribute that is missing, foreign or out of range in words; nothing has
    /// changed then.
    pub fn modify(&self, attr: &QpAttr, mask: M) -> Result<()> {
        let shared = &self.inner.shared;
        let nic = &self.inner.context.nic;
        nic.check_alive(VERB)?;
        let mask = transitions::meant(shared.qp_type, mask);
        check_values(attr, mask)?;
        if mask.contains(M::PKEY_INDEX) {
            nic.host().pkeys().check(VERB, attr.pkey_index)?;
        }
        // Read before the engine is locked: that takes system calls.
        let datagram_rtr = shared.qp_type == QpType::Ud && attr.qp_state == QpState::Rtr;
        let table = if mask.contains(M::AV) || datagram_rtr && mask.contains(M::STATE) {
            nic.host().gid_table()
        } else {
            Vec::new()
        };
        let mut engine = self.inner.shard.lock();
        // Its number may be another's by now.
        if self.is_gone() {
            return Err(gone(VERB));
        }
        // Only under the lock does the state stay what it is.
        let from = shared.state();
        if mask.contains(M::CUR_STATE) && attr.cur_qp_state != from {
            return Err(Error::invalid(
                VERB,
                format!("the queue pair is in {from}, not in {}", attr.cur_qp_state),
            ));
        }
        let to = if mask.contains(M::STATE) {
            attr.qp_state
        } else {
            from
        };
        transitions::check_transition(shared.qp_type, from, to, mask)
            .map_err(|refused| Error::invalid(VERB, refused.to_string()))?;
        // What peers may do by it is found out anew.
        let copies = engine.revoke_qp(shared.qpn);
        let outcome = apply(&mut engine, shared.qpn, attr, mask, from, to, &table);
        if outcome.is_ok()
            && let Some(entry) = engine.qp_mut(shared.qpn)
        {
            let ends = entry.peer.map(|peer| (peer.local, peer.remote));
            observe::modified(&entry.shared, &entry.attr, ends);
        }
        self.inner.shard.after_drive(engine);
        // One that is stopped in the middle of a copy may end it: the memory is not given back yet.
        copies.wait();
        outcome
    }
}

/// A QPN has 24 bits, as its field in the BTH (IBTA vol. 1, 9.2).
const MAX_QPN: u32 = 0xff_ffff;

/// What is wrong with a number that is too long for a QPN: as a rule its byte order.
fn no_qpn(value: u32) -> String {
    let swapped = value.swap_bytes();
    let order = match swapped <= MAX_QPN {
        true => {
            format!(
                "; in the other byte order it is {swapped:#x}: use htonl and ntohl on both sides"
            )
        }
        false => String::new(),
    };
    format!("dest_qp_num is {value:#x}, possible are 0 to {MAX_QPN:#x}{order}")
}

/// Values that are wrong whatever the state.
fn check_values(attr: &QpAttr, mask: M) -> Result<()> {
    let ranges = [
        (M::PORT, "port_num", u64::from(attr.port_num), 1, 1),
        (M::TIMEOUT, "timeout", u64::from(attr.timeout), 0, 31),
        (M::RETRY_CNT, "retry_cnt", u64::from(attr.retry_cnt), 0, 7),
        (M::RNR_RETRY, "rnr_retry", u64::from(attr.rnr_retry), 0, 7),
        (
            M::MIN_RNR_TIMER,
            "min_rnr_timer",
            u64::from(attr.min_rnr_timer),
            0,
            31,
        ),
        (
            M::MAX_QP_RD_ATOMIC,
            "max_rd_atomic",
            u64::from(attr.max_rd_atomic),
            0,
            u64::from(MAX_RD_ATOM),
        ),
        (
            M::MAX_DEST_RD_ATOMIC,
            "max_dest_rd_atomic",
            u64::from(attr.max_dest_rd_atomic),
            0,
            u64::from(MAX_RD_ATOM),
        ),
        (
            M::DEST_QPN,
            "dest_qp_num",
            u64::from(attr.dest_qp_num),
            0,
            u64::from(MAX_QPN),
        ),
    ];
    for (bit, name, value, low, high) in ranges {
        if mask.contains(bit) && !(low..=high).contains(&value) {
            return Err(Error::invalid(
                VERB,
                match bit == M::DEST_QPN {
                    true => no_qpn(attr.dest_qp_num),
                    false => format!("{name} is {value}, possible are {low} to {high}"),
                },
            ));
        }
    }
    if mask.contains(M::PATH_MTU) && attr.path_mtu.is_none() {
        return Err(Error::invalid(
            VERB,
            "path_mtu is none of IBV_MTU_256 .. IBV_MTU_4096",
        ));
    }
    if mask.contains(M::ALT_PATH) {
        return Err(Error::new(
            VERB,
            libc::EOPNOTSUPP,
            "alternate paths are not supported: RoCE has no automatic path migration",
        ));
    }
    // Every queue pair is in "migrated" and stays there: there is no other path to arm.
    if mask.contains(M::PATH_MIG_STATE) && attr.path_mig_state != MIGRATED {
        return Err(Error::invalid(
            VERB,
            "path_mig_state other than IBV_MIG_MIGRATED needs an alternate path",
        ));
    }
    if mask.contains(M::AV) && attr.ah.port_num != 1 {
        return Err(Error::invalid(
            VERB,
            format!(
                "ah_attr.port_num is {}, the device has port 1",
                attr.ah.port_num
            ),
        ));
    }
    Ok(())
}

fn apply(
    engine: &mut Engine,
    qpn: u32,
    attr: &QpAttr,
    mask: M,
    from: QpState,
    to: QpState,
    table: &[GidEntry],
) -> Result<()> {
    let gone = || gone(VERB);
    let entry = engine.qp_mut(qpn).ok_or_else(gone)?;
    if (from, to) == (QpState::Sqd, QpState::Sqd) && entry.transport.is_draining() {
        return Err(Error::invalid(
            VERB,
            "the send queue is still draining: attributes may change once it has (IBV_EVENT_SQ_DRAINED, sq_draining of \
             ibv_query_qp)",
        ));
    }
    let qp_type = entry.shared.qp_type;
    let mut wanted = entry.attr;
    store(&mut wanted, attr, mask);
    let peer = match mask.contains(M::AV) {
        true => Some(resolve(engine, qp_type, &wanted, table)?),
        false => None,
    };
    let cma = peer
        .filter(|_| matches!(qp_type, QpType::Rc | QpType::Uc))
        .and_then(|peer| engine.link.cma_window(peer.path));
    let entry = engine.qp_mut(qpn).ok_or_else(gone)?;
    let path = peer.or(entry.peer).map(|peer| peer.path);
    let window = engine.window_bytes(path);
    let entry = engine.qp_mut(qpn).ok_or_else(gone)?;
    entry.attr = wanted;
    entry.update_fast_path();
    let shared = entry.shared.clone();
    match to {
        QpState::Reset => {
            engine.send_last(qpn);
            engine.memory.windows().close_those_of(qpn);
            engine.abandon_receive(qpn);
            engine.let_go(qpn);
            let entry = engine.qp_mut(qpn).ok_or_else(gone)?;
            entry.withdraw();
            entry.transport.reset();
            entry.completion_lost = false;
            entry.receives.clear();
            entry.signals.reset();
            entry.latencies.reset();
            entry.attr = QpAttr {
                cap: entry.attr.cap,
                ..QpAttr::default()
            };
            shared.set_state(QpState::Reset);
            entry.cma = None;
            let old = entry.peer.take();
            entry.update_fast_path();
            if let Some(peer) = old {
                engine.link.release_path(peer.path);
            }
            for cq in shared.cqs() {
                cq.purge(qpn);
            }
            shared.owner.device.cq_tasks(qpn).forgive(qpn);
            shared.slots.send.reset();
            shared.slots.recv.reset();
        }
        QpState::Err => engine.flush_qp(qpn),
        QpState::Rtr => {
            entry.peer = peer;
            entry.update_fast_path();
            entry.cma = cma;
            if shared.qp_type == QpType::Ud {
                // No message is longer than what the port carries.
                entry.attr.path_mtu = Some(active_mtu(table));
            }
            receive_ready(entry, window);
            shared.set_state(QpState::Rtr);
        }
        QpState::Rts if matches!(from, QpState::Rtr | QpState::Sqe) => {
            send_ready(entry, window);
            shared.set_state(QpState::Rts);
        }
        QpState::Rts => {
            update(entry, window);
            if from == QpState::Sqd {
                entry.transport.resume();
            }
            shared.set_state(QpState::Rts);
            engine.schedule(qpn);
            let now = engine.now();
            engine.send_out(now, Acks::Leave);
        }
        QpState::Sqd if from == QpState::Rts => {
            entry.attr.en_sqd_async_notify =
                mask.contains(M::EN_SQD_ASYNC_NOTIFY) && attr.en_sqd_async_notify;
            shared.set_state(QpState::Sqd);
            engine.drain_qp(qpn);
        }
        QpState::Sqd => {
            retune(entry, window);
            if peer.is_some() {
                entry.cma = cma;
                match &mut entry.transport {
                    QueuePair::Rc(rc) => rc.readdress(),
                    QueuePair::Uc(uc) => uc.readdress(),
                    QueuePair::Ud(_) => {}
                }
            }
            if peer.is_some()
                && let Some(old) = std::mem::replace(&mut entry.peer, peer)
            {
                engine.link.release_path(old.path);
                engine.let_go(qpn);
            }
        }
        QpState::Init | QpState::Sqe => shared.set_state(to),
    }
    Ok(())
}

/// Remembers what the mask names, for later transitions and `ibv_query_qp`.
fn store(kept: &mut QpAttr, attr: &QpAttr, mask: M) {
    macro_rules! keep {
        ($($bit:ident: $($field:ident),+;)*) => {
            $(if mask.contains(M::$bit) { $(kept.$field = attr.$field;)+ })*
        };
    }
    keep! {
        ACCESS_FLAGS: qp_access_flags;
        PKEY_INDEX: pkey_index;
        PORT: port_num;
        QKEY: qkey;
        AV: ah;
        PATH_MTU: path_mtu;
        TIMEOUT: timeout;
        RETRY_CNT: retry_cnt;
        RNR_RETRY: rnr_retry;
        RQ_PSN: rq_psn;
        MAX_QP_RD_ATOMIC: max_rd_atomic;
        MIN_RNR_TIMER: min_rnr_timer;
        SQ_PSN: sq_psn;
        MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
        PATH_MIG_STATE: path_mig_state;
        DEST_QPN: dest_qp_num;
        EN_SQD_ASYNC_NOTIFY: en_sqd_async_notify;
    }
    kept.rq_psn &= 0xff_ffff;
    kept.sq_psn &= 0xff_ffff;
}

/// Turns the address vector into a path, or says why there is none.
fn resolve(
    engine: &mut Engine,
    qp_type: QpType,
    attr: &QpAttr,
    table: &[GidEntry],
) -> Result<Peer> {
    let lid = engine.link.lid();
    let vector = address_vector(VERB, &attr.ah, attr.dest_qp_num, table, lid)?;
    let (local, remote) = (vector.local(), vector.remote());
    if remote.is_multicast() {
        return Err(Error::invalid(
            VERB,
            format!("a connection with the group {remote}: only datagrams go to multicast groups"),
        ));
    }
    let mtu = attr.path_mtu.unwrap_or(PathMtu::M1024);
    let headroom = headroom(&remote);
    let headroom = match qp_type {
        QpType::XrcSend | QpType::XrcRecv => headroom + Xrceth::LEN as u32,
        _ => headroom,
    };
    if let Err(ip_mtu) = engine.link.takes(&vector, mtu.bytes() as u32 + headroom) {
        return Err(Error::invalid(
            VERB,
            format!(
                "path MTU {} does not fit the way from {local} to {remote}, which carries IP packets of {ip_mtu} bytes",
                mtu.bytes()
            ),
        ));
    }
    let path = engine.link.path(&vector).map_err(|e| {
        let errno = e.shortage().unwrap_or(libc::EHOSTUNREACH);
        Error::new(VERB, errno, format!("{e}{}", meaning(errno)))
    })?;
    Ok(Peer {
        path,
        local,
        remote,
        here: engine.link.is_of_this_host(path),
        port: 0,
    })
}

/// Gives the transport the attributes of its service, by whichever of these calls it has.
fn tell(
    entry: &mut QpEntry,
    window: u32,
    by_rc: fn(&mut Rc, RcAttr),
    by_uc: fn(&mut Uc, UcAttr),
    by_ud: fn(&mut Ud, UdAttr),
) {
    let (rc_attr, uc_attr, ud_attr) = (rc_attr(entry, window), uc_attr(entry), ud_attr(entry));
    match &mut entry.transport {
        QueuePair::Rc(rc) => by_rc(rc, rc_attr),
        QueuePair::Uc(uc) => by_uc(uc, uc_attr),
        QueuePair::Ud(ud) => by_ud(ud, ud_attr),
    }
}

fn receive_ready(entry: &mut QpEntry, window: u32) {
    tell(
        entry,
        window,
        Rc::receive_ready,
        Uc::receive_ready,
        Ud::receive_ready,
    );
}

fn send_ready(entry: &mut QpEntry, window: u32) {
    tell(
        entry,
        window,
        Rc::send_ready,
        Uc::send_ready,
        Ud::send_ready,
    );
}

/// Attributes that may change in RTR and RTS.
fn update(entry: &mut QpEntry, window: u32) {
    tell(entry, window, Rc::update, Uc::update, Ud::update);
}

/// Attributes that may change in SQD.
fn retune(entry: &mut QpEntry, window: u32) {
    tell(entry, window, Rc::retune, Uc::retune, Ud::retune);
}

fn uc_attr(entry: &QpEntry) -> UcAttr {
    let attr = &entry.attr;
    UcAttr {
        qpn: entry.shared.qpn,
        pd: entry.shared.pd,
        dest_qpn: attr.dest_qp_num,
        mtu: attr.path_mtu.unwrap_or(PathMtu::M1024),
        pkey: entry.fast.pkey(),
        sq_psn: Psn::new(attr.sq_psn),
        rq_psn: Psn::new(attr.rq_psn),
        remote_write: attr.qp_access_flags.contains(Access::REMOTE_WRITE),
    }
}

fn ud_attr(entry: &QpEntry) -> UdAttr {
    let attr = &entry.attr;
    UdAttr {
        qpn: entry.shared.qpn,
        pd: entry.shared.pd,
        qkey: attr.qkey,
        mtu: attr.path_mtu.unwrap_or(PathMtu::M1024),
        pkey: entry.fast.pkey(),
        pkey_index: attr.pkey_index,
        sq_psn: Psn::new(attr.sq_psn),
    }
}

fn rc_attr(entry: &QpEntry, window_bytes: u32) -> RcAttr {
    let attr = &entry.attr;
    RcAttr {
        role: match entry.shared.qp_type {
            QpType::XrcSend => Role::XrcInitiator,
            QpType::XrcRecv => Role::XrcTarget,
            _ => Role::Rc,
        },
        qpn: entry.shared.qpn,
        pd: entry.shared.pd,
        dest_qpn: attr.dest_qp_num,
        mtu: attr.path_mtu.unwrap_or(PathMtu::M1024),
        pkey: entry.fast.pkey(),
        sq_psn: Psn::new(attr.sq_psn),
        rq_psn: Psn::new(attr.rq_psn),
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        min_rnr_timer: attr.min_rnr_timer,
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        remote_write: attr.qp_access_flags.contains(Access::REMOTE_WRITE),
        remote_read: attr.qp_access_flags.contains(Access::REMOTE_READ),
        remote_atomic: attr.qp_access_flags.contains(Access::REMOTE_ATOMIC),
        flush: Placement {
            global: attr.qp_access_flags.contains(Access::FLUSH_GLOBAL),
            persistent: attr.qp_access_flags.contains(Access::FLUSH_PERSISTENT),
        },
        window_bytes,
    }
}
