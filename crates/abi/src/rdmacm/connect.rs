//! Connections: listen, connect, accept, reject, disconnect.

use core::ffi::{c_int, c_uint, c_void};

use rnic_nic::cm::ConnParam;
use rnic_nic::{QpAttr, QpState};

use super::complete::{complete, outcome};
use super::id::{self, IdObject};
use super::{event, qp, route, states};
use crate::c::cm::*;
use crate::c::{IBV_EVENT_COMM_EST, IBV_QPT_UD, ibv_qp_attr};
use crate::convert::qp_attr::attr_to_c;
use crate::export::seam::{EINVAL, NULL, Refusal, Result, Verb};
use crate::export::symbols::export;

/// `enum ib_cm_rej_reason`: what a consumer may say by itself.
const REJECT_BY_CONSUMER: u16 = 28;
const REJECT_VENDOR_OPTION: u16 = 35;

/// Waits in `rdma_connect` and `rdma_accept` as the program says, or as often as can be.
const RETRIES: u8 = 7;

/// What the queue pair of an id, or without one the parameters, say of the own end.
///
/// # Safety
/// The id is alive, and its queue pair ours.
unsafe fn own_end(id: &IdObject, param: Option<&rdma_conn_param>) -> (u32, bool) {
    // SAFETY: by contract.
    match unsafe { (*id.c()).qp.as_ref() } {
        Some(qp) => (qp.qp_num, !qp.srq.is_null()),
        None => param.map_or((0, false), |p| (p.qp_num, p.srq != 0)),
    }
}

/// Depths as the program asks for them, where 255 and no parameters mean "as many as can be".
struct Depths {
    responder_resources: Option<u8>,
    initiator_depth: Option<u8>,
}

impl Depths {
    fn of(param: Option<&rdma_conn_param>) -> Depths {
        let asked = |value: fn(&rdma_conn_param) -> u8, max: u32| {
            param.map(value).filter(|v| u32::from(*v) != max)
        };
        Depths {
            responder_resources: asked(|p| p.responder_resources, RDMA_MAX_RESP_RES),
            initiator_depth: asked(|p| p.initiator_depth, RDMA_MAX_INIT_DEPTH),
        }
    }
}

/// RDMA READs and atomics that the device serves and has outstanding: responder resources,
/// initiator depth.
///
/// # Safety
/// The id is alive.
unsafe fn limits(id: &IdObject) -> Result<(u8, u8)> {
    // SAFETY: a plain field of a live id.
    if unsafe { (*id.c()).verbs }.is_null() {
        return Err(NOWHERE);
    }
    // SAFETY: a context of ours.
    let attr = unsafe { crate::handles::context::nic((*id.c()).verbs) }?.device_attr();
    let limit = |value: u32| value.min(u32::from(u8::MAX)) as u8;
    Ok((limit(attr.max_qp_rd_atom), limit(attr.max_qp_init_rd_atom)))
}

/// EINVAL for an id that is on no device yet.
const NOWHERE: Refusal = Refusal::with(
    libc::EINVAL,
    "the id has no address yet: rdma_resolve_addr and rdma_resolve_route come before rdma_connect",
);

/// EINVAL for an id of which nobody knows the queue pair.
const NOBODY: Refusal = Refusal::with(
    libc::EINVAL,
    "the id has no queue pair, and no parameters name one",
);

/// A connected id needs a queue pair or parameters that name one, and depths that the device has.
///
/// # Safety
/// The id is alive.
unsafe fn check(id: &IdObject, param: Option<&rdma_conn_param>, depths: &Depths) -> Result<()> {
    // SAFETY: plain fields of a live id.
    let (ps, qp) = unsafe { ((*id.c()).ps, (*id.c()).qp) };
    if ps != RDMA_PS_TCP {
        return Ok(());
    }
    if qp.is_null() && param.is_none() {
        return Err(NOBODY);
    }
    // SAFETY: by contract.
    let (resources, depth) = unsafe { limits(id) }?;
    for (name, asked, limit) in [
        ("responder_resources", depths.responder_resources, resources),
        ("initiator_depth", depths.initiator_depth, depth),
    ] {
        if let Some(asked) = asked.filter(|asked| *asked > limit) {
            return Err(EINVAL.because(format!("{name} is {asked}, the device has {limit}")));
        }
    }
    Ok(())
}

/// The parameters as the connection manager takes them; `private_data` is what came together for
/// it.
///
/// # Safety
/// As [`own_end`].
unsafe fn conn_param<'a>(
    id: &IdObject,
    param: Option<&rdma_conn_param>,
    private_data: &'a [u8],
) -> ConnParam<'a> {
    // SAFETY: by contract.
    let (qp_num, srq) = unsafe { own_end(id, param) };
    let state = id.state();
    ConnParam {
        private_data,
        responder_resources: state.responder_resources,
        initiator_depth: state.initiator_depth,
        flow_control: param.is_some_and(|p| p.flow_control != 0),
        retry_count: param.map_or(RETRIES, |p| p.retry_count),
        rnr_retry_count: param.map_or(RETRIES, |p| p.rnr_retry_count),
        srq,
        qp_num,
        qkey: 0,
        ece: state.local_ece,
    }
}

