//! Ethernet interfaces (netdevice(7)), and one that this process makes (the kernel's
//! Documentation/networking/tuntap.rst).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustix::ioctl::{self, Opcode};

use crate::{Fd, open_at};

// linux/sockios.h, linux/ethtool.h
const SIOCGIFINDEX: Opcode = 0x8933;
const SIOCGIFHWADDR: Opcode = 0x8927;
const SIOCGIFMTU: Opcode = 0x8921;
const SIOCETHTOOL: Opcode = 0x8946;
const ETHTOOL_GTXCSUM: u32 = 0x16;
// linux/if_tun.h
const TUNSETIFF: Opcode = 0x4004_54ca;
const TUNSETOFFLOAD: Opcode = 0x4004_54d0;
const TUN_F_CSUM: usize = 1;

/// `struct ifreq` with a name.
fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // Room for the name's end.
    if name.is_empty() || name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// A question about an interface.
///
/// # Safety
/// `WHAT` reads and writes the request alone, or what it points to besides, which is as long as
/// `WHAT` takes it to be.
unsafe fn ask<const WHAT: Opcode>(request: &mut libc::ifreq) -> io::Result<()> {
    let socket = crate::socket(libc::AF_INET, libc::SOCK_DGRAM)
        .or_else(|_| crate::socket(libc::AF_INET6, libc::SOCK_DGRAM))?;
    // SAFETY: the request is borrowed for the call; the caller vouches that it reads and writes
    // nothing else.
    Ok(unsafe { ioctl::ioctl(socket, ioctl::Updater::<WHAT, _>::new(request)) }?)
}

/// Number, hardware address and MTU of an Ethernet interface.
pub fn ethernet(name: &str) -> io::Result<(u32, [u8; 6], u32)> {
    let mut index = request(name)?;
    let mut hardware = index;
    let mut mtu = index;
    // SAFETY: each of the calls fills in the part of the request that is then read; any bytes are a
    // value of it.
    let (index, address, mtu) = unsafe {
        ask::<SIOCGIFHWADDR>(&mut hardware)?;
        ask::<SIOCGIFINDEX>(&mut index)?;
        ask::<SIOCGIFMTU>(&mut mtu)?;
        (
            index.ifr_ifru.ifru_ifindex,
            hardware.ifr_ifru.ifru_hwaddr,
            mtu.ifr_ifru.ifru_mtu,
        )
    };
    if address.sa_family != libc::ARPHRD_ETHER {
        return Err(io::Error::other("it is no Ethernet"));
    }
    let mut mac = [0; 6];
    for (to, from) in mac.iter_mut().zip(address.sa_data) {
        *to = from as u8;
    }
    Ok((index as u32, mac, mtu as u32))
}

/// Whether an interface sums up what it sends. An error: it does not say.
pub fn has_checksum_offload(name: &str) -> io::Result<bool> {
    // struct ethtool_value
    let mut value = [ETHTOOL_GTXCSUM, 0];
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the call reads and writes the two words that the request points to, which live
    // through it.
    unsafe { ask::<SIOCETHTOOL>(&mut request)? };
    Ok(value[1] != 0)
}

/// Makes an Ethernet interface that is there as long as the descriptor is open, down yet, and that
/// takes packets without checksums. `pattern`: its name, with `%d` where the kernel puts a number.
/// Gives the name that it has.
///
/// # Errors
/// EPERM: it takes CAP_NET_ADMIN. ENOENT: there is no /dev/net/tun.
pub fn open_tap(pattern: &str) -> io::Result<(Fd, String)> {
    let tap = open_at(None, c"/dev/net/tun", libc::O_RDWR | libc::O_NONBLOCK, 0)?;
    let mut request = request(pattern)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as i16;
    // SAFETY: the call reads and writes the local request.
    unsafe { ioctl::ioctl(&tap, ioctl::Updater::<TUNSETIFF, _>::new(&mut request)) }?;
    // SAFETY: the call takes a number, no pointer.
    unsafe {
        ioctl::ioctl(
            &tap,
            ioctl::IntegerSetter::<TUNSETOFFLOAD>::new_usize(TUN_F_CSUM),
        )
    }?;
    let name = request.ifr_name.iter().take_while(|&&c| c != 0);
    let name = name.map(|&c| c as u8).collect();
    let name = String::from_utf8(name).map_err(io::Error::other)?;
    Ok((tap, name))
}

/// One address of an interface.
#[derive(Clone, Debug)]
pub struct InterfaceAddress {
    /// The interface's name.
    pub name: String,
    /// The interface's number.
    pub index: u32,
    /// The address.
    pub addr: IpAddr,
    /// Of a link-local IPv6 address: the interface that it means; else 0.
    pub scope_id: u32,
    /// It is a loopback interface.
    pub loopback: bool,
    /// Somebody has switched it on.
    up: bool,
    /// Its link can carry packets: there is a carrier, and nothing else keeps it from it (RFC 2863,
    /// operstate).
    pub running: bool,
}

/// Addresses of all interfaces that are up, and the first hardware address found there.
pub fn interface_addresses() -> io::Result<(Vec<InterfaceAddress>, Option<[u8; 6]>)> {
    let (mut found, mac) = all_addresses()?;
    found.retain(|entry| entry.up);
    Ok((found, mac))
}

/// Addresses of all interfaces, and the first hardware address of one that is up.
fn all_addresses() -> io::Result<(Vec<InterfaceAddress>, Option<[u8; 6]>)> {
    let mut list = std::ptr::null_mut();
    // SAFETY: `list` receives a list that is freed below.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return crate::blame::of("getifaddrs", Err(io::Error::last_os_error()));
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
pub fn interface_of(wanted: IpAddr) -> Option<(String, bool)> {
    all_addresses()
        .ok()?
        .0
        .into_iter()
        .find(|entry| entry.addr == wanted)
        .map(|entry| (entry.name, entry.up))
}

/// MTU of an interface, bytes; asked of the kernel by ioctl, since sysfs may show another network
/// namespace.
pub fn interface_mtu(name: &str) -> Option<u32> {
    let mut request = request(name).ok()?;
    // SAFETY: the call fills in the part of the request that is then read; any bytes are a value of
    // it.
    let mtu = unsafe {
        ask::<SIOCGIFMTU>(&mut request).ok()?;
        request.ifr_ifru.ifru_mtu
    };
    Some(mtu as u32)
}
