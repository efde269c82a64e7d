//! Posting: which work requests may enter the queues, and what happens when they do.

use rnic_transport::{RecvWqe, SendData, SendOp, SendWqe, SgList, Sge, ShortData, ShortSend};

use super::Qp;
use super::handle::QpHandle;
use crate::device::MAX_MSG;
use crate::engine::{AhNumber, AhTable, Ended, Engine, Posted, ShortPost};
use crate::error::{Error, Result};
use crate::objects::requests::take_each;
use crate::observe::{self, lint, trace};
use crate::queues::{QpShared, QpState, QpType, ReceiveSource};
use crate::sync::bias::Guard;

impl Qp {
    /// Posts send work requests until the first error.
    ///
    /// # Errors
    /// How many were accepted, and why the next was not: EINVAL (state), ENOMEM (send queue full,
    /// too many SGEs, too much inline data).
    pub fn post_send(
        &self,
        wqes: &mut dyn Iterator<Item = Result<SendWqe>>,
    ) -> std::result::Result<(), (usize, Error)> {
        const VERB: &str = "ibv_post_send";
        let shared = self.shared();
        let nic = &self.inner.context.nic;
        nic.check_alive(VERB).map_err(|e| (0, e))?;
        let mut engine = self.inner.shard.lock();
        let state = shared.state();
        let Some(mut posting) = engine.posting(shared.qpn, state) else {
            return Err((0, gone(VERB)));
        };
        let mut ahead = 0;
        let mut bytes = 0;
        let (accepted, refused) = take_each(wqes, |mut wqe| {
            check_send(shared, state, ahead, &wqe)?;
            check_address(shared, posting.ahs, &wqe)?;
            bytes += wqe.data.len();
            ready_to_post(shared, &mut wqe, ahead);
            posting.post(wqe.signaled, wqe);
            ahead += 1;
            Ok(())
        });
        if accepted > 0 {
            shared.slots.send.take(accepted as u32);
            let posted = Posted {
                count: accepted,
                bytes,
            };
            let ended = posting.end();
            end_post(&self.inner, engine, ended, posted);
        }
        refused.map_or(Ok(()), |error| Err((accepted, error)))
    }

    /// Posts a short message that becomes a packet at once. False: nothing was done, and it is one
    /// for [`Qp::post_send`], which also knows why it cannot be posted, should that be so.
    #[inline]
    pub fn post_short(&self, short: ShortSend<'_>) -> bool {
        if self.inner.context.nic.check_alive("ibv_post_send").is_err() || observe::sees_each_post()
        {
            return self.post_short_seen(short);
        }
        self.post_short_now(short)
    }

    /// The same where somebody looks: who only counts need not have it the other way.
    #[cold]
    fn post_short_seen(&self, short: ShortSend<'_>) -> bool {
        let shared = self.shared();
        let Some(usage) = &shared.usage else {
            return false;
        };
        if observe::follows_each_post() || self.inner.context.nic.check_alive("").is_err() {
            return false;
        }
        let used = shared.slots.send.used().max(0) as u64 + 1;
        let posted = self.post_short_now(short);
        if posted {
            usage.posted_short(&short, shared.sq_sig_all, used);
        }
        posted
    }

    #[inline(always)]
    fn post_short_now(&self, mut short: ShortSend<'_>) -> bool {
        let shared = self.shared();
        let mut engine = self.inner.shard.lock();
        let used = shared.slots.send.used();
        let fits = match short.data {
            ShortData::Registered(_) => true,
            ShortData::Inline(bytes) => bytes.len() <= shared.cap.max_inline_data as usize,
        };
        if shared.state() != QpState::Rts || used.max(0) as u32 >= shared.cap.max_send_wr || !fits {
            return false;
        }
        short.signaled |= shared.sq_sig_all;
        let outcome = engine.post_short(shared.qpn, &short);
        if outcome == ShortPost::NotThisWay {
            return false;
        }
        shared.slots.send.take(1);
        match outcome {
            ShortPost::Left => has_left(&self.inner, engine, 1),
            _ => is_staged(&self.inner, engine, 1, outcome == ShortPost::Due),
        }
        true
    }

