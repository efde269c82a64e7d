//! Events: waiting for them, what they change in their id before the program sees them,
//! acknowledging them.
//!
//! As in librdmacm it is the taking of an event that moves the queue pair of its id, so a program
//! without a queue pair on its id sees the steps in between.

use core::ffi::{c_int, c_void};
use std::ptr::null;
use std::sync::Arc;

use rnic_nic::PerThread;
use rnic_nic::cm::{self, ConnEvent, EventKind, EventParam, UdEvent};

use super::channel::{self, ChannelObject};
use super::id::{self, IdObject};
use super::multicast::Group;
use super::{ece, route, states};
use crate::c::cm::*;
use crate::convert::ah::ah_to_c;
use crate::export::seam::{ENOMEM, NULL, Result, Verb};
use crate::export::symbols::export;
use crate::handles::object::{Object, into_c, take_c};
use crate::system::cancel;

/// Room for the private data of any message (`RDMA_MAX_PRIVATE_DATA`); what a message does not fill
/// is zero.
const PRIVATE_DATA: usize = 256;

/// An event that the program has taken.
#[repr(C)]
struct EventObject {
    c: rdma_cm_event,
    private_data: [u8; PRIVATE_DATA],
    /// Whose events it is one of, and waits for its acknowledgement: of a connection request, the
    /// listener.
    owner: Arc<IdObject>,
    /// Of multicast events.
    group: Option<Arc<Group>>,
    /// What the program was told: it may write to the rest.
    kind: u32,
}

// SAFETY: `repr(C)`, first field; only the program writes to it from when it has the event, and we
// not.
unsafe impl Object for EventObject {
    type C = rdma_cm_event;
}

/// An event on its way to the program.
struct Delivery {
    object: Box<EventObject>,
}

impl Delivery {
    fn new(owner: Arc<IdObject>, kind: EventKind, status: i32) -> Delivery {
        // SAFETY: integers and pointers.
        let mut c: rdma_cm_event = unsafe { std::mem::zeroed() };
        c.id = owner.c();
        c.event = kind as u32;
        c.status = status;
        Delivery {
            object: Box::new(EventObject {
                c,
                private_data: [0; PRIVATE_DATA],
                owner,
                group: None,
                kind: 0,
            }),
        }
    }

    /// Keeps private data; gives its address and length.
    fn keep(&mut self, data: &[u8]) -> (*const c_void, u8) {
        let data = &data[..data.len().min(usize::from(u8::MAX))];
        if data.is_empty() {
            return (null(), 0);
        }
        self.object.private_data[..data.len()].copy_from_slice(data);
        (self.object.private_data.as_ptr().cast(), data.len() as u8)
    }

    fn set_conn(&mut self, conn: &ConnEvent) {
        let (private_data, private_data_len) = self.keep(&conn.private_data);
        self.object.c.param.conn = rdma_conn_param {
            private_data,
            private_data_len,
            responder_resources: conn.responder_resources,
            initiator_depth: conn.initiator_depth,
            flow_control: u8::from(conn.flow_control),
            retry_count: conn.retry_count,
            rnr_retry_count: conn.rnr_retry_count,
            srq: u8::from(conn.srq),
            qp_num: conn.qp_num,
        };
    }

    fn set_ud(&mut self, ud: &UdEvent) {
        let (private_data, private_data_len) = self.keep(&ud.private_data);
        self.object.c.param.ud = rdma_ud_param {
            private_data,
            private_data_len,
            ah_attr: ah_to_c(&ud.ah),
            qp_num: ud.qp_num,
            qkey: ud.qkey,
        };
    }

    fn set_param(&mut self, param: &EventParam) {
        match param {
            EventParam::None => {}
            EventParam::Conn(conn) => self.set_conn(conn),
            EventParam::Ud(ud) => self.set_ud(ud),
            EventParam::User(argument) => self.object.c.param.arg = *argument,
        }
    }

    /// What was to happen before the program sees the event did not: it is another event then.
    fn check(&mut self, outcome: Result<()>, otherwise: u32) {
        if let Err(refusal) = outcome {
            refusal.report(GET_EVENT.0);
            self.object.c.event = otherwise;
            self.object.c.status = -refusal.errno();
        }
    }

