//! The default reactor's thread takes in packets while it waits.
//!
//! A future that sleeps would cost three wake-ups: a packet wakes the device's own thread, that the
//! thread that waits for the channel's descriptor, and that the task. So this thread waits as
//! [`CompletionChannel::wait_with`] does, and a packet wakes it at once. It does so only while
//! futures sleep: a thread that blocks in a wait of its own is to be woken itself.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::thread::{self, ThreadId};

use rustix_futex_sync::{Condvar, Mutex};

use super::reactor::Sleepers;
use crate::cq::{CompletionChannel, DrivingWait};
use crate::device;
use crate::nic::CompChannel;
use crate::raw::fd;

/// The channels of the software NIC that a reactor watches.
#[derive(Default)]
pub(super) struct Driven {
    state: Mutex<State>,
    /// The thread has left a wait.
    left: Condvar,
}

#[derive(Default)]
struct State {
    channels: Vec<Channel>,
    /// Those whose engines the thread drives now.
    within: Vec<u64>,
    thread: Option<ThreadId>,
}

struct Channel {
    id: u64,
    raw: CompChannel,
    sleepers: Arc<Sleepers>,
}

impl Driven {
    /// Knows a channel, if it is one of the software NIC.
    pub(super) fn add(&self, id: u64, channel: &CompletionChannel, sleepers: Arc<Sleepers>) {
        let device::CompChannel::Software(raw) = channel.raw() else {
            return;
        };
        sleepers.driven(false);
        sleepers.watched(true);
        let mut state = self.state.lock();
        state.channels.push(Channel {
            id,
            raw: raw.clone(),
            sleepers,
        });
    }

    /// Forgets a channel. Nothing of its device is held any more afterwards: `ring` ends the wait
    /// of the thread.
    pub(super) fn remove(&self, id: u64, ring: impl FnOnce()) {
        let mut state = self.state.lock();
        let place = state.channels.iter().position(|channel| channel.id == id);
        let removed = place.map(|place| state.channels.swap_remove(place));
        if state.within.contains(&id) && state.thread != Some(thread::current().id()) {
            ring();
            while state.within.contains(&id) {
                state = self.left.wait(state);
            }
        }
        drop(state);
        if let Some(channel) = &removed {
            channel.sleepers.watched(false);
        }
    }

    /// If futures sleep, waits until `set` is readable and drives their engines meanwhile. False:
    /// none does, or the device cannot be driven, so that the caller waits by itself. `seen`: the
    /// process's events before the caller last looked at `set`.
    pub(super) fn wait(&self, set: BorrowedFd<'_>, seen: u32) -> bool {
        let channels = self.enter();
        if channels.is_empty() {
            return false;
        }
        let wait = DrivingWait {
            channels: &channels,
            fds: std::iter::once(fd::readable(set.as_raw_fd())).collect(),
            looked_at: 1,
            deadline: None,
        };
        let came = || CompChannel::events_so_far() != seen;
        let waited = wait.run(came, || self.has_sleepers());
        drop(channels);
        self.state.lock().within.clear();
        self.left.notify_all();
        waited.is_ok()
    }

    fn has_sleepers(&self) -> bool {
        let state = self.state.lock();
        let mut channels = state.channels.iter();
        channels.any(|channel| channel.sleepers.count() > 0)
    }