    /// Posts all of a batch, which is empty then, or nothing (`ibv_wr_complete`).
    ///
    /// # Errors
    /// As [`Qp::post_send`], for the first work request that cannot be posted.
    pub fn post_send_batch(&self, wqes: &mut Vec<SendWqe>) -> Result<()> {
        let shared = self.shared();
        let nic = &self.inner.context.nic;
        nic.check_alive("ibv_wr_complete")?;
        let mut engine = self.inner.shard.lock();
        let state = shared.state();
        for (ahead, wqe) in wqes.iter().enumerate() {
            check_send(shared, state, ahead, wqe)?;
            check_address(shared, &engine.ahs, wqe)?;
        }
        if wqes.is_empty() {
            return Ok(());
        }
        let Some(mut posting) = engine.posting(shared.qpn, state) else {
            return Err(gone("ibv_wr_complete"));
        };
        let posted = Posted {
            count: wqes.len(),
            bytes: wqes.iter().map(|wqe| wqe.data.len()).sum(),
        };
        for (ahead, mut wqe) in wqes.drain(..).enumerate() {
            ready_to_post(shared, &mut wqe, ahead);
            posting.post(wqe.signaled, wqe);
        }
        shared.slots.send.take(posted.count as u32);
        let ended = posting.end();
        end_post(&self.inner, engine, ended, posted);
        Ok(())
    }

    /// Posts receive work requests until the first error.
    ///
    /// # Errors
    /// As [`Qp::post_send`]; EINVAL on a queue pair with a shared receive queue.
    pub fn post_recv(
        &self,
        wqes: &mut dyn Iterator<Item = Result<RecvWqe>>,
    ) -> std::result::Result<(), (usize, Error)> {
        const VERB: &str = "ibv_post_recv";
        let shared = self.shared();
        let nic = &self.inner.context.nic;
        nic.check_alive(VERB).map_err(|e| (0, e))?;
        let mut engine = self.inner.shard.lock();
        let state = shared.state();
        let Some(entry) = engine.qp_mut(shared.qpn) else {
            return Err((0, gone(VERB)));
        };
        let mut ahead = 0;
        let (accepted, refused) = take_each(wqes, |wqe| {
            check_recv(shared, state, ahead, wqe.sges.len())?;
            entry.receives.push_back(wqe);
            ahead += 1;
            Ok(())
        });
        shared.slots.recv.take(ahead as u32);
        if accepted > 0 && lint::is_on() {
            lint::receive_posted(shared);
        }
        if accepted > 0 && state == QpState::Err {
            engine.flush_qp(shared.qpn);
            // A flush may overrun a completion queue, which is then the engine's to deal with.
            self.inner.shard.after_drive(engine);
        }
        refused.map_or(Ok(()), |error| Err((accepted, error)))
    }

    /// Posts one receive work request of one element, as they mostly are. False: nothing was done,
    /// it is one for [`Qp::post_recv`], which takes it or says why not.
    #[inline]
    pub fn post_one_recv(&self, wr_id: u64, sge: Sge) -> bool {
        let shared = self.shared();
        if self.inner.context.nic.check_alive("ibv_post_recv").is_err() || lint::is_on() {
            return false;
        }
        let mut engine = self.inner.shard.lock();
        let state = shared.state();
        // In ERR it would have to be flushed.
        if state == QpState::Err || check_recv(shared, state, 0, 1).is_err() {
            return false;
        }
        let Some(entry) = engine.qp_mut(shared.qpn) else {
            return false;
        };
        let mut sges = SgList::new();
        sges.push(sge);
        entry.receives.push_back(RecvWqe { wr_id, sges });
        shared.slots.recv.take(1);
        true
    }
}

/// The handle outlives what it stood for.
pub(super) fn gone(verb: &'static str) -> Error {
    Error::invalid(
        verb,
        "the queue pair was destroyed, or ended with the context that it was made in",
    )
}