/// # Safety
/// NULL, or `len` bytes.
unsafe fn bytes<'a>(data: *const c_void, len: u8) -> &'a [u8] {
    match data.is_null() || len == 0 {
        true => &[],
        // SAFETY: by contract.
        false => unsafe { std::slice::from_raw_parts(data.cast(), usize::from(len)) },
    }
}

/// What the parameters say to the peer, after what `rdma_create_ep` left for it.
///
/// # Safety
/// The parameters are the caller's.
unsafe fn private_data(id: &IdObject, param: Option<&rdma_conn_param>) -> Vec<u8> {
    let mut data = id.state().connect_data.clone();
    if let Some(param) = param {
        // SAFETY: by contract.
        data.extend_from_slice(unsafe { bytes(param.private_data, param.private_data_len) });
    }
    data
}

unsafe extern "C" fn listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    Verb("rdma_listen").does(|| {
        let id = id::from_c(id)?;
        id.nic().listen(backlog)?;
        route::refresh(&id)?;
        Ok(0)
    })
}

unsafe extern "C" fn connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    Verb("rdma_connect").does(|| {
        let id = id::from_c(id)?;
        // SAFETY: NULL or the caller's structure.
        let param = unsafe { param.as_ref() };
        let depths = Depths::of(param);
        // SAFETY: a live id; the caller's structure.
        unsafe {
            check(&id, param, &depths)?;
            let (resources, depth) = limits(&id)?;
            let mut state = id.state();
            state.responder_resources = depths.responder_resources.unwrap_or(resources);
            state.initiator_depth = depths.initiator_depth.unwrap_or(depth);
            drop(state);
            let data = private_data(&id, param);
            id.nic().connect(&conn_param(&id, param, &data))?;
        }
        id.state().connect_data.clear();
        complete(&id, "rdma_connect")?;
        Ok(0)
    })
}

/// `rdma_get_request(3)`: the next request of a synchronous listener. Its id is synchronous too,
/// has the request as its event, and the queue pair that `rdma_create_ep` was told of.
unsafe extern "C" fn get_request(listener: *mut rdma_cm_id, id: *mut *mut rdma_cm_id) -> c_int {
    Verb("rdma_get_request").number(|| {
        let listener = id::from_c(listener)?;
        if id.is_null() {
            return Err(NULL);
        }
        if !listener.is_sync() {
            return Err(EINVAL.because("the id has an event channel: requests are events there"));
        }
        listener.drop_event();
        let channel = listener.channel()?;
        let event = event::next(&channel, "rdma_get_request")?;
        // SAFETY: an event of ours that nobody has acknowledged.
        match unsafe { request(&listener, &*event) } {
            // SAFETY: the caller's variable, and a plain field of a new id.
            Ok(request) => unsafe {
                (*request).event = event;
                *id = request;
                Ok(0)
            },
            Err(error) => {
                // SAFETY: a plain field of a live id.
                unsafe { (*listener.c()).event = event };
                Err(error)
            }
        }
    })
}

/// The new id of an event that is to be a connection request, with its queue pair.
fn request(listener: &IdObject, event: &rdma_cm_event) -> Result<*mut rdma_cm_id> {
    match (event.event, event.status) {
        (RDMA_CM_EVENT_CONNECT_REQUEST, 0) => {}
        _ => {
            outcome(event)?;
            return Err(EINVAL.because(format!(
                "event {} came instead of a connection request",
                event.event
            )));
        }
    }
    let init = listener.state().qp_init;
    if let Some(mut init) = init {
        // SAFETY: a plain field of a live id; a structure of our own.
        unsafe { qp::create_plain(event.id, (*listener.c()).pd, &mut init) }?;
    }
    Ok(event.id)
}

unsafe extern "C" fn accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    Verb("rdma_accept").does(|| {
        let id = id::from_c(id)?;
        let c = id.c();
        // SAFETY: NULL or the caller's structure; plain fields of a live id.
        let (param, qp, qp_type) = unsafe { (param.as_ref(), (*c).qp, (*c).qp_type) };
        if qp.is_null() && param.is_none() {
            return Err(NOBODY);
        }
        id.nic().may_accept()?;
        let depths = Depths::of(param);
        // SAFETY: a live id; the caller's structure.
        let data = unsafe {
            check(&id, param, &depths)?;
            let (resources, depth) = limits(&id)?;
            let mut state = id.state();
            let (asked, offered) = (state.responder_resources, state.initiator_depth);
            state.responder_resources = depths
                .responder_resources
                .unwrap_or_else(|| asked.min(resources));
            state.initiator_depth = depths.initiator_depth.unwrap_or_else(|| offered.min(depth));
            drop(state);
            private_data(&id, param)
        };
        if qp_type != IBV_QPT_UD {
            let state = id.state();
            let known = |value: u8| (u32::from(value) != RDMA_MAX_RESP_RES).then_some(value);
            let (resources, depth) = (
                known(state.responder_resources),
                known(state.initiator_depth),
            );
            drop(state);
            // SAFETY: the queue pair of a live id.
            unsafe {
                states::to_rtr(c, id.nic(), resources)?;
                states::to_rts(c, id.nic(), depth)?;
            }
        }
        // SAFETY: a live id.
        let mut conn = unsafe { conn_param(&id, param, &data) };
        // The request's vendor, with our options.
        conn.ece.vendor_id = id.state().remote_ece.vendor_id;
        if let Err(error) = id.nic().accept(Some(&conn), id.mark()) {
            // SAFETY: the queue pair of a live id.
            let _ = unsafe { states::to_err(c) };
            return Err(error.into());
        }
        if qp_type != IBV_QPT_UD {
            complete(&id, "rdma_accept")?;
        } else if id.is_sync() {
            // Nothing more comes of it.
            id.drop_event();
        }
        Ok(0)
    })
}

