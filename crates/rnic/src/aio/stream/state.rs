//! What both halves of a byte stream share: credits, messages, and how it ended.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::task::Waker;

use rustix_futex_sync::Mutex;

use super::wire::{self, Hello, Kind};
use crate::aio::connect::Connection;
use crate::aio::core::Awaited;
use crate::aio::lane::{Arrival, Outcomes, Posting, Sort};
use crate::aio::qp::{QueuePair, Shared};
use crate::aio::receive::Message;
use crate::error::{CompletionError, Error};
use crate::post::SendRequest;
use crate::qp::Rc;
use crate::raw::memory::Buffer;

/// The two halves' own.
pub(super) struct Inner {
    pub(super) qp: QueuePair<Rc>,
    /// `None`: the peers shook hands by other means.
    pub(super) connection: Option<Connection<Rc>>,
    /// Of its messages.
    pub(super) sent: Arc<Outcomes>,
    /// Bytes of its send buffers and receives.
    pub(super) size: usize,
    count: usize,
    state: Mutex<State>,
}

/// How it failed.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    Queue(CompletionError),
    /// The peer does not speak this protocol.
    Protocol(&'static str),
}

impl Failure {
    pub(super) fn error(&self) -> io::Error {
        match self {
            Failure::Queue(error) => io::Error::new(io::ErrorKind::ConnectionReset, *error),
            Failure::Protocol(what) => io::Error::new(io::ErrorKind::InvalidData, *what),
        }
    }
}

#[derive(Default)]
struct State {
    /// What the peer has said of its receives.
    peer: Option<Hello>,
    /// DATA that it has receives for.
    credits: usize,
    ended: bool,
    failed: Option<Failure>,
    /// DATA that has come, and how much of the first was read.
    ready: VecDeque<Message>,
    read: usize,
    /// Receives that were posted again, and which the peer does not know of.
    owed: usize,
    /// Send buffers that are free.
    free: Vec<Buffer>,
    end_sent: bool,
}

/// Who waits, if somebody is about to.
pub(super) type Waiter<'a> = Option<(u64, &'a Waker)>;

impl Inner {
    pub(super) fn new(
        qp: QueuePair<Rc>,
        connection: Option<Connection<Rc>>,
        (count, size): (usize, usize),
        free: Vec<Buffer>,
    ) -> Inner {
        Inner {
            qp,
            connection,
            sent: Arc::default(),
            size,
            count,
            state: Mutex::new(State {
                free,
                ..State::default()
            }),
        }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.qp.shared
    }

    /// Tells the peer of the receives.
    ///
    /// # Errors
    /// The device refuses.
    pub(super) fn hello(&self, mut buffer: Buffer) -> Result<(), Error> {
        let hello = Hello {
            count: self.count as u32,
            size: self.size as u32,
        };
        buffer.copy_from_slice(&hello.to_bytes());
        let request = SendRequest::send(buffer).imm(wire::encode(Kind::Hello, 0));
        match self.shared().post(request, Sort::Detached(None), None) {
            Posting::Posted(_) => Ok(()),
            Posting::Full(_) => unreachable!("it is the first request"),
            Posting::Refused(refused) => Err(refused.error),
        }
    }

    /// Takes what has come. `waiter` is told of what comes next.
    fn take(&self, state: &mut State, waiter: Waiter<'_>) {
        loop {
            let arrival = match self.shared().lane().arrival(None) {
                Some(arrival) => arrival,
                // Nothing is there: now it can be waited for.
                None => match self.shared().lane().arrival(waiter) {
                    Some(arrival) => arrival,
                    None => return,
                },
            };
            match arrival {
                Arrival::Message(completion) => {
                    state.accept(Message::new(self.shared(), completion), self);
                }
                Arrival::Failed(error) => {
                    let failed = state.failed.is_some();
                    if !failed {
                        state.failed = Some(Failure::Queue(error));
                    }
                    return;
                }
                Arrival::NoReceives => return,
            }
        }
    }

    /// Tells the peer of receives, if there are many that it does not know of.
    fn repay(&self, state: &mut State, waiter: Waiter<'_>) {
        if state.owed < self.count.div_ceil(2) || state.failed.is_some() {
            return;
        }
        let imm = wire::encode(Kind::Credit, state.owed);
        let request = SendRequest::send_inline(&[]).imm(imm);
        // If there is no room, the waiter is told when there is, and comes back.
        if let Posting::Posted(_) = self.shared().post(request, Sort::Detached(None), waiter) {
            state.owed = 0;
        }
    }

