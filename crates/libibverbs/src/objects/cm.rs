//! Ids and event channels of librdmacm. Queue pairs are not its business: its callers make them, and
//! take them through their states with what [`Id::init_qp_attr`] says.

use core::ffi::{CStr, c_int, c_void};
use core::ptr::{NonNull, null_mut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::RawFd;
use std::sync::Arc;

use rnic_layouts::cm::*;
use rnic_layouts::ibv_qp_attr;
use rnic_types::cm::{ConnParam, EventKind, EventParam, IdOption, PortSpace};
use rnic_types::{Error, QpAttr, QpAttrMask, QpState, QpType, Result};

use crate::convert;
use crate::errors::{forked, last_errno};
use crate::library::{Manager, Process};

/// The library can be loaded.
pub fn is_there() -> bool {
    Manager::get().is_ok()
}

fn refused(verb: &'static str) -> Error {
    let errno = last_errno();
    let why = match errno {
        libc::EAGAIN => "nothing has come",
        libc::ENODEV => "there is no RDMA device, or none with that address",
        libc::EADDRNOTAVAIL => "no device of the system has that address",
        libc::EADDRINUSE => "the port is taken",
        libc::EINVAL => "the connection manager of the system takes it not, or not now",
        _ => "the connection manager of the system refused",
    };
    Error::new(verb, errno, why)
}

/// Of calls that give 0, or -1 and set errno.
fn outcome(verb: &'static str, given: c_int) -> Result<()> {
    match given {
        0 => Ok(()),
        _ => Err(refused(verb)),
    }
}

/// Where events come (`rdma_create_event_channel`).
#[derive(Clone)]
pub struct EventChannel {
    inner: Arc<Channel>,
}

struct Channel {
    manager: &'static Manager,
    ptr: NonNull<rdma_event_channel>,
    fd: RawFd,
    process: Process,
}

// SAFETY: librdmacm's functions may be called from any thread, as it locks what they share.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl EventChannel {
    /// Makes one.
    ///
    /// # Errors
    /// The library is not there or of another ABI; the kernel has no rdma_ucm.
    pub fn new() -> Result<EventChannel> {
        let manager = Manager::get()?;
        // SAFETY: no arguments.
        let ptr = unsafe { (manager.create_event_channel)() };
        let ptr = NonNull::new(ptr).ok_or_else(|| refused("rdma_create_event_channel"))?;
        Ok(EventChannel {
            inner: Arc::new(Channel {
                manager,
                ptr,
                // SAFETY: just made; the descriptor stays the same.
                fd: unsafe { ptr.as_ref().fd },
                process: Process::this(),
            }),
        })
    }

    fn check(&self, verb: &'static str) -> Result<()> {
        match self.inner.process == Process::this() {
            true => Ok(()),
            false => Err(forked(verb)),
        }
    }

    /// See [`Context::check_alive`](crate::Context::check_alive).
    ///
    /// # Errors
    /// ENODEV in a forked child.
    pub fn check_alive(&self) -> Result<()> {
        self.check("rdma_get_cm_event")
    }

    /// Readable: [`EventChannel::get`] has something.
    pub fn fd(&self) -> RawFd {
        self.inner.fd
    }

    /// Takes the oldest event, and waits for it unless the descriptor does not block.
    ///
    /// # Errors
    /// EAGAIN, EINTR; ENODEV in a forked child.
    pub fn get(&self) -> Result<Event> {
        const VERB: &str = "rdma_get_cm_event";
        let manager = self.inner.manager;
        loop {
            self.check(VERB)?;
            let mut event = null_mut();
            let ptr = self.inner.ptr.as_ptr();
            // SAFETY: the channel is alive; the call writes the pointer.
            outcome(VERB, unsafe { (manager.get_cm_event)(ptr, &mut event) })?;
            // SAFETY: just taken, and not acknowledged yet.
            let Some(taken) = (unsafe { event.as_ref() }) else {
                continue;
            };
            // SAFETY: as above.
            let known = unsafe { self.known(taken) };
            // SAFETY: taken above, and acknowledged once.
            unsafe { (manager.ack_cm_event)(event) };
            if let Some(known) = known {
                return Ok(known);
            }
        }
    }

    /// The event if it is one of those that programs are told.
    ///
    /// # Safety
    /// It was taken and is not acknowledged yet.
    unsafe fn known(&self, event: &rdma_cm_event) -> Option<Event> {
        let kind = convert::event_kind(event.event)?;
        let is_request = kind == EventKind::ConnectRequest;
        let whose = if is_request {
            event.listen_id
        } else {
            event.id
        };
        // SAFETY: by contract; ids of events live until these are acknowledged.
        let whose = unsafe { whose.as_ref() }?.context as u64;
        let id = NonNull::new(event.id)?;
        // SAFETY: as above.
        let is_ud = unsafe { id.as_ref() }.ps == RDMA_PS_UDP;
        let is_multicast = matches!(kind, EventKind::MulticastJoin | EventKind::MulticastError);
        let bytes = |data: *const c_void, len: u8| match data.is_null() || is_multicast {
            // Of a membership it is the caller's mark.
            true => Vec::new(),
            // SAFETY: by contract, so many bytes are there.
            false => unsafe { core::slice::from_raw_parts(data.cast::<u8>(), len.into()) }.to_vec(),
        };
        let param = match is_ud {
            true => {
                // SAFETY: an event of a datagram service has these; all bytes are numbers.
                let ud = unsafe { &event.param.ud };
                let data = bytes(ud.private_data, ud.private_data_len);
                EventParam::Ud(convert::ud_event(ud, data))
            }
            false => {
                // SAFETY: an event of a connection has these; all bytes are numbers.
                let conn = unsafe { &event.param.conn };
                let data = bytes(conn.private_data, conn.private_data_len);
                EventParam::Conn(convert::conn_event(conn, data))
            }
        };
        let request = is_request.then(|| {
            // SAFETY: a new id, which nobody has yet. It has the mark of its listener.
            unsafe { (*id.as_ptr()).context = null_mut() };
            Id {
                inner: Arc::new(Known {
                    ptr: id,
                    channel: self.clone(),
                }),
            }
        });
        Some(Event {
            kind,
            status: event.status,
            whose,
            request,
            param,
        })
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if self.process == Process::this() {
            // SAFETY: of this process; its ids are gone.
            unsafe { (self.manager.destroy_event_channel)(self.ptr.as_ptr()) };
        }
    }
}