    fn owner(&self) -> &Arc<IdObject> {
        &self.object.owner
    }

    fn give(mut self) -> *mut rdma_cm_event {
        self.object.kind = self.object.c.event;
        self.object.owner.owes(self.object.kind);
        into_c(self.object)
    }

    /// The program does not get it after all.
    fn drop_counted(self) {
        let EventObject { owner, group, .. } = *self.object;
        credit(&owner, group.as_deref(), None);
    }
}

fn credit(owner: &IdObject, group: Option<&Group>, kind: Option<u32>) {
    if let Some(group) = group {
        group.acknowledge();
    }
    owner.acknowledge(kind);
}

/// The next event of a channel that is for the program, which waits for it in this call.
pub fn next(channel: &ChannelObject, verb: &'static str) -> Result<*mut rdma_cm_event> {
    loop {
        if let Some(event) = process(channel.next(verb)?) {
            return Ok(event);
        }
    }
}

/// Counts an event for its id and acts on it; nothing if it is none of the program's business.
fn process(event: cm::Event) -> Option<*mut rdma_cm_event> {
    let owner = id::by_mark(event.listener.as_ref().unwrap_or(&event.id).uid())
        .filter(|owner| owner.deliver());
    let Some(owner) = owner else {
        // Its id is being destroyed. Nobody else knows the new one of a request.
        if event.listener.is_some() {
            event.id.destroy();
        }
        return None;
    };
    let mut delivery = Delivery::new(owner, event.kind, event.status);
    match event.kind {
        EventKind::AddrResolved => {
            let outcome = route::refresh(delivery.owner());
            delivery.check(outcome, RDMA_CM_EVENT_ADDR_ERROR);
        }
        EventKind::RouteResolved => {
            let outcome = route::refresh(delivery.owner());
            delivery.check(outcome, RDMA_CM_EVENT_ROUTE_ERROR);
        }
        EventKind::ConnectRequest => {
            if event.listener.is_none() {
                // Whom it was about is gone already.
                delivery.drop_counted();
                return None;
            }
            delivery.set_param(&event.param);
            let Ok(id) = of_request(delivery.owner(), &event) else {
                event.id.destroy();
                delivery.drop_counted();
                return None;
            };
            delivery.object.c.listen_id = delivery.owner().c();
            delivery.object.c.id = id.c();
        }
        EventKind::ConnectResponse => {
            delivery.set_param(&event.param);
            let owner = Arc::clone(delivery.owner());
            if let EventParam::Conn(conn) = &event.param {
                respond(&owner, conn, &mut delivery);
            }
        }
        EventKind::Rejected | EventKind::Disconnected => {
            if delivery.owner().state().connect_error {
                delivery.drop_counted();
                return None;
            }
            delivery.set_param(&event.param);
            if event.kind == EventKind::Rejected {
                // SAFETY: the queue pair of a live id.
                let _ = unsafe { states::to_err(delivery.owner().c()) };
            }
        }
        EventKind::MulticastJoin | EventKind::MulticastError => {
            let mark = event.multicast.unwrap_or(0);
            let group = Group::find(delivery.owner(), mark).filter(|group| group.deliver());
            let Some(group) = group else {
                // The program has left it meanwhile.
                delivery.drop_counted();
                return None;
            };
            delivery.set_param(&event.param);
            delivery.object.c.param.ud.private_data = group.context();
            delivery.object.group = Some(Arc::clone(&group));
            if let (EventKind::MulticastJoin, EventParam::Ud(ud)) = (event.kind, &event.param) {
                let outcome = group.joined(delivery.owner(), ud.ah.dgid);
                delivery.check(outcome, RDMA_CM_EVENT_MULTICAST_ERROR);
            }
        }
        _ => delivery.set_param(&event.param),
    }
    Some(delivery.give())
}

/// Makes the id of a connection request; on a synchronous listener it is synchronous, too.
fn of_request(listener: &IdObject, event: &cm::Event) -> Result<Arc<IdObject>> {
    let id = IdObject::of_request(listener, event.id.clone())?;
    if let EventParam::Conn(conn) = &event.param {
        let mut state = id.state();
        state.initiator_depth = conn.initiator_depth;
        state.responder_resources = conn.responder_resources;
        state.remote_ece = conn.ece;
    }
    let ready = match listener.is_sync() {
        true => id.migrate(None),
        false => Ok(()),
    };
    if let Err(error) = ready.and_then(|()| route::refresh(&id)) {
        id.destroy();
        return Err(error);
    }
    Ok(id)
}