/// `rdma_establish(3)`, for ids whose queue pair is the program's own business.
extern "C" fn establish(id: *mut rdma_cm_id) -> c_int {
    Verb("rdma_establish").number(|| {
        let id = id::from_c(id)?;
        // SAFETY: a plain field of a live id.
        if !unsafe { (*id.c()).qp }.is_null() {
            return Err(EINVAL.because(
                "the id has a queue pair: its connection is established by taking the event",
            ));
        }
        id.nic().establish()?;
        Ok(0)
    })
}

/// # Safety
/// NULL, or `len` bytes.
unsafe fn refuse(
    name: Verb,
    id: *mut rdma_cm_id,
    data: *const c_void,
    len: u8,
    reason: u16,
) -> c_int {
    name.number(|| {
        let id = id::from_c(id)?;
        // SAFETY: by contract.
        let data = unsafe { bytes(data, len) };
        id.nic().reject(data, reason)?;
        Ok(0)
    })
}

unsafe extern "C" fn reject(id: *mut rdma_cm_id, data: *const c_void, len: u8) -> c_int {
    // SAFETY: the caller's bytes.
    unsafe { refuse(Verb("rdma_reject"), id, data, len, REJECT_BY_CONSUMER) }
}

unsafe extern "C" fn reject_ece(id: *mut rdma_cm_id, data: *const c_void, len: u8) -> c_int {
    // SAFETY: the caller's bytes.
    unsafe { refuse(Verb("rdma_reject_ece"), id, data, len, REJECT_VENDOR_OPTION) }
}

/// `rdma_disconnect(3)`: the queue pair flushes, the peer is told.
extern "C" fn disconnect(id: *mut rdma_cm_id) -> c_int {
    Verb("rdma_disconnect").number(|| {
        let id = id::from_c(id)?;
        // SAFETY: plain fields of a live id, and its queue pair.
        unsafe {
            if (*id.c()).verbs.is_null() {
                return Err(EINVAL.because("the id is not on the device yet: it has no address"));
            }
            states::to_err(id.c())?;
        }
        id.nic().disconnect()?;
        complete(&id, "rdma_disconnect")?;
        Ok(0)
    })
}

extern "C" fn notify(id: *mut rdma_cm_id, event: c_uint) -> c_int {
    Verb("rdma_notify").number(|| {
        let id = id::from_c(id)?;
        match event {
            IBV_EVENT_COMM_EST => id.nic().notify_established()?,
            _ => {
                return Err(EINVAL.because(format!(
                    "event {event} is not IBV_EVENT_COMM_EST ({IBV_EVENT_COMM_EST})"
                )));
            }
        }
        Ok(0)
    })
}

/// `rdma_init_qp_attr(3)`: what a queue pair of this id is to be given for the state that `attr`
/// names.
unsafe extern "C" fn init_qp_attr(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    Verb("rdma_init_qp_attr").number(|| {
        let id = id::from_c(id)?;
        if attr.is_null() || mask.is_null() {
            return Err(NULL);
        }
        // SAFETY: the caller's structure.
        let state = unsafe { (*attr).qp_state };
        let state = QpState::from_ibv(state)
            .ok_or_else(|| EINVAL.because(format!("qp_state is {state}, which is no state")))?;
        let (found, named): (QpAttr, _) = id.nic().init_qp_attr(state)?;
        // SAFETY: the caller's variables.
        unsafe {
            *attr = attr_to_c(&found);
            *mask = named.0 as c_int;
        }
        Ok(0)
    })
}

export! {
    rdma_listen @@ "RDMACM_1.0" => listen;
    rdma_get_request @@ "RDMACM_1.0" => get_request;
    rdma_connect @@ "RDMACM_1.0" => connect;
    rdma_accept @@ "RDMACM_1.0" => accept;
    rdma_establish @@ "RDMACM_1.2" => establish;
    rdma_reject @@ "RDMACM_1.0" => reject;
    rdma_reject_ece @@ "RDMACM_1.3" => reject_ece;
    rdma_disconnect @@ "RDMACM_1.0" => disconnect;
    rdma_notify @@ "RDMACM_1.0" => notify;
    rdma_init_qp_attr @@ "RDMACM_1.2" => init_qp_attr;
}