    /// Copies what there is; 0 bytes: the end.
    pub(super) fn read(&self, into: &mut [u8], waiter: Waiter<'_>) -> Option<io::Result<usize>> {
        let mut state = self.state.lock();
        let state = &mut *state;
        if into.is_empty() {
            return Some(Ok(0));
        }
        self.take(state, waiter);
        let mut copied = 0;
        while copied < into.len()
            && let Some(message) = state.ready.front()
        {
            let bytes = &message[state.read..];
            let count = bytes.len().min(into.len() - copied);
            into[copied..copied + count].copy_from_slice(&bytes[..count]);
            copied += count;
            state.read += count;
            if state.read == message.len() {
                // Its receive is posted again.
                state.ready.pop_front();
                (state.read, state.owed) = (0, state.owed + 1);
            }
        }
        self.repay(state, waiter);
        match copied {
            0 => state.over().map(|over| over.map(|()| 0)),
            _ => Some(Ok(copied)),
        }
    }

    /// The next message, or what is left of it, without a copy; `None`: the end.
    pub(super) fn read_message(
        &self,
        waiter: Waiter<'_>,
    ) -> Option<io::Result<Option<(Message, usize)>>> {
        let mut state = self.state.lock();
        let state = &mut *state;
        self.take(state, waiter);
        self.repay(state, waiter);
        match state.ready.pop_front() {
            Some(message) => Some(Ok(Some((message, std::mem::take(&mut state.read))))),
            None => state.over().map(|over| over.map(|()| None)),
        }
    }

    /// A message that was given out is no longer used, and its receive is posted again.
    pub(super) fn returned(&self) {
        let mut state = self.state.lock();
        state.owed += 1;
        self.repay(&mut state, None);
    }