/// The peer accepted: with a queue pair on the id the connection is made here, without one it is
/// the program's turn.
fn respond(id: &IdObject, conn: &ConnEvent, delivery: &mut Delivery) {
    // SAFETY: a plain field of a live id.
    if unsafe { (*id.c()).qp }.is_null() {
        id.state().remote_ece = conn.ece;
        return;
    }
    delivery.object.c.event = RDMA_CM_EVENT_ESTABLISHED;
    // SAFETY: the queue pair of a live id.
    let outcome = unsafe { ece::of_response(id, conn.ece).and_then(|()| establish(id)) };
    if outcome.is_err() {
        id.state().connect_error = true;
    }
    delivery.check(outcome, RDMA_CM_EVENT_CONNECT_ERROR);
}

/// Moves the queue pair of an id, if it has one, to RTS, and tells the peer; to ERR if that fails.
///
/// # Safety
/// The queue pair of the id is ours, if it has one.
pub unsafe fn establish(id: &IdObject) -> Result<()> {
    // SAFETY: by contract.
    unsafe {
        let outcome = states::to_rtr(id.c(), id.nic(), None)
            .and_then(|()| states::to_rts(id.c(), id.nic(), None))
            .and_then(|()| Ok(id.nic().establish()?));
        if outcome.is_err() {
            let _ = states::to_err(id.c());
        }
        outcome
    }
}

/// Acknowledges an event and frees it.
///
/// # Safety
/// From [`next`], and not acknowledged before.
pub unsafe fn acknowledge(event: *mut rdma_cm_event) {
    // SAFETY: by contract.
    let EventObject {
        owner, group, kind, ..
    } = *unsafe { take_c::<EventObject>(event) };
    // In a forked child nobody waits for it, and the locks of the parent's id may be held for ever.
    if !owner.is_parents() {
        credit(&owner, group.as_deref(), Some(kind));
    }
}

const GET_EVENT: Verb = Verb("rdma_get_cm_event");

/// The channel that this thread waits on, so that its descriptor stays while it is destroyed. Not
/// in a variable of a function that may be unwound: the share of a thread that was cancelled ends
/// with the thread.
static WAITING: PerThread<Arc<ChannelObject>> = PerThread::new();

fn take_waiting() -> Option<Arc<ChannelObject>> {
    WAITING.with(|waiting| waiting.take()).flatten()
}

fn set_waiting(channel: Arc<ChannelObject>) -> Result<()> {
    let set = WAITING.with(|waiting| waiting.replace(Some(channel)));
    set.map(drop).ok_or(ENOMEM)
}

unsafe extern "C-unwind" fn get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    cancel::event(
        GET_EVENT,
        || {
            if event.is_null() {
                return Err(NULL);
            }
            let channel = match take_waiting() {
                // It waits on.
                Some(waiting) if waiting.c() == channel => waiting,
                _ => channel::from_c(channel)?,
            };
            channel.nic().expect_event()?;
            channel.nic().begin_wait(GET_EVENT.0);
            let fd = channel.nic().fd();
            set_waiting(channel)?;
            Ok(fd)
        },
        || {
            let channel = take_waiting().ok_or(NULL)?;
            let Some(taken) = channel.nic().event_of_token()?.and_then(process) else {
                set_waiting(channel)?;
                return Ok(false);
            };
            // SAFETY: the caller's variable.
            unsafe { *event = taken };
            Ok(true)
        },
        || drop(take_waiting()),
    )
}

unsafe extern "C" fn ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    Verb("rdma_ack_cm_event").number(|| {
        if event.is_null() {
            return Err(NULL);
        }
        // SAFETY: an event that the program took and gives up.
        unsafe { acknowledge(event) };
        Ok(0)
    })
}

export! {
    rdma_get_cm_event @@ "RDMACM_1.0" => get_cm_event;
    rdma_ack_cm_event @@ "RDMACM_1.0" => ack_cm_event;
}
