//! `struct sockaddr` and the standard library's addresses.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::export::seam::{EINVAL, Result};

/// Linux's family of InfiniBand addresses, `struct sockaddr_ib`.
pub const AF_IB: core::ffi::c_int = 27;

/// The address behind a pointer; EINVAL for NULL and for families other than IPv4 and IPv6.
///
/// `AF_IB` is among those: the device has no InfiniBand links, and librdmacm takes the refusal as
/// "no native addresses".
///
/// # Safety
/// NULL, or an address as long as its family says.
pub unsafe fn from_c(addr: *const libc::sockaddr) -> Result<SocketAddr> {
    if addr.is_null() {
        return Err(EINVAL.because("the address is NULL"));
    }
    // SAFETY: every address begins with its family; it may lie anywhere in the caller's memory.
    let family = unsafe { (&raw const (*addr).sa_family).read_unaligned() };
    match c_int(family) {
        libc::AF_INET => {
            // SAFETY: as long as its family says.
            let v4 = unsafe { addr.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Ok(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Ok(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        AF_IB => Err(EINVAL
            .because("the device has no InfiniBand addresses (AF_IB)")
            .answer()),
        other => Err(EINVAL.because(format!(
            "the address is of family {other}, neither AF_INET nor AF_INET6"
        ))),
    }
}

/// As [`from_c`]; NULL is no address.
///
/// # Safety
/// As [`from_c`].
pub unsafe fn maybe_from_c(addr: *const libc::sockaddr) -> Result<Option<SocketAddr>> {
    match addr.is_null() {
        true => Ok(None),
        // SAFETY: by contract.
        false => unsafe { from_c(addr) }.map(Some),
    }
}

fn c_int(family: libc::sa_family_t) -> core::ffi::c_int {
    core::ffi::c_int::from(family)
}

/// The address as C keeps it; zeros behind it.
pub fn to_c(addr: SocketAddr) -> libc::sockaddr_storage {
    // SAFETY: integers.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    match addr {
        SocketAddr::V4(v4) => {
            let c = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from(*v4.ip()).to_be(),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is larger and as aligned as any address.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(c) };
        }
        SocketAddr::V6(v6) => {
            let c = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(c) };
        }
    }
    storage
}

/// The port of an address in network byte order, 0 if it has none (`rdma_get_src_port(3)`).
pub fn port(storage: &libc::sockaddr_storage) -> u16 {
    // SAFETY: the storage holds an address as long as its family says.
    match unsafe { from_c((&raw const *storage).cast()) } {
        Ok(addr) => addr.port().to_be(),
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests;