/// What happened.
pub struct Event {
    /// What it is.
    pub kind: EventKind,
    /// 0, -errno, or a reason as the kind says.
    pub status: i32,
    /// The mark of whom it is told: the listener of a request, else the id.
    pub whose: u64,
    /// The new id of a request.
    pub request: Option<Id>,
    /// More about it.
    pub param: EventParam,
}

/// An id (`rdma_create_id`). Destroyed when its last handle is dropped.
#[derive(Clone)]
pub struct Id {
    inner: Arc<Known>,
}

struct Known {
    ptr: NonNull<rdma_cm_id>,
    /// The channel that it was made on. It may have been moved to another one, which its holder
    /// keeps.
    channel: EventChannel,
}

// SAFETY: see `Channel`.
unsafe impl Send for Known {}
// SAFETY: as above.
unsafe impl Sync for Known {}

impl Id {
    /// Makes one whose events go to `channel` under this mark.
    ///
    /// # Errors
    /// EOPNOTSUPP: librdmacm has no ids of that service; the kernel refuses.
    pub fn new(
        channel: &EventChannel,
        port_space: PortSpace,
        qp_type: QpType,
        uid: u64,
    ) -> Result<Id> {
        const VERB: &str = "rdma_create_id";
        channel.check(VERB)?;
        let space = match (port_space, qp_type) {
            (PortSpace::Tcp, QpType::Rc) => RDMA_PS_TCP,
            (PortSpace::Udp, QpType::Ud) => RDMA_PS_UDP,
            _ => {
                let why = format!("the connection manager of the system has no {qp_type}");
                return Err(Error::new(VERB, libc::EOPNOTSUPP, why));
            }
        };
        let mut ptr = null_mut();
        let mark = uid as usize as *mut c_void;
        let create = channel.inner.manager.create_id;
        // SAFETY: the channel is alive; the call writes the pointer; the mark is only given back.
        outcome(VERB, unsafe {
            create(channel.inner.ptr.as_ptr(), &mut ptr, mark, space)
        })?;
        Ok(Id {
            inner: Arc::new(Known {
                ptr: NonNull::new(ptr).ok_or_else(|| refused(VERB))?,
                channel: channel.clone(),
            }),
        })
    }