/// Has the service this operation?
fn check_operation(qp_type: QpType, op: &SendOp) -> Result<()> {
    if op.is_of(qp_type) {
        return Ok(());
    }
    Err(Error::invalid(
        "ibv_post_send",
        format!(
            "a queue pair of type {qp_type} has no {}",
            observe::request_name(op)
        ),
    ))
}

/// May this work request enter the send queue, behind what is posted and `ahead` more?
fn check_send(shared: &QpShared, state: QpState, ahead: usize, wqe: &SendWqe) -> Result<()> {
    const VERB: &str = "ibv_post_send";
    if shared.qp_type == QpType::XrcRecv {
        return Err(Error::invalid(VERB, "an XRC_RECV queue pair sends nothing"));
    }
    if !matches!(
        state,
        QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err
    ) {
        return Err(Error::invalid(
            VERB,
            format!("the queue pair is in {state}, sending needs RTS"),
        ));
    }
    let used = shared.slots.send.used();
    let used = used.max(0) as usize + ahead;
    if used >= shared.cap.max_send_wr as usize {
        return Err(Error::new(
            VERB,
            libc::ENOMEM,
            format!(
                "send queue full: {used} work requests posted whose completions were not polled; an unsignaled one is \
                 freed only by polling a later signaled one"
            ),
        ));
    }
    check_operation(shared.qp_type, &wqe.op)?;
    match &wqe.data {
        SendData::Gather(list) if list.len() > shared.cap.max_send_sge as usize => {
            return Err(Error::new(
                VERB,
                libc::ENOMEM,
                format!(
                    "{} SGEs, the queue pair has {}",
                    list.len(),
                    shared.cap.max_send_sge
                ),
            ));
        }
        // The value of an atomic write has its place in the WQE, as with the operands of other
        // atomics.
        SendData::Inline(_) if matches!(wqe.op, SendOp::AtomicWrite { .. }) => {}
        SendData::Inline(bytes) if bytes.len() > shared.cap.max_inline_data as usize => {
            return Err(Error::new(
                VERB,
                libc::ENOMEM,
                format!(
                    "{} bytes of inline data, the queue pair has {}",
                    bytes.len(),
                    shared.cap.max_inline_data
                ),
            ));
        }
        SendData::Inline(_) if wqe.op.is_read_or_atomic() => {
            return Err(Error::invalid(VERB, "READ and atomics cannot be inline"));
        }
        _ => {}
    }
    // Longer messages are the transport's to fail, with a completion.
    debug_assert!(MAX_MSG.is_power_of_two());
    Ok(())
}

/// Does the address handle of a datagram exist, in the right protection domain?
#[inline]
fn check_address(shared: &QpShared, ahs: &AhTable, wqe: &SendWqe) -> Result<()> {
    let SendOp::Datagram { to, .. } = wqe.op else {
        return Ok(());
    };
    if ahs.pd(AhNumber(to.path)) == Some(shared.pd) {
        return Ok(());
    }
    Err(Error::invalid(
        "ibv_post_send",
        "the address handle is none, or of another protection domain than the queue pair",
    ))
}

#[inline(always)]
fn ready_to_post(shared: &QpShared, wqe: &mut SendWqe, ahead: usize) {
    wqe.signaled |= shared.sq_sig_all;
    if observe::sees_each_post() {
        look_at(shared, wqe, ahead);
    }
}

/// `ahead`: requests that were posted before it by the same call.
#[cold]
fn look_at(shared: &QpShared, wqe: &SendWqe, ahead: usize) {
    if lint::is_on() {
        lint::stage(wqe, shared.qpn);
    }
    if trace::is_on() {
        trace::posted(shared, wqe);
    }
    if let Some(usage) = &shared.usage {
        let used = shared.slots.send.used().max(0) as u64;
        usage.posted(wqe, ahead == 0, used + 1 + ahead as u64);
    }
}

