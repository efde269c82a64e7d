//! The host's interfaces and addresses, and the ways from them to others.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::RawFd;

use rnic_sys::Fd;

/// Has the kernel look for the neighbour that leads to an address: sends an empty datagram to its
/// discard port (RFC 863).
pub(crate) fn knock(source: SocketAddr, peer: SocketAddr) {
    const DISCARD: u16 = 9;
    let family = match peer {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    // SAFETY: the descriptor is fresh and owned from its first line on; every address is as long as
    // it is said to be.
    unsafe {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let fd = libc::syscall(libc::SYS_socket, family, kind, 0);
        let Ok(fd) = Fd::from_call(fd) else { return };
        let (address, len) = socket_address(source, 0);
        libc::syscall(libc::SYS_bind, fd.raw(), &raw const address, len);
        let (address, len) = socket_address(peer, DISCARD);
        let nothing = std::ptr::null::<u8>();
        let fd = fd.raw();
        libc::syscall(libc::SYS_sendto, fd, nothing, 0, 0, &raw const address, len);
    }
}

/// How the kernel would send to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// Source address; with its scope if it is link-local.
    pub(crate) source: SocketAddr,
    /// What the route carries, bytes of IP packet.
    pub(crate) mtu: Option<u32>,
}

/// Asks the kernel for the way to an address, from `source` if it is given. Nothing is sent.
pub(crate) fn way_to(source: Option<SocketAddr>, peer: SocketAddr) -> io::Result<Way> {
    let (family, level, option) = match peer {
        SocketAddr::V4(_) => (libc::AF_INET, libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => (libc::AF_INET6, libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let checked = |r: libc::c_long| match r {
        0.. => Ok(r),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: the descriptor is fresh and owned from its first line on; every address is as long as
    // it is said to be; by raw system calls, as a preloaded library may have its own idea of
    // sockets.
    unsafe {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        let fd = Fd::from_call(libc::syscall(libc::SYS_socket, family, kind, 0))?;
        if let Some(source) = source {
            let (address, len) = socket_address(source, 0);
            let r = libc::syscall(libc::SYS_bind, fd.raw(), &raw const address, len);
            checked(r)?;
        }
        let (address, len) = socket_address(peer, rnic_wire::ROCE_PORT);
        let r = libc::syscall(libc::SYS_connect, fd.raw(), &raw const address, len);
        checked(r)?;
        let mut address: libc::sockaddr_storage = std::mem::zeroed();
        let mut len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        let to = (&raw mut address, &raw mut len);
        checked(libc::syscall(libc::SYS_getsockname, fd.raw(), to.0, to.1))?;
        let source = match i32::from(address.ss_family) {
            libc::AF_INET => {
                let sin = (&raw const address).cast::<libc::sockaddr_in>().read();
                let ip = Ipv4Addr::from(u32::from_be(sin.sin_addr.s_addr));
                SocketAddr::from((ip, 0))
            }
            _ => {
                let sin6 = (&raw const address).cast::<libc::sockaddr_in6>().read();
                let ip = Ipv6Addr::from(sin6.sin6_addr.s6_addr);
                SocketAddrV6::new(ip, 0, 0, sin6.sin6_scope_id).into()
            }
        };
        let mut mtu: libc::c_int = 0;
        let mut len = size_of::<libc::c_int>() as libc::socklen_t;
        let r = libc::syscall(
            libc::SYS_getsockopt,
            fd.raw(),
            level,
            option,
            &raw mut mtu,
            &raw mut len,
        );
        Ok(Way {
            source,
            mtu: (r == 0).then_some(mtu as u32),
        })
    }
}

fn socket_address(addr: SocketAddr, port: u16) -> (libc::sockaddr_storage, usize) {
    // SAFETY: an all-zero sockaddr_storage is valid, and has room and alignment for each address
    // written into it.
    unsafe {
        let mut storage: libc::sockaddr_storage = std::mem::zeroed();
        let len = match addr {
            SocketAddr::V4(v4) => {
                let sin = &mut *(&raw mut storage).cast::<libc::sockaddr_in>();
                sin.sin_family = libc::AF_INET as libc::sa_family_t;
                sin.sin_port = port.to_be();
                sin.sin_addr.s_addr = u32::from(*v4.ip()).to_be();
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                let sin6 = &mut *(&raw mut storage).cast::<libc::sockaddr_in6>();
                sin6.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                sin6.sin6_port = port.to_be();
                sin6.sin6_addr.s6_addr = v6.ip().octets();
                sin6.sin6_scope_id = v6.scope_id();
                size_of::<libc::sockaddr_in6>()
            }
        };
        (storage, len)
    }
}

/// One address of an interface.
#[derive(Clone, Debug)]
pub(crate) struct InterfaceAddress {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) addr: IpAddr,
    pub(crate) scope_id: u32,
    pub(crate) loopback: bool,
    /// Somebody has switched it on.
    up: bool,
    /// Its link can carry packets: there is a carrier, and nothing else keeps it from it (RFC 2863,
    /// operstate).
    pub(crate) running: bool,
}

/// Addresses of all interfaces that are up, and the first hardware address found there.
pub(crate) fn interface_addresses() -> io::Result<(Vec<InterfaceAddress>, Option<[u8; 6]>)> {
    let (mut found, mac) = all_addresses()?;
    found.retain(|entry| entry.up);
    Ok((found, mac))
}

/// Addresses of all interfaces, and the first hardware address of one that is up.
fn all_addresses() -> io::Result<(Vec<InterfaceAddress>, Option<[u8; 6]>)> {
    let mut list = std::ptr::null_mut();
    // SAFETY: `list` receives a list that is freed below.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut mac = None;
    // Numbers of the interfaces, which come before their addresses: to ask for one takes three
    // system calls.
    let mut interfaces = Vec::new();
    let mut cursor = list;
    while !cursor.is_null() {
        // SAFETY: getifaddrs gives a null-terminated list of valid nodes; names are C strings; each
        // address has the size that its family says.
        unsafe {
            let entry = &*cursor;
            cursor = entry.ifa_next;
            let flags = entry.ifa_flags as libc::c_int;
            if entry.ifa_addr.is_null() {
                continue;
            }
            let up = flags & libc::IFF_UP != 0;
            let name = std::ffi::CStr::from_ptr(entry.ifa_name);
            let (addr, scope_id) = match i32::from((*entry.ifa_addr).sa_family) {
                libc::AF_INET => {
                    let sin = entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                    let v4 = Ipv4Addr::from(u32::from_be(sin.sin_addr.s_addr));
                    (IpAddr::V4(v4), 0)
                }
                libc::AF_INET6 => {
                    let sin6 = entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned();
                    let v6 = Ipv6Addr::from(sin6.sin6_addr.s6_addr);
                    (IpAddr::V6(v6), sin6.sin6_scope_id)
                }
                libc::AF_PACKET => {
                    let sll = entry.ifa_addr.cast::<libc::sockaddr_ll>().read_unaligned();
                    interfaces.push((name, sll.sll_ifindex as u32));
                    let bytes = &sll.sll_addr[..6];
                    if up && mac.is_none() && sll.sll_halen == 6 && bytes.iter().any(|b| *b != 0) {
                        mac = bytes.try_into().ok();
                    }
                    continue;
                }
                _ => continue,
            };
            let known = interfaces.iter().find(|(other, _)| *other == name);
            // An address may have a name of its own (eth0:1).
            let index = known.map_or_else(|| libc::if_nametoindex(name.as_ptr()), |known| known.1);
            found.push(InterfaceAddress {
                name: name.to_string_lossy().into_owned(),
                index,
                addr,
                scope_id,
                loopback: flags & libc::IFF_LOOPBACK != 0,
                up,
                running: flags & libc::IFF_RUNNING != 0,
            });
        }
    }
    // SAFETY: `list` came from getifaddrs and is not used after this.
    unsafe { libc::freeifaddrs(list) };
    Ok((found, mac))
}

/// The interface that has an address, and whether it is up.
pub(crate) fn interface_of(wanted: IpAddr) -> Option<(String, bool)> {
    all_addresses()
        .ok()?
        .0
        .into_iter()
        .find(|entry| entry.addr == wanted)
        .map(|entry| (entry.name, entry.up))
}

/// MTU of an interface, bytes; asked of the kernel by ioctl, since sysfs may show another network
/// namespace.
pub(crate) fn interface_mtu(name: &str) -> Option<u32> {
    // SAFETY: an all-zero ifreq is valid; the name is copied with room for its terminator; the
    // socket is closed.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        if name.len() >= request.ifr_name.len() {
            return None;
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let fd = libc::syscall(
            libc::SYS_socket,
            libc::AF_INET,
            libc::SOCK_DGRAM | libc::SOCK_CLOEXEC,
            0,
        ) as RawFd;
        if fd < 0 {
            return None;
        }
        let r = libc::ioctl(fd, libc::SIOCGIFMTU, &mut request);
        libc::syscall(libc::SYS_close, fd);
        (r == 0).then_some(request.ifr_ifru.ifru_mtu as u32)
    }
}
