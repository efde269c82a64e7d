//! Ids: what stands behind a `struct rdma_cm_id`, from `rdma_create_id` to `rdma_destroy_id`.

use core::ffi::{c_int, c_uint, c_void};
use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

use rnic_nic::cm::{self, PortSpace};
use rnic_nic::{Over, QpType, Unacknowledged};

use super::channel::{self, ChannelObject};
use super::devices::{self, Membership};
use super::event;
use super::multicast::Group;
use super::resolution::Resolution;
use crate::c::cm::*;
use crate::c::*;
use crate::convert::strings::cm_event_name;
use crate::export::seam::{self, EINVAL, NULL, PARENTS, Refusal, Result, Verb};
use crate::export::symbols::export;
use crate::system::fork::{self, Lock};

/// `struct rdma_cm_id` and behind it what the stock librdmacm keeps there. Its rsockets run on our
/// ids, and reach into that part past the functions: `cma_dev`, where NULL means "ask
/// `ibv_open_device`", and `sync`. The rest is zero up to more than it ever was.
#[repr(C)]
struct PrivateId {
    id: rdma_cm_id,
    cma_dev: *mut c_void,
    connect: *mut c_void,
    connect_len: usize,
    events_completed: c_int,
    connect_error: c_int,
    sync: c_int,
    later: [u8; 444],
}
assert_layout!(PrivateId, 896, cma_dev @ 416, connect @ 424, connect_len @ 432, events_completed @ 440,
    connect_error @ 444, sync @ 448);

/// An id. The program's pointer is its address; it holds one share, from [`create`] to
/// `rdma_destroy_id`.
#[repr(C)]
pub struct IdObject {
    c: UnsafeCell<PrivateId>,
    nic: cm::Id,
    /// What `nic` knows it by.
    mark: u64,
    state: Mutex<State>,
    /// An event was acknowledged.
    acknowledged: Condvar,
}

// SAFETY: fields of the C part are written by the calls that the program makes for the id, which it
// has to order as with librdmacm; everything else is behind a lock.
unsafe impl Send for IdObject {}
// SAFETY: as above.
unsafe impl Sync for IdObject {}

// The C part comes first.
const _: () = assert!(offset_of!(IdObject, c) == 0);

/// The part of an id that the program does not see.
#[derive(Default)]
pub struct State {
    /// `None` once the channel was destroyed.
    pub channel: Option<Arc<ChannelObject>>,
    /// Once it is on the device.
    pub device: Option<Membership>,
    /// `route.path_rec`.
    pub path: Option<Box<ibv_sa_path_rec>>,
    /// RDMA READs and atomics at a time: of the request before, what was agreed to after
    /// `rdma_connect` and `rdma_accept`.
    pub initiator_depth: u8,
    pub responder_resources: u8,
    pub local_ece: cm::Ece,
    pub remote_ece: cm::Ece,
    /// The response could not be acted on, which ended the connection for the program: no event
    /// more about it.
    pub connect_error: bool,
    /// `rdma_create_ep`: what the ids of requests get, and what goes before the private data of
    /// `rdma_connect`.
    pub qp_init: Option<ibv_qp_init_attr>,
    pub connect_data: Vec<u8>,
    /// Groups it joined.
    pub groups: Vec<Arc<Group>>,
    /// The name that it was asked to find.
    pub resolution: Resolution,
    /// Events that the program took and acknowledged.
    delivered: u64,
    completed: u64,
    /// Of each kind, those that it took and did not acknowledge.
    owed: [u32; KINDS],
    /// No event reaches the program any more.
    ending: bool,
}

/// Kinds of events (`rdma_event_str`).
const KINDS: usize = 19;

/// The call for events of the connection manager.
pub const ACK_CM: &str = "rdma_ack_cm_event";

/// Ids by the addresses that programs hold, and by the marks that events carry.
#[derive(Default)]
pub struct Ids {
    by_address: BTreeMap<usize, Arc<IdObject>>,
    addresses: BTreeMap<u64, usize>,
}

static IDS: LazyLock<Mutex<Ids>> = LazyLock::new(Mutex::default);

/// Held across fork(2), so that the child finds it free.
pub fn lock() -> MutexGuard<'static, Ids> {
    IDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has forks take the lock.
pub fn guard_forks() -> Result<()> {
    fork::hold_at_forks(Lock::Ids, || Box::new(lock()))
}