    fn ptr(&self) -> *mut rdma_cm_id {
        self.inner.ptr.as_ptr()
    }

    fn manager(&self) -> &'static Manager {
        self.inner.channel.inner.manager
    }

    fn check(&self, verb: &'static str) -> Result<()> {
        self.inner.channel.check(verb)
    }

    /// False in a forked child.
    pub fn is_alive(&self) -> bool {
        self.inner.channel.check_alive().is_ok()
    }

    /// The device that it is on, once it is bound or resolved.
    pub fn device(&self) -> Option<String> {
        // SAFETY: the id is alive; an id that has a device keeps it.
        let context = unsafe { (*self.ptr()).verbs.as_ref() }?;
        // SAFETY: an open device.
        let device = unsafe { context.device.as_ref() }?;
        // SAFETY: the field has a text, which ends with a zero.
        let name = unsafe { CStr::from_ptr(device.name.as_ptr()) };
        Some(name.to_string_lossy().into_owned())
    }

    /// Own address and the peer's (`rdma_get_local_addr`, `rdma_get_peer_addr`).
    pub fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        // SAFETY: the id is alive; its addresses are written in the calls alone that set them.
        let addr = unsafe { &(*self.ptr()).route.addr };
        (from_c(&addr.src_storage), from_c(&addr.dst_storage))
    }

    /// Binds it to an address (`rdma_bind_addr`).
    ///
    /// # Errors
    /// The port is taken, or no device has the address.
    pub fn bind(&self, addr: SocketAddr) -> Result<()> {
        const VERB: &str = "rdma_bind_addr";
        self.check(VERB)?;
        let mut addr = to_c(addr);
        let addr = (&raw mut addr).cast();
        // SAFETY: the id is alive; the address is read while the call lasts.
        outcome(VERB, unsafe {
            (self.manager().bind_addr)(self.ptr(), addr)
        })
    }

    /// Finds own address and device for a peer (`rdma_resolve_addr`).
    ///
    /// # Errors
    /// No route leads there.
    pub fn resolve_addr(
        &self,
        source: Option<SocketAddr>,
        peer: SocketAddr,
        timeout_ms: u32,
    ) -> Result<()> {
        const VERB: &str = "rdma_resolve_addr";
        self.check(VERB)?;
        let mut source = source.map(to_c);
        let source = source
            .as_mut()
            .map_or(null_mut(), |addr| (&raw mut *addr).cast());
        let mut peer = to_c(peer);
        let peer = (&raw mut peer).cast();
        let resolve = self.manager().resolve_addr;
        // SAFETY: the id is alive; the addresses are read while the call lasts.
        outcome(VERB, unsafe {
            resolve(self.ptr(), source, peer, timeout_ms as c_int)
        })
    }

    /// Finds the path (`rdma_resolve_route`).
    ///
    /// # Errors
    /// The address is not resolved.
    pub fn resolve_route(&self, timeout_ms: u32) -> Result<()> {
        const VERB: &str = "rdma_resolve_route";
        self.check(VERB)?;
        let resolve = self.manager().resolve_route;
        // SAFETY: the id is alive.
        outcome(VERB, unsafe { resolve(self.ptr(), timeout_ms as c_int) })
    }

    /// Waits for requests (`rdma_listen`).
    ///
    /// # Errors
    /// The port is taken.
    pub fn listen(&self, backlog: i32) -> Result<()> {
        const VERB: &str = "rdma_listen";
        self.check(VERB)?;
        // SAFETY: the id is alive.
        outcome(VERB, unsafe {
            (self.manager().listen)(self.ptr(), backlog)
        })
    }

    /// Asks the peer for a connection, or over UD for its queue pair (`rdma_connect`).
    ///
    /// # Errors
    /// The route is not resolved, or there is too much private data.
    pub fn connect(&self, param: &ConnParam<'_>) -> Result<()> {
        const VERB: &str = "rdma_connect";
        self.check(VERB)?;
        let mut param = conn_param(VERB, param)?;
        // SAFETY: the id is alive; the parameters are read while the call lasts.
        outcome(VERB, unsafe {
            (self.manager().connect)(self.ptr(), &mut param)
        })
    }

    /// Accepts a request (`rdma_accept`). `uid` becomes its mark.
    ///
    /// # Errors
    /// There is no request, or too much private data; a queue key other than the port space's.
    pub fn accept(&self, param: &ConnParam<'_>, uid: u64) -> Result<()> {
        const VERB: &str = "rdma_accept";
        self.check(VERB)?;
        // SAFETY: the id is alive; nobody reads its type meanwhile.
        let is_ud = unsafe { (*self.ptr()).ps } == RDMA_PS_UDP;
        if is_ud && ![0, rnic_types::cm::UDP_QKEY].contains(&param.qkey) {
            let why = "the connection manager of the system tells peers its own queue key: \
                       give that one (UDP_QKEY) to the queue pair";
            return Err(Error::invalid(VERB, why));
        }
        let mut param = conn_param(VERB, param)?;
        // SAFETY: the id is alive. Its events come after this call, so nobody reads the mark.
        unsafe { (*self.ptr()).context = uid as usize as *mut c_void };
        // SAFETY: as above; the parameters are read while the call lasts.
        outcome(VERB, unsafe {
            (self.manager().accept)(self.ptr(), &mut param)
        })
    }

    /// After a response: the own queue pair is in RTS, the peer may know (`rdma_establish`).
    ///
    /// # Errors
    /// There was no response.
    pub fn establish(&self) -> Result<()> {
        const VERB: &str = "rdma_establish";
        self.check(VERB)?;
        // SAFETY: the id is alive.
        outcome(VERB, unsafe { (self.manager().establish)(self.ptr()) })
    }

    /// Refuses a request or a response (`rdma_reject`).
    ///
    /// # Errors
    /// There is nothing to refuse, or too much private data.
    pub fn reject(&self, private_data: &[u8]) -> Result<()> {
        const VERB: &str = "rdma_reject";
        self.check(VERB)?;
        let len = data_len(VERB, private_data)?;
        let data = private_data.as_ptr().cast();
        // SAFETY: the id is alive; the bytes are read while the call lasts.
        outcome(VERB, unsafe {
            (self.manager().reject)(self.ptr(), data, len)
        })
    }

    /// Ends the connection (`rdma_disconnect`).
    ///
    /// # Errors
    /// There is none.
    pub fn disconnect(&self) -> Result<()> {
        const VERB: &str = "rdma_disconnect";
        self.check(VERB)?;
        // SAFETY: the id is alive.
        outcome(VERB, unsafe { (self.manager().disconnect)(self.ptr()) })
    }

    /// What its queue pair has to be given for a transition to this state (`rdma_init_qp_attr`).
    ///
    /// # Errors
    /// It is too early for it.
    pub fn init_qp_attr(&self, state: QpState) -> Result<(QpAttr, QpAttrMask)> {
        const VERB: &str = "rdma_init_qp_attr";
        self.check(VERB)?;
        let mut attr = ibv_qp_attr {
            qp_state: state as u32,
            ..ibv_qp_attr::default()
        };
        let mut mask = 0;
        let init = self.manager().init_qp_attr;
        // SAFETY: the id is alive; both are written while the call lasts.
        outcome(VERB, unsafe { init(self.ptr(), &mut attr, &mut mask) })?;
        Ok((convert::attr_from_c(&attr, state), QpAttrMask(mask as u32)))
    }

    /// Sets an option (`rdma_set_option`).
    ///
    /// # Errors
    /// EOPNOTSUPP: librdmacm has none such; out of range, or too late for it.
    pub fn set_option(&self, option: IdOption) -> Result<()> {
        const VERB: &str = "rdma_set_option";
        self.check(VERB)?;
        let (name, mut value, size) = match option {
            IdOption::Tos(tos) => (RDMA_OPTION_ID_TOS, c_int::from(tos), 1),
            IdOption::AckTimeout(code) => (RDMA_OPTION_ID_ACK_TIMEOUT, c_int::from(code), 1),
            IdOption::ReuseAddr(is) => (RDMA_OPTION_ID_REUSEADDR, c_int::from(is), 4),
            IdOption::AfOnly(is) => (RDMA_OPTION_ID_AFONLY, c_int::from(is), 4),
            // That of every path of its own accord.
            IdOption::PkeyIndex(0) => return Ok(()),
            IdOption::PkeyIndex(_) | IdOption::Path(_) => {
                let why = "the connection manager of the system chooses path and P_Key by itself";
                return Err(Error::new(VERB, libc::EOPNOTSUPP, why));
            }
        };
        // One byte of it is the first, as all these machines are little-endian; else the last.
        if cfg!(target_endian = "big") && size == 1 {
            value <<= 24;
        }
        let set = self.manager().set_option;
        let level = RDMA_OPTION_ID as c_int;
        let value = (&raw mut value).cast();
        // SAFETY: the id is alive; so many bytes are read while the call lasts.
        outcome(VERB, unsafe {
            set(self.ptr(), level, name as c_int, value, size)
        })
    }

    /// Has its events go to another channel (`rdma_migrate_id`).
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn migrate(&self, channel: &EventChannel) -> Result<()> {
        const VERB: &str = "rdma_migrate_id";
        self.check(VERB)?;
        let to = channel.inner.ptr.as_ptr();
        // SAFETY: the id and the channel are alive.
        outcome(VERB, unsafe { (self.manager().migrate_id)(self.ptr(), to) })
    }

    /// Joins a group (`rdma_join_multicast`).
    ///
    /// # Errors
    /// It is not bound, or no datagram service.
    pub fn join_multicast(&self, group: SocketAddr) -> Result<()> {
        const VERB: &str = "rdma_join_multicast";
        self.check(VERB)?;
        let mut group = to_c(group);
        let group = (&raw mut group).cast();
        let join = self.manager().join_multicast;
        // SAFETY: the id is alive; the address is read while the call lasts.
        outcome(VERB, unsafe { join(self.ptr(), group, null_mut()) })
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        if self.channel.check_alive().is_ok() {
            // SAFETY: of this process, with no event that is not acknowledged.
            unsafe { (self.channel.inner.manager.destroy_id)(self.ptr.as_ptr()) };
        }
    }
}