    /// What may be sent now, if anything: bytes that one message takes.
    fn may_send(&self, state: &mut State, waiter: Waiter<'_>) -> Option<io::Result<usize>> {
        self.take(state, waiter);
        if let Some(failed) = &state.failed {
            return Some(Err(failed.error()));
        }
        if let Some(error) = self.sent.failed() {
            return Some(Err(Failure::Queue(error).error()));
        }
        if state.end_sent {
            return Some(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let peer = state.peer?;
        (state.credits > 0).then_some(Ok(peer.size as usize))
    }

    /// Copies as much as one message takes, and sends it.
    pub(super) fn write(&self, bytes: &[u8], waiter: Waiter<'_>) -> Option<io::Result<usize>> {
        let mut state = self.state.lock();
        let state = &mut *state;
        if bytes.is_empty() {
            return Some(Ok(0));
        }
        let most = match self.may_send(state, waiter)? {
            Ok(most) => most.min(self.size).min(bytes.len()),
            Err(error) => return Some(Err(error)),
        };
        if state.free.is_empty() {
            // The waker is left first, and then it is looked.
            self.sent.tell_next(waiter.map(|(_, waker)| waker));
            state.free = self.sent.take_buffers();
        }
        let mut buffer = state.free.pop()?;
        buffer[..most].copy_from_slice(&bytes[..most]);
        let request = match SendRequest::send(buffer).range(..most) {
            Ok(request) => request,
            Err(error) => return Some(Err(io::Error::other(error))),
        };
        match self.send(state, request, self.sent.clone(), waiter) {
            Sending::Sent => Some(Ok(most)),
            Sending::Full(request) => {
                state.free.extend(request.into_buffer());
                None
            }
            Sending::Failed(error) => Some(Err(error)),
        }
    }

    /// Sends the next piece of `rest` as it lies, if there is a receive for it. True: that was all.
    pub(super) fn write_buffer(
        &self,
        rest: &mut Option<Buffer>,
        outcomes: &Arc<Outcomes>,
        waiter: Waiter<'_>,
    ) -> Option<io::Result<()>> {
        let mut state = self.state.lock();
        let state = &mut *state;
        while let Some(mut piece) = rest.take() {
            let most = match self.may_send(state, waiter) {
                Some(Ok(most)) => most,
                other => {
                    *rest = Some(piece);
                    return other.map(|error| error.map(drop));
                }
            };
            let more = (piece.len() > most).then(|| piece.split_off(most));
            match self.send(state, SendRequest::send(piece), outcomes.clone(), waiter) {
                Sending::Sent => *rest = more,
                Sending::Full(request) => {
                    *rest = join(request.into_buffer(), more);
                    return None;
                }
                Sending::Failed(error) => return Some(Err(error)),
            }
        }
        Some(Ok(()))
    }

    fn send(
        &self,
        state: &mut State,
        request: SendRequest,
        outcomes: Arc<Outcomes>,
        waiter: Waiter<'_>,
    ) -> Sending {
        let request = request.imm(wire::encode(Kind::Data, state.owed));
        match self
            .shared()
            .post(request, Sort::Stream(outcomes, 1), waiter)
        {
            Posting::Posted(_) => {
                state.credits -= 1;
                state.owed = 0;
                Sending::Sent
            }
            Posting::Full(request) => Sending::Full(request),
            Posting::Refused(refused) => Sending::Failed(io::Error::other(refused.error)),
        }
    }

    /// All that was written has been received by the peer's device.
    pub(super) fn flush(&self, waiter: Waiter<'_>) -> Option<io::Result<()>> {
        let mut state = self.state.lock();
        self.take(&mut state, waiter);
        let done = self.sent.are_in(waiter.map(|(_, waker)| waker));
        match (self.sent.failed(), &state.failed) {
            (Some(error), _) => Some(Err(Failure::Queue(error).error())),
            (None, Some(failed)) if !done => Some(Err(failed.error())),
            _ => done.then_some(Ok(())),
        }
    }

    /// Says that nothing more comes, once, and waits until the peer's device has that.
    pub(super) fn close(&self, waiter: Waiter<'_>) -> Option<io::Result<()>> {
        let mut state = self.state.lock();
        if !state.end_sent {
            self.take(&mut state, waiter);
            if let Some(failed) = &state.failed {
                return Some(Err(failed.error()));
            }
            match self
                .shared()
                .post(end(), Sort::Stream(self.sent.clone(), 1), waiter)
            {
                Posting::Posted(_) => state.end_sent = true,
                Posting::Full(_) => return None,
                Posting::Refused(refused) => return Some(Err(io::Error::other(refused.error))),
            }
        }
        drop(state);
        self.flush(waiter)
    }
}

/// The end of what one side writes.
fn end() -> SendRequest {
    SendRequest::send_inline(&[]).imm(wire::encode(Kind::End, 0))
}

/// Two pieces of one buffer.
fn join(first: Option<Buffer>, second: Option<Buffer>) -> Option<Buffer> {
    match (first, second) {
        (Some(first), Some(second)) => first.unsplit(second).ok(),
        (first, second) => first.or(second),
    }
}

enum Sending {
    Sent,
    Full(SendRequest),
    Failed(io::Error),
}

impl State {
    /// Nothing more can be read: by the peer's word, or since something failed.
    fn over(&self) -> Option<io::Result<()>> {
        if self.ended {
            return Some(Ok(()));
        }
        self.failed.as_ref().map(|failed| Err(failed.error()))
    }

    fn accept(&mut self, message: Message, inner: &Inner) {
        let said = message.imm().and_then(wire::decode);
        let Some((kind, credits)) = said else {
            return self.breaks("the peer sends what is no message of a byte stream");
        };
        let sound = match kind {
            Kind::Hello => {
                let hello = Hello::from_bytes(&message);
                let first = self.peer.is_none();
                self.peer = self.peer.or(hello);
                self.credits = hello.map_or(0, |hello| hello.count as usize);
                first && hello.is_some()
            }
            // Counted against what the peer has: it cannot say more than it was sent.
            _ => {
                let most = self.peer.map_or(0, |peer| peer.count as usize);
                let all = self.credits.saturating_add(credits);
                self.credits = all.min(most);
                all <= most
            }
        };
        if !sound {
            return self.breaks("the peer tells of receives that it cannot have");
        }
        match kind {
            Kind::Data if self.ended => self.breaks("the peer sends bytes behind the end"),
            Kind::Data if self.ready.len() >= inner.count => {
                self.breaks("the peer sends more than it was told of");
            }
            // Empty, it is used up.
            Kind::Data if message.is_empty() => self.owed += 1,
            Kind::Data => self.ready.push_back(message),
            Kind::End => self.ended = true,
            Kind::Hello | Kind::Credit => {}
        }
    }

    fn breaks(&mut self, what: &'static str) {
        self.failed.get_or_insert(Failure::Protocol(what));
    }
}

impl Drop for Inner {
    /// What was written still arrives: the queue pair stays until the peer's device has all of it,
    /// or until that fails.
    fn drop(&mut self) {
        let core = self.shared().core().clone();
        if !core.is_alive() {
            return;
        }
        let state = self.state.get_mut();
        let open = !self.sent.are_in(None) || !state.end_sent;
        if !open || state.failed.is_some() || self.sent.failed().is_some() {
            return;
        }
        // It is behind all that is posted.
        let last = match state.end_sent {
            true => SendRequest::send_inline(&[]).imm(wire::encode(Kind::Credit, 0)),
            false => end(),
        };
        let held: Box<dyn Send> = Box::new(Lingering {
            _connection: self.connection.take(),
            _qp: self.qp.clone(),
            _awaited: core.awaits(),
        });
        let _ = self.shared().post(last, Sort::Detached(Some(held)), None);
    }
}

/// A queue pair whose last requests are under way. In this order they go.
struct Lingering {
    _connection: Option<Connection<Rc>>,
    _qp: QueuePair<Rc>,
    _awaited: Awaited,
}