/// The id behind a pointer; EINVAL for NULL and for what is none (any more), ENODEV for a parent's
/// in a forked child, where its locks may be held for ever.
pub fn from_c(id: *mut rdma_cm_id) -> Result<Arc<IdObject>> {
    match find(id)? {
        id if id.is_parents() => Err(PARENTS),
        id => Ok(id),
    }
}

/// The same, whosever it is.
pub fn find(id: *mut rdma_cm_id) -> Result<Arc<IdObject>> {
    lock()
        .by_address
        .get(&(id as usize))
        .cloned()
        .ok_or_else(|| {
            EINVAL
                .because("NULL or a destroyed one in place of an id")
                .consequence()
        })
}

/// The id whose mark an event carries.
pub fn by_mark(mark: u64) -> Option<Arc<IdObject>> {
    let ids = lock();
    ids.by_address.get(ids.addresses.get(&mark)?).cloned()
}

/// Channels that are private to their id: those of synchronous ids.
const SYNC: c_int = 1;

impl IdObject {
    /// Gives an id to the program. Its events go to `channel`; an id that is `sync` owns that
    /// alone.
    fn give(
        nic: cm::Id,
        mark: u64,
        channel: Arc<ChannelObject>,
        sync: bool,
        context: *mut c_void,
        ps: c_uint,
        qp_type: c_uint,
    ) -> Arc<IdObject> {
        // SAFETY: integers and pointers.
        let mut c: PrivateId = unsafe { std::mem::zeroed() };
        c.id.channel = channel.c();
        c.id.context = context;
        c.id.ps = ps;
        c.id.qp_type = qp_type;
        c.sync = if sync { SYNC } else { 0 };
        let id = Arc::new(IdObject {
            c: UnsafeCell::new(c),
            nic,
            mark,
            state: Mutex::new(State {
                channel: Some(channel),
                ..State::default()
            }),
            acknowledged: Condvar::new(),
        });
        let mut ids = lock();
        ids.addresses.insert(mark, id.c() as usize);
        ids.by_address.insert(id.c() as usize, Arc::clone(&id));
        drop(ids);
        id
    }

    /// The id of a connection request, beside its listener. Its own events bear its mark once it is
    /// accepted.
    pub fn of_request(listener: &IdObject, nic: cm::Id) -> Result<Arc<IdObject>> {
        let channel = listener.channel()?;
        // SAFETY: plain fields of a live id.
        let (context, ps, qp_type) = unsafe {
            let c = listener.c();
            ((*c).context, (*c).ps, (*c).qp_type)
        };
        Ok(IdObject::give(
            nic,
            next_mark(),
            channel,
            false,
            context,
            ps,
            qp_type,
        ))
    }

    /// What the program knows it by.
    pub fn c(&self) -> *mut rdma_cm_id {
        self.c.get().cast()
    }

    /// The handle.
    pub fn nic(&self) -> &cm::Id {
        &self.nic
    }

    /// What its events carry.
    pub fn mark(&self) -> u64 {
        self.mark
    }