    /// The thread begins to wait: by these it drives all that somebody sleeps for.
    fn enter(&self) -> Vec<CompChannel> {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.thread = Some(thread::current().id());
        loop {
            let mut by = Vec::new();
            for channel in &state.channels {
                if channel.sleepers.count() > 0 && !channel.raw.is_driven_with(&by) {
                    by.push(channel.raw.clone());
                    state.within.push(channel.id);
                }
            }
            // Whoever sleeps from now on, and for whom it does not drive, rings.
            let mut missed = false;
            for channel in &state.channels {
                let driven = !by.is_empty() && channel.raw.is_driven_with(&by);
                channel.sleepers.driven(driven);
                if driven {
                    channel.raw.is_waited_for_driving();
                }
                missed |= !driven && channel.sleepers.count() > 0;
            }
            if !missed {
                return by;
            }
            state.within.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context as Task, Waker};
    use std::time::{Duration, Instant};

    use super::super::reactor::Epoll;
    use super::super::{CompletionQueue, PreparedQueuePair, QueuePair};
    use super::*;
    use crate::nic::Waiting;
    use crate::{Context, Rc};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Futures of it sleep at once.
    fn queue(context: &Context) -> CompletionQueue {
        let builder = CompletionQueue::builder(context, 256).spin(Duration::ZERO);
        builder.build().expect("a queue")
    }

    fn pair(context: &Context, cq: &CompletionQueue) -> [QueuePair<Rc>; 2] {
        let gid = context.loopback_gid().expect("an address");
        let pd = context.alloc_pd().expect("pd");
        let prepare = || -> PreparedQueuePair<Rc> {
            let builder = cq.create_qp::<Rc>(&pd).gid(&gid).receives(4, 64);
            builder.build().expect("qp")
        };
        let (left, right) = (prepare(), prepare());
        let (to_left, to_right) = (left.endpoint(), right.endpoint());
        [
            left.handshake(to_right).expect("handshake"),
            right.handshake(to_left).expect("handshake"),
        ]
    }

    fn polls_in_vain<F: Future + Unpin>(future: &mut F) {
        let mut task = Task::from_waker(Waker::noop());
        assert!(Pin::new(future).poll(&mut task).is_pending());
    }

    /// Whether another thread drives the engines of the channel, when the reactor's thread has
    /// begun to wait anew.
    fn another_drives(channel: &CompChannel) -> bool {
        let waiting = CompChannel::wait_for_any(std::slice::from_ref(channel), None, || false);
        CompChannel::end_wait();
        let waiting = waiting.expect("the device is open").expect("a channel");
        Epoll::of_process().expect("the thread").ring();
        waiting == Waiting::SleepOnChannel
    }

    fn comes_to_be(what: &str, is: impl Fn() -> bool) {
        let begin = Instant::now();
        while !is() {
            assert!(begin.elapsed() < PATIENCE, "{what}");
            thread::yield_now();
        }
    }

    /// While a future sleeps, the reactor's thread takes packets in, so that they wake it alone.
    /// While none does, it leaves that to threads that block.
    #[test]
    fn the_reactor_drives_while_futures_sleep() {
        let context = Context::open_by_name("rnic0").expect("the device opens");
        let cq = queue(&context);
        let [left, right] = pair(&context, &cq);
        let channel = context.create_comp_channel().expect("a channel");
        let device::CompChannel::Software(channel) = channel.raw() else {
            panic!("the software NIC");
        };
        for _ in 0..3 {
            let mut receive = right.recv();
            polls_in_vain(&mut receive);
            comes_to_be("the reactor drives", || another_drives(channel));
            drop(receive);
            comes_to_be("nobody drives", || !another_drives(channel));
            // A wait of that kind loses no message.
            super::super::block_on(async {
                left.send_inline(b"message").await.expect("sent");
                assert_eq!(&right.recv().await.expect("received")[..], b"message");
            });
        }
    }

    /// The device closes with its last handle, although the reactor's thread sleeps on its
    /// descriptors.
    #[test]
    fn the_device_closes_at_once() {
        for _ in 0..20 {
            let context = Context::open_by_name("rnic0").expect("the device opens");
            let cq = queue(&context);
            let [left, right] = pair(&context, &cq);
            let mut receive = right.recv();
            polls_in_vain(&mut receive);
            let driven = &Epoll::of_process().expect("the thread").driven;
            comes_to_be("it waits", || !driven.state.lock().within.is_empty());
            let device::CompChannel::Software(channel) = cq.core.cq().channel().raw() else {
                panic!("the software NIC");
            };
            let channel = channel.downgrade();
            assert!(channel.upgrade().is_some());
            drop((context, cq, left, right, receive));
            assert!(channel.upgrade().is_none(), "something holds the device");
        }
    }
}