/// That was just posted, and has left by itself or not.
#[inline]
fn end_post(qp: &QpHandle, mut engine: Guard<'_, Engine>, ended: Ended, posted: Posted) {
    engine.has_posted(qp.shared.qpn, posted);
    match ended {
        Ended::Left => has_left(qp, engine, posted.count),
        Ended::Staged => is_staged(qp, engine, posted.count, true),
        // That took longer than a packet, so whatever others wait for has its turn.
        Ended::Executed => {
            let others = engine.has_to_send();
            is_done(qp, engine, others, posted.count);
        }
        Ended::Waits => start_sending(qp, engine, posted),
    }
}

/// All that was just posted has left.
#[inline]
fn has_left(qp: &QpHandle, engine: Guard<'_, Engine>, count: usize) {
    let others = engine.has_turns_to_give();
    is_done(qp, engine, others, count);
}

/// Nothing of what was just posted is left to be sent; `others`: of other queue pairs something may
/// be.
#[inline]
fn is_done(qp: &QpHandle, mut engine: Guard<'_, Engine>, others: bool, count: usize) {
    let shard = &qp.shard;
    // Whoever posts polls soon.
    shard.count_poll();
    if engine.count_posts(count) || others {
        engine.transmit(shard.acks());
    }
    shard.after_drive(engine);
}

/// What was just posted is a packet that is still here, the first of it at least.
#[inline]
fn is_staged(qp: &QpHandle, mut engine: Guard<'_, Engine>, count: usize, due: bool) {
    let shard = &qp.shard;
    // Whoever posts polls soon.
    shard.count_poll();
    if engine.count_posts(count) || due {
        if !engine.send_posted(qp.shared.qpn) {
            engine.transmit(shard.acks());
        }
        shard.after_drive(engine);
    }
}

/// Lets what was just posted leave, now or with what comes next, or in ERR flushes it.
fn start_sending(qp: &QpHandle, mut engine: Guard<'_, Engine>, posted: Posted) {
    let (shard, shared) = (&qp.shard, &qp.shared);
    if lint::is_on() {
        lint::posted(&engine.memory, shared);
    }
    // Whoever posts polls soon.
    shard.count_poll();
    // What it brought may be what the messages would wait for.
    let caught_up = engine.count_posts(posted.count);
    if shared.state() == QpState::Err {
        engine.flush_qp(shared.qpn);
    } else {
        engine.schedule_posted(shared.qpn, posted);
        if !caught_up && engine.may_batch(shared.qpn, posted) {
            if engine.batching.one_sided.take_news() {
                shard.leave_for_later(engine);
            }
            return;
        }
        engine.transmit(shard.acks());
    }
    shard.after_drive(engine);
}

/// May a work request of so many elements enter the receive queue, behind what is posted and
/// `ahead` more?
#[inline]
fn check_recv(shared: &QpShared, state: QpState, ahead: i32, sges: usize) -> Result<()> {
    const VERB: &str = "ibv_post_recv";
    match shared.source {
        ReceiveSource::Own if shared.qp_type == QpType::XrcSend => {
            return Err(Error::invalid(
                VERB,
                "an XRC_SEND queue pair receives nothing",
            ));
        }
        ReceiveSource::Own => {}
        ReceiveSource::Srq(_) | ReceiveSource::Xrc(_) => {
            return Err(Error::invalid(
                VERB,
                "the queue pair takes its receives from a shared receive queue: use ibv_post_srq_recv",
            ));
        }
    }
    if state == QpState::Reset {
        return Err(Error::invalid(
            VERB,
            "the queue pair is in RESET, receiving needs INIT",
        ));
    }
    if sges > shared.cap.max_recv_sge as usize {
        return Err(Error::invalid(
            VERB,
            format!(
                "{} SGEs, the queue pair has {}",
                sges, shared.cap.max_recv_sge
            ),
        ));
    }
    let used = shared.slots.recv.used() + ahead;
    if used >= shared.cap.max_recv_wr as i32 {
        return Err(Error::new(
            VERB,
            libc::ENOMEM,
            format!("receive queue full: {used} work requests posted"),
        ));
    }
    Ok(())
}
