//! `rdma_getaddrinfo`: getaddrinfo(3) with the words of RDMA.
//!
//! As in librdmacm the answer is libc's first one. Routes and source addresses are not in it: they
//! come from an InfiniBand subnet's services, and RoCE has none; `rdma_resolve_addr` finds the
//! source.
//!
//! All that the answer consists of is memory of malloc(3): programs exchange its parts for their
//! own before they give it to `rdma_freeaddrinfo`.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::net::{IpAddr, SocketAddr};
use std::ptr::{null, null_mut};

use super::address::{AF_IB, from_c, to_c};
use crate::c::cm::*;
use crate::c::*;
use crate::export::seam::{self, EINVAL, ENOMEM, EOPNOTSUPP, NULL, Refusal, Result, Verb};
use crate::export::symbols::export;

/// A C constant, as structures that have an `int` for it hold it.
const fn int(value: u32) -> c_int {
    value as c_int
}

const PASSIVE: c_int = int(RAI_PASSIVE);
const NUMERICHOST: c_int = int(RAI_NUMERICHOST);
const FAMILY: c_int = int(RAI_FAMILY);
const KNOWN_FLAGS: c_int = PASSIVE | NUMERICHOST | int(RAI_NOROUTE) | FAMILY | RAI_SA | RAI_DNS;

/// Frees what it holds unless it is taken.
pub struct Answer(*mut rdma_addrinfo);

impl Answer {
    fn new() -> Result<Answer> {
        Ok(Answer(allocate(size_of::<rdma_addrinfo>())?.cast()))
    }

    fn info(&mut self) -> &mut rdma_addrinfo {
        // SAFETY: allocated by `new`, zeroed, which is a valid value; nobody else has it.
        unsafe { &mut *self.0 }
    }

    /// The list, which is the taker's to free.
    pub fn take(mut self) -> *mut rdma_addrinfo {
        std::mem::replace(&mut self.0, null_mut())
    }
}

// SAFETY: memory of malloc(3) that nobody else has.
unsafe impl Send for Answer {}

impl Drop for Answer {
    fn drop(&mut self) {
        // SAFETY: NULL or a list of ours.
        unsafe { free_list(self.0) };
    }
}

unsafe extern "C" fn getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    result: *mut *mut rdma_addrinfo,
) -> c_int {
    Verb("rdma_getaddrinfo").looks_up(|| {
        if result.is_null() {
            return Err(NULL);
        }
        // SAFETY: NULL or the caller's structure.
        let hints = unsafe { hints.as_ref() };
        // SAFETY: NULL or the caller's strings; addresses in the hints are as long as they say.
        match unsafe { resolve(node, service, hints) }? {
            Ok(answer) => {
                // SAFETY: the caller's variable.
                unsafe { *result = answer.take() };
                Ok(Ok(()))
            }
            // Returned as it is, for gai_strerror(3).
            // SAFETY: NULL or the caller's strings.
            Err(code) => Ok(Err(unsafe { refused(code, node, service) })),
        }
    })
}

/// A code of getaddrinfo(3), in its words, and of what.
///
/// # Safety
/// Strings are NULL or C strings.
pub unsafe fn refused(code: c_int, node: *const c_char, service: *const c_char) -> Refusal {
    let system = std::io::Error::last_os_error();
    let text = |of: *const c_char| match of.is_null() {
        true => "NULL".to_owned(),
        // SAFETY: by contract.
        false => format!("{:?}", unsafe { CStr::from_ptr(of) }.to_string_lossy()),
    };
    // SAFETY: gives a text that is never freed, for any number.
    let says = unsafe { CStr::from_ptr(libc::gai_strerror(code)) }.to_string_lossy();
    let says = match code {
        libc::EAI_SYSTEM => format!("{says}: {system}"),
        _ => says.into_owned(),
    };
    Refusal::new(code).because(format!(
        "getaddrinfo(3) says {says:?} of node {}, service {}",
        text(node),
        text(service)
    ))
}