    /// Its hidden part.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sync(&self) -> &AtomicI32 {
        // SAFETY: a live `int`; what else reads it is the stock rsockets' code.
        unsafe { AtomicI32::from_ptr(&raw mut (*self.c.get()).sync) }
    }

    /// Its calls wait for their outcome (`rdma_create_id` without a channel).
    pub fn is_sync(&self) -> bool {
        self.sync().load(Ordering::Acquire) != 0
    }

    /// Where its events go; EBADF once that was destroyed.
    pub fn channel(&self) -> Result<Arc<ChannelObject>> {
        self.state().channel.clone().ok_or_else(|| {
            Refusal::new(libc::EBADF).because("the event channel of the id was destroyed")
        })
    }

    /// The process was forked since, and this is the child: the id is the parent's.
    pub fn is_parents(&self) -> bool {
        !self.nic.is_alive()
    }

    /// Counts an event that the program is about to get; false if it may not any more.
    pub fn deliver(&self) -> bool {
        let mut state = self.state();
        if state.ending {
            return false;
        }
        state.delivered += 1;
        true
    }

    /// The program gets one of that kind.
    pub fn owes(&self, kind: u32) {
        if let Some(owed) = self.state().owed.get_mut(kind as usize) {
            *owed += 1;
        }
    }

    /// Counts an acknowledgement; `kind`: of an event that the program got.
    pub fn acknowledge(&self, kind: Option<u32>) {
        let mut state = self.state();
        state.completed += 1;
        let owed = kind.and_then(|kind| state.owed.get_mut(kind as usize));
        if let Some(owed) = owed {
            *owed = owed.saturating_sub(1);
        }
        drop(state);
        self.acknowledged.notify_all();
    }

    /// Waits in that call until so many of the events that the program took are acknowledged.
    fn wait_for_acks(&self, verb: &'static str, taken: u64) {
        self.wait_while(verb, |state| {
            (state.completed < taken).then(|| Unacknowledged {
                object: format!("the id at {:p}", self.c()),
                taken,
                acknowledged: state.completed,
                events: names(&state.owed),
                remedy: ACK_CM,
            })
        });
    }

    /// Waits in that call for acknowledgements that are owed to others.
    pub fn wait_for(&self, verb: &'static str, owed: impl Fn() -> Option<Unacknowledged>) {
        self.wait_while(verb, |_| owed());
    }

    fn wait_while(&self, verb: &'static str, owed: impl Fn(&State) -> Option<Unacknowledged>) {
        let mut waited = false;
        let mut state = self.state();
        while let Some(owed) = owed(&state) {
            waited = true;
            rnic_nic::wait_for_acks(verb, || owed);
            state = self
                .acknowledged
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        if waited {
            rnic_nic::wait_over(Over::Done);
        }
    }

    /// Acknowledges the event that the last call on a synchronous id left.
    pub fn drop_event(&self) {
        // SAFETY: a plain field of a live id; what lies there is an event that was not
        // acknowledged.
        unsafe {
            let event = std::mem::replace(&mut (*self.c()).event, null_mut());
            if !event.is_null() {
                event::acknowledge(event);
            }
        }
    }

    /// Has its events go to `channel`, or without one to a channel of its own.
    pub fn migrate(&self, channel: Option<Arc<ChannelObject>>) -> Result<()> {
        let was_sync = self.is_sync();
        let sync = channel.is_none();
        if was_sync && sync {
            return Err(EINVAL.because("the id is synchronous already"));
        }
        let channel = match channel {
            Some(channel) => channel,
            None => ChannelObject::new()?,
        };
        // Events of the new channel are not waited for: who takes one may need a lock that the
        // caller has before he acknowledges it.
        let taken = self.state().delivered;
        if let Err(error) = self.nic.migrate(channel.nic()) {
            if sync {
                channel.retire();
            }
            return Err(error.into());
        }
        if was_sync {
            self.drop_event();
        }
        self.sync()
            .store(if sync { SYNC } else { 0 }, Ordering::Release);
        // SAFETY: a plain field of a live id.
        unsafe { (*self.c()).channel = channel.c() };
        let old = self.state().channel.replace(channel);
        if let Some(old) = old.filter(|_| was_sync) {
            old.retire();
        }
        self.wait_for_acks("rdma_migrate_id", taken);
        Ok(())
    }

    /// Ends it; the program's pointer is not valid any more.
    pub fn destroy(&self) {
        self.destroy_in("rdma_destroy_id");
    }

    /// The same on behalf of that call.
    pub fn destroy_in(&self, verb: &'static str) {
        self.state().ending = true;
        self.nic.destroy();
        self.drop_event();
        let taken = self.state().delivered;
        self.wait_for_acks(verb, taken);
        let mut state = self.state();
        let (channel, device) = (state.channel.take(), state.device.take());
        drop(state);
        if let Some(channel) = channel.filter(|_| self.is_sync()) {
            channel.retire();
        }
        if let Some(device) = device {
            devices::leave(&device);
        }
        let mut ids = lock();
        ids.addresses.remove(&self.mark);
        let object = ids.by_address.remove(&(self.c() as usize));
        drop(ids);
        drop(object);
    }
}

/// Events by name, each with its number if it is several.
fn names(owed: &[u32; KINDS]) -> String {
    let owed = owed.iter().zip(0..).filter(|(count, _)| **count > 0);
    let names = owed.map(|(count, kind)| match count {
        1 => cm_event_name(kind).to_owned(),
        count => format!("{count} {}", cm_event_name(kind)),
    });
    names.collect::<Vec<_>>().join(", ")
}