fn data_len(verb: &'static str, data: &[u8]) -> Result<u8> {
    let len = u8::try_from(data.len());
    len.map_err(|_| Error::invalid(verb, format!("{} bytes of private data", data.len())))
}

fn conn_param(verb: &'static str, param: &ConnParam<'_>) -> Result<rdma_conn_param> {
    Ok(rdma_conn_param {
        private_data: param.private_data.as_ptr().cast(),
        private_data_len: data_len(verb, param.private_data)?,
        responder_resources: param.responder_resources,
        initiator_depth: param.initiator_depth,
        flow_control: param.flow_control.into(),
        retry_count: param.retry_count,
        rnr_retry_count: param.rnr_retry_count,
        srq: param.srq.into(),
        qp_num: param.qp_num,
    })
}

fn to_c(addr: SocketAddr) -> libc::sockaddr_storage {
    // SAFETY: bytes, which may all be zero.
    let mut storage: libc::sockaddr_storage = unsafe { core::mem::zeroed() };
    match addr {
        SocketAddr::V4(v4) => {
            let place = (&raw mut storage).cast::<libc::sockaddr_in>();
            // SAFETY: the storage has room and alignment for every address.
            unsafe {
                (*place).sin_family = libc::AF_INET as libc::sa_family_t;
                (*place).sin_port = v4.port().to_be();
                (*place).sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
            }
        }
        SocketAddr::V6(v6) => {
            let place = (&raw mut storage).cast::<libc::sockaddr_in6>();
            // SAFETY: as above.
            unsafe {
                (*place).sin6_family = libc::AF_INET6 as libc::sa_family_t;
                (*place).sin6_port = v6.port().to_be();
                (*place).sin6_addr.s6_addr = v6.ip().octets();
                (*place).sin6_scope_id = v6.scope_id();
            }
        }
    }
    storage
}

/// `None`: it has none yet.
fn from_c(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the storage is large enough, and an address of this family.
            let addr = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(addr.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(addr.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let addr = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(addr.sin6_addr.s6_addr);
            let port = u16::from_be(addr.sin6_port);
            Some(SocketAddrV6::new(ip, port, 0, addr.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_were() {
        for text in ["10.1.2.3:4791", "[fe80::1%7]:18515", "[::1]:1", "0.0.0.0:0"] {
            let addr: SocketAddr = text.parse().expect("an address");
            assert_eq!(from_c(&to_c(addr)), Some(addr));
        }
        // SAFETY: bytes, which may all be zero.
        let none = unsafe { core::mem::zeroed() };
        assert_eq!(from_c(&none), None);
    }
}
