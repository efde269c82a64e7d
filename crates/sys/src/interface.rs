//! Ethernet interfaces (netdevice(7)), and one that this process makes (the kernel's Documentation/networking/tuntap.rst).

use std::io;

use super::{Fd, check, open_at};

// linux/sockios.h, linux/ethtool.h
const SIOCGIFINDEX: libc::Ioctl = 0x8933;
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GTXCSUM: u32 = 0x16;
// linux/if_tun.h
const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
const TUNSETOFFLOAD: libc::Ioctl = 0x4004_54d0;
const TUN_F_CSUM: libc::c_ulong = 1;

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
/// `what` reads and writes the request alone, or what it points to besides, which is as long as `what` takes it to be.
unsafe fn ask(what: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    let socket = super::socket(libc::AF_INET, libc::SOCK_DGRAM)
        .or_else(|_| super::socket(libc::AF_INET6, libc::SOCK_DGRAM))?;
    // SAFETY: the request is borrowed for the call; the caller vouches for the rest.
    check(unsafe { libc::syscall(libc::SYS_ioctl, socket.raw(), what, &raw mut *request) })?;
    Ok(())
}

/// Number, hardware address and MTU of an Ethernet interface.
pub fn ethernet(name: &str) -> io::Result<(u32, [u8; 6], u32)> {
    let ask = |what| {
        let mut request = request(name)?;
        // SAFETY: these fill in a part of the request.
        unsafe { ask(what, &mut request) }.map(|()| request)
    };
    let hardware = ask(libc::SIOCGIFHWADDR as libc::Ioctl)?;
    // SAFETY: the kernel has filled in this part of the union; any bytes are a value of the others.
    let (index, address, mtu) = unsafe {
        (
            ask(SIOCGIFINDEX)?.ifr_ifru.ifru_ifindex,
            hardware.ifr_ifru.ifru_hwaddr,
            ask(libc::SIOCGIFMTU as libc::Ioctl)?.ifr_ifru.ifru_mtu,
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
    // SAFETY: it reads and writes these two words.
    unsafe { ask(SIOCETHTOOL, &mut request)? };
    Ok(value[1] != 0)
}

/// Makes an Ethernet interface that is there as long as the descriptor is open, down yet, and that takes packets without checksums. `pattern`: its
/// name, with `%d` where the kernel puts a number. Gives the name that it has.
///
/// # Errors
/// EPERM: it takes CAP_NET_ADMIN. ENOENT: there is no /dev/net/tun.
pub fn open_tap(pattern: &str) -> io::Result<(Fd, String)> {
    let tap = open_at(None, c"/dev/net/tun", libc::O_RDWR | libc::O_NONBLOCK, 0)?;
    let mut request = request(pattern)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as i16;
    // SAFETY: the kernel reads and writes the local request.
    check(unsafe { libc::syscall(libc::SYS_ioctl, tap.raw(), TUNSETIFF, &raw mut request) })?;
    // SAFETY: no pointers.
    check(unsafe { libc::syscall(libc::SYS_ioctl, tap.raw(), TUNSETOFFLOAD, TUN_F_CSUM) })?;
    let name = request.ifr_name.iter().take_while(|&&c| c != 0);
    let name = name.map(|&c| c as u8).collect();
    let name = String::from_utf8(name).map_err(io::Error::other)?;
    Ok((tap, name))
}