/// Ends the ids on a channel as far as peers can tell; their memory is the program's until it
/// destroys them.
pub fn end_those_on(channel: &Arc<ChannelObject>) {
    let ids: Vec<_> = lock().by_address.values().cloned().collect();
    for id in ids {
        if id.is_parents() {
            continue;
        }
        let mut state = id.state();
        let here = state.channel.as_ref();
        if !here.is_some_and(|c| Arc::ptr_eq(c, channel)) {
            continue;
        }
        state.ending = true;
        // Nobody can take events from it, so nobody will acknowledge what was taken.
        state.completed = state.delivered;
        let last = state.channel.take();
        drop(state);
        drop(last);
        id.acknowledged.notify_all();
        id.nic.destroy();
    }
}

fn next_mark() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// `rdma_create_id(3)` with a queue pair type, which the port space IB leaves to the caller.
/// Without a channel the id is synchronous.
pub fn create(
    channel: Option<Arc<ChannelObject>>,
    context: *mut c_void,
    ps: c_uint,
    qp_type: c_uint,
) -> Result<Arc<IdObject>> {
    let (port_space, service) = match ps {
        RDMA_PS_TCP => (PortSpace::Tcp, QpType::Rc),
        RDMA_PS_UDP => (PortSpace::Udp, QpType::Ud),
        RDMA_PS_IPOIB => (PortSpace::Ipoib, QpType::Ud),
        RDMA_PS_IB => (PortSpace::Ib, service(qp_type)?),
        _ => return Err(EINVAL.because(format!("port space {ps:#x} is none of RDMA_PS_*"))),
    };
    let sync = channel.is_none();
    let channel = match channel {
        Some(channel) => channel,
        None => ChannelObject::new()?,
    };
    let mark = next_mark();
    match cm::Id::new(channel.nic(), port_space, service, mark) {
        Ok(nic) => Ok(IdObject::give(
            nic, mark, channel, sync, context, ps, qp_type,
        )),
        Err(error) => {
            if sync {
                channel.retire();
            }
            Err(error.into())
        }
    }
}

/// The services that have connections or datagrams to manage.
fn service(qp_type: c_uint) -> Result<QpType> {
    match qp_type {
        IBV_QPT_RC => Ok(QpType::Rc),
        IBV_QPT_UC => Ok(QpType::Uc),
        IBV_QPT_UD => Ok(QpType::Ud),
        IBV_QPT_XRC_SEND => Ok(QpType::XrcSend),
        IBV_QPT_XRC_RECV => Ok(QpType::XrcRecv),
        _ => Err(EINVAL.because(format!(
            "qp_type {qp_type} is none of RC, UC, UD, XRC_SEND, XRC_RECV"
        ))),
    }
}

unsafe extern "C" fn create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: c_uint,
) -> c_int {
    const NAME: Verb = Verb("rdma_create_id");
    NAME.number(|| {
        if id.is_null() {
            return Err(NULL);
        }
        let channel = match channel.is_null() {
            true => None,
            false => Some(channel::from_c(channel)?),
        };
        let qp_type = match ps {
            RDMA_PS_IPOIB | RDMA_PS_UDP => IBV_QPT_UD,
            _ => IBV_QPT_RC,
        };
        let object = seam::make(
            NAME.0,
            || create(channel, context, ps, qp_type),
            |object| object.destroy(),
        )?;
        // SAFETY: the caller's variable.
        unsafe { *id = object.c() };
        Ok(0)
    })
}

/// `rdma_destroy_id(3)`: waits until the events that the program took are acknowledged. In a forked
/// child it leaves the parent's id alone.
extern "C" fn destroy_id(id: *mut rdma_cm_id) -> c_int {
    Verb("rdma_destroy_id").number(|| {
        let id = find(id)?;
        if !id.is_parents() {
            id.destroy();
        }
        Ok(0)
    })
}

extern "C" fn migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int {
    Verb("rdma_migrate_id").does(|| {
        let id = from_c(id)?;
        let channel = match channel.is_null() {
            true => None,
            false => Some(channel::from_c(channel)?),
        };
        id.migrate(channel)?;
        Ok(0)
    })
}

export! {
    rdma_create_id @@ "RDMACM_1.0" => create_id;
    rdma_destroy_id @@ "RDMACM_1.0" => destroy_id;
    rdma_migrate_id @@ "RDMACM_1.0" => migrate_id;
}