/// The answer, or getaddrinfo(3)'s own error code.
///
/// # Safety
/// Strings are NULL or C strings; addresses in the hints are as long as they say.
pub unsafe fn resolve(
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
) -> Result<std::result::Result<Answer, c_int>> {
    let flags = hints.map_or(0, |hints| hints.ai_flags);
    if node.is_null() && service.is_null() && hints.is_none() {
        return Err(EINVAL.because("neither a node nor a service nor hints are given"));
    }
    if flags & !KNOWN_FLAGS != 0 {
        return Ok(Err(libc::EAI_BADFLAGS));
    }
    if flags & RAI_SA != 0 {
        // There is no subnet administrator on Ethernet.
        return Err(EOPNOTSUPP.because("RAI_SA asks a subnet administrator"));
    }
    let mut answer = Answer::new()?;
    let info = answer.info();
    if node.is_null() && service.is_null() {
        let hints = hints.ok_or(NULL)?;
        info.ai_flags = hints.ai_flags;
        info.ai_family = hints.ai_family;
        info.ai_qp_type = hints.ai_qp_type;
        info.ai_port_space = hints.ai_port_space;
        // SAFETY: by contract.
        unsafe {
            copy_address(
                hints.ai_dst_addr,
                hints.ai_dst_len,
                &mut info.ai_dst_addr,
                &mut info.ai_dst_len,
            )
        }?;
    } else {
        // An InfiniBand address, which ports with an Ethernet link layer do not take.
        let numeric_ib = FAMILY | NUMERICHOST;
        if hints.is_some_and(|h| h.ai_family == AF_IB && flags & numeric_ib == numeric_ib) {
            return Ok(Err(libc::EAI_FAMILY));
        }
        // SAFETY: by contract.
        if let Err(code) = unsafe { ask_libc(node, service, hints, info) }? {
            return Ok(Err(code));
        }
    }
    if let Some(hints) = hints.filter(|_| info.ai_src_len == 0) {
        // SAFETY: by contract.
        unsafe {
            copy_address(
                hints.ai_src_addr,
                hints.ai_src_len,
                &mut info.ai_src_addr,
                &mut info.ai_src_len,
            )
        }?;
    }
    Ok(Ok(answer))
}

/// libc's list, freed at the end.
struct Found(*mut libc::addrinfo);

impl Drop for Found {
    fn drop(&mut self) {
        // SAFETY: a list of getaddrinfo(3), which is not NULL.
        unsafe { libc::freeaddrinfo(self.0) };
    }
}

/// # Safety
/// As [`resolve`].
unsafe fn ask_libc(
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
    info: &mut rdma_addrinfo,
) -> Result<std::result::Result<(), c_int>> {
    let wanted = hints.map(|hints| libc_hints(hints, !node.is_null()));
    let mut list = null_mut();
    // SAFETY: C strings or NULL, hints that live across the call, a place for the answer.
    let code = unsafe {
        let wanted = wanted.as_ref().map_or(null(), std::ptr::from_ref);
        libc::getaddrinfo(node, service, wanted, &raw mut list)
    };
    if code != 0 {
        return Ok(Err(code));
    }
    let list = Found(list);
    // SAFETY: a successful answer has at least one entry.
    let first = unsafe { &*list.0 };

    let hinted = |value: fn(&rdma_addrinfo) -> c_int| hints.map(value).filter(|value| *value != 0);
    info.ai_qp_type = hinted(|hints| hints.ai_qp_type).unwrap_or(match first.ai_socktype {
        libc::SOCK_STREAM => int(IBV_QPT_RC),
        libc::SOCK_DGRAM => int(IBV_QPT_UD),
        _ => 0,
    });
    info.ai_port_space = hinted(|hints| hints.ai_port_space).unwrap_or(match first.ai_protocol {
        libc::IPPROTO_TCP => int(RDMA_PS_TCP),
        libc::IPPROTO_UDP => int(RDMA_PS_UDP),
        _ => 0,
    });
    info.ai_family = first.ai_family;
    let passive = hints.is_some_and(|hints| hints.ai_flags & PASSIVE != 0);
    let (address, length, name) = if passive {
        info.ai_flags = PASSIVE;
        (
            &mut info.ai_src_addr,
            &mut info.ai_src_len,
            &mut info.ai_src_canonname,
        )
    } else {
        (
            &mut info.ai_dst_addr,
            &mut info.ai_dst_len,
            &mut info.ai_dst_canonname,
        )
    };
    // SAFETY: an entry of libc's, with an address and perhaps a name; the node's name is NULL only
    // beside a service.
    unsafe {
        let known = match passive && service.is_null() {
            true => known_address(CStr::from_ptr(node), from_c(first.ai_addr)?).map(to_c),
            false => None,
        };
        let found = known.as_ref().map_or(first.ai_addr.cast_const(), |known| {
            std::ptr::from_ref(known).cast()
        });
        copy_address(found, first.ai_addrlen, address, length)?;
        if !first.ai_canonname.is_null() {
            *name = libc::strdup(first.ai_canonname);
        }
    }
    Ok(Ok(()))
}

