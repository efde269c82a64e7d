//! Asynchronous events.
//!
//! An event that names an object keeps it from being destroyed until it is acknowledged. Taking an
//! event and counting it for its object happen under the context's `async_lock`; `ibv_destroy_qp`,
//! `ibv_destroy_cq` and `ibv_destroy_srq` pass through that lock between revoking the waiting
//! events and looking at the count.

use core::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use rnic_nic::{AsyncEvent, QpEvent};

use crate::c::*;
use crate::export::seam::{self, NULL, Verb};
use crate::export::symbols::export;
use crate::handles::context::opened;
use crate::handles::cq::CqObject;
use crate::handles::object::{acknowledge, from_c};
use crate::handles::qp::QpObject;
use crate::handles::srq::SrqObject;
use crate::system::cancel;

unsafe extern "C-unwind" fn get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    cancel::event(
        Verb("ibv_get_async_event"),
        || {
            if event.is_null() {
                return Err(NULL);
            }
            // The events of the parent are not a forked child's to take: it waits for those of its
            // own. SAFETY: a context of ours, or NULL.
            let nic = &unsafe { opened(context) }?.nic;
            nic.begin_wait("ibv_get_async_event");
            Ok(nic.async_fd())
        },
        || {
            // SAFETY: as above; it may not be closed while somebody waits for its events.
            let object = unsafe { opened(context) }?;
            let _taking = object.async_lock.lock();
            // A token whose event was revoked in between finds nothing.
            let Some(taken) = object.nic.next_async_event() else {
                return Ok(false);
            };
            // SAFETY: the caller's structure.
            unsafe { *event = deliver(taken) };
            Ok(true)
        },
        || (),
    )
}

/// The C form of an event, counted for its object; under the `async_lock`.
fn deliver(event: AsyncEvent) -> ibv_async_event {
    let object = |cookie: u64| ibv_async_element {
        object: cookie as *mut c_void,
    };
    let port = |port: u8| {
        let mut element = object(0);
        element.port_num = c_int::from(port);
        element
    };
    let (element, event_type) = match event {
        AsyncEvent::Qp { cookie, event } => {
            // SAFETY: the cookie is the address of a queue pair, which cannot go away under the
            // lock.
            if let Ok(qp) = unsafe { from_c::<QpObject>(cookie as *mut ibv_qp) } {
                qp.async_events_delivered.fetch_add(1, Ordering::AcqRel);
            }
            let event_type = match event {
                QpEvent::Fatal => IBV_EVENT_QP_FATAL,
                QpEvent::RequestError => IBV_EVENT_QP_REQ_ERR,
                QpEvent::AccessError => IBV_EVENT_QP_ACCESS_ERR,
                QpEvent::CommunicationEstablished => IBV_EVENT_COMM_EST,
                QpEvent::SendQueueDrained => IBV_EVENT_SQ_DRAINED,
                QpEvent::LastWqeReached => IBV_EVENT_QP_LAST_WQE_REACHED,
            };
            (object(cookie), event_type)
        }
        AsyncEvent::Cq { cookie } => {
            // SAFETY: as above, of a completion queue.
            if let Ok(cq) = unsafe { from_c::<CqObject>(cookie as *mut ibv_cq) } {
                cq.async_events_delivered.fetch_add(1, Ordering::AcqRel);
            }
            (object(cookie), IBV_EVENT_CQ_ERR)
        }
        AsyncEvent::SrqLimit { cookie } => {
            // SAFETY: as above, of a shared receive queue.
            if let Ok(srq) = unsafe { from_c::<SrqObject>(cookie as *mut ibv_srq) } {
                srq.async_events_delivered.fetch_add(1, Ordering::AcqRel);
            }
            (object(cookie), IBV_EVENT_SRQ_LIMIT_REACHED)
        }
        AsyncEvent::PortActive(number) => (port(number), IBV_EVENT_PORT_ACTIVE),
        AsyncEvent::PortError(number) => (port(number), IBV_EVENT_PORT_ERR),
        AsyncEvent::GidChange(number) => (port(number), IBV_EVENT_GID_CHANGE),
        AsyncEvent::DeviceFatal => (port(0), IBV_EVENT_DEVICE_FATAL),
    };
    ibv_async_event {
        element,
        event_type,
    }
}

unsafe extern "C" fn ack_async_event(event: *mut ibv_async_event) {
    seam::quiet(|| {
        // SAFETY: NULL or an event that `get_async_event` filled in.
        let event = unsafe { event.as_ref() }.ok_or(NULL)?;
        // SAFETY: pointers may be read for every variant of the union: all its eight bytes were
        // written.
        let object = unsafe { event.element.object };
        match event.event_type {
            IBV_EVENT_CQ_ERR => {
                let cq = object.cast::<ibv_cq>();
                // SAFETY: a queue of ours that waits for this acknowledgement.
                unsafe {
                    from_c::<CqObject>(cq)?;
                    acknowledge(
                        &raw mut (*cq).mutex,
                        &raw mut (*cq).cond,
                        &raw mut (*cq).async_events_completed,
                        1,
                    );
                }
            }
            IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => {
                let srq = object.cast::<ibv_srq>();
                // SAFETY: a queue of ours that waits for this acknowledgement.
                unsafe {
                    from_c::<SrqObject>(srq)?;
                    acknowledge(
                        &raw mut (*srq).mutex,
                        &raw mut (*srq).cond,
                        &raw mut (*srq).events_completed,
                        1,
                    );
                }
            }
            IBV_EVENT_QP_FATAL
            | IBV_EVENT_QP_REQ_ERR
            | IBV_EVENT_QP_ACCESS_ERR
            | IBV_EVENT_COMM_EST
            | IBV_EVENT_SQ_DRAINED
            | IBV_EVENT_PATH_MIG
            | IBV_EVENT_PATH_MIG_ERR
            | IBV_EVENT_QP_LAST_WQE_REACHED => {
                let qp = object.cast::<ibv_qp>();
                // SAFETY: a queue pair of ours that waits for this acknowledgement.
                unsafe {
                    from_c::<QpObject>(qp)?;
                    acknowledge(
                        &raw mut (*qp).mutex,
                        &raw mut (*qp).cond,
                        &raw mut (*qp).events_completed,
                        1,
                    );
                }
            }
            _ => {}
        }
        Ok(())
    });
}

export! {
    ibv_get_async_event @@ "IBVERBS_1.1" => get_async_event;
    ibv_ack_async_event @@ "IBVERBS_1.1" => ack_async_event;
}