/// The address by which other hosts know this one, for who asks for one of "localhost" to listen
/// at, and not for a service: libfabric does, to learn which address the device has. With hardware,
/// whose devices have no loopback address, it finds that one. Who says 127.0.0.1 means it.
fn known_address(node: &CStr, found: SocketAddr) -> Option<SocketAddr> {
    let numeric = node
        .to_str()
        .is_ok_and(|node| node.parse::<IpAddr>().is_ok());
    if numeric || !found.ip().is_loopback() {
        return None;
    }
    let known = rnic_nic::gid_table().into_iter().find(|entry| {
        !entry.loopback && entry.scope_id == 0 && entry.addr.is_ipv4() == found.is_ipv4()
    });
    known.map(|entry| SocketAddr::new(entry.addr, 0))
}

/// What to ask libc for, given what the program wants.
fn libc_hints(hints: &rdma_addrinfo, named: bool) -> libc::addrinfo {
    // SAFETY: zeros, which are no wishes, are a valid value of that plain C structure.
    let mut wanted: libc::addrinfo = unsafe { std::mem::zeroed() };
    for (ours, libcs) in [
        (PASSIVE, libc::AI_PASSIVE),
        (NUMERICHOST, libc::AI_NUMERICHOST),
    ] {
        if hints.ai_flags & ours != 0 {
            wanted.ai_flags |= libcs;
        }
    }
    if named {
        wanted.ai_flags |= libc::AI_CANONNAME;
    }
    if hints.ai_family != AF_IB {
        wanted.ai_family = hints.ai_family;
    }
    wanted.ai_socktype = match u32::try_from(hints.ai_qp_type) {
        Ok(IBV_QPT_RC | IBV_QPT_UC | IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV) => libc::SOCK_STREAM,
        Ok(IBV_QPT_UD) => libc::SOCK_DGRAM,
        _ => 0,
    };
    wanted.ai_protocol = match (u32::try_from(hints.ai_port_space), wanted.ai_socktype) {
        (Ok(RDMA_PS_TCP), _) | (Ok(RDMA_PS_IB), libc::SOCK_STREAM) => libc::IPPROTO_TCP,
        (Ok(RDMA_PS_UDP | RDMA_PS_IPOIB), _) | (Ok(RDMA_PS_IB), libc::SOCK_DGRAM) => {
            libc::IPPROTO_UDP
        }
        _ => 0,
    };
    wanted
}

/// # Safety
/// `from` is NULL or has `length` bytes.
unsafe fn copy_address(
    from: *const libc::sockaddr,
    length: libc::socklen_t,
    to: &mut *mut libc::sockaddr,
    to_length: &mut libc::socklen_t,
) -> Result<()> {
    let bytes = length as usize;
    if bytes == 0 {
        return Ok(());
    }
    if from.is_null() || bytes > size_of::<libc::sockaddr_storage>() {
        return Err(EINVAL.because(format!("an address of {bytes} bytes is at {from:?}")));
    }
    // Room for every family, so that a program that reads it as one of them finds zeros behind a
    // short one.
    let room = allocate(size_of::<libc::sockaddr_storage>())?;
    // SAFETY: that many bytes there by contract; no more than the fresh memory has.
    unsafe { std::ptr::copy_nonoverlapping(from.cast(), room.cast::<u8>(), bytes) };
    *to = room.cast();
    *to_length = length;
    Ok(())
}

/// Zeroed memory that free(3) takes.
fn allocate(bytes: usize) -> Result<*mut c_void> {
    // SAFETY: plain integers.
    let room = unsafe { libc::calloc(1, bytes) };
    if room.is_null() {
        Err(ENOMEM)
    } else {
        Ok(room)
    }
}

unsafe extern "C" fn freeaddrinfo(list: *mut rdma_addrinfo) {
    // SAFETY: NULL or a list of ours, perhaps with parts of the program's, all from malloc(3).
    seam::quiet(|| unsafe {
        free_list(list);
        Ok(())
    });
}

/// # Safety
/// NULL or a list whose entries and their parts came from malloc(3).
unsafe fn free_list(mut list: *mut rdma_addrinfo) {
    while !list.is_null() {
        // SAFETY: by contract; NULL is free's to ignore.
        unsafe {
            let info = &*list;
            let next = info.ai_next;
            for part in [info.ai_src_addr.cast(), info.ai_dst_addr.cast()] {
                libc::free(part);
            }
            for part in [info.ai_src_canonname, info.ai_dst_canonname] {
                libc::free(part.cast());
            }
            for part in [info.ai_route, info.ai_connect] {
                libc::free(part);
            }
            libc::free(list.cast());
            list = next;
        }
    }
}

export! {
    rdma_getaddrinfo @@ "RDMACM_1.0" => getaddrinfo;
    rdma_freeaddrinfo @@ "RDMACM_1.0" => freeaddrinfo;
}
