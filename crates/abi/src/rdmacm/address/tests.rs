use std::net::SocketAddr;

use super::{maybe_from_c, port, to_c};

/// The address, or the errno.
unsafe fn from_c(addr: *const libc::sockaddr) -> Result<SocketAddr, i32> {
    // SAFETY: the caller's contract is the same.
    unsafe { super::from_c(addr) }.map_err(|refusal| refusal.errno())
}

#[test]
fn addresses_survive_the_way_to_c_and_back() {
    for text in ["1.2.3.4:56789", "[fe80::1%7]:1", "[::1]:65535", "0.0.0.0:0"] {
        let addr: SocketAddr = text.parse().expect("an address");
        let storage = to_c(addr);
        // SAFETY: a whole storage.
        assert_eq!(unsafe { from_c((&raw const storage).cast()) }, Ok(addr));
        assert_eq!(port(&storage), addr.port().to_be());
    }
}

#[test]
fn families_without_a_port_are_refused() {
    for family in [libc::AF_UNSPEC, libc::AF_UNIX, 27 /* AF_IB */] {
        let mut storage = to_c("1.2.3.4:5".parse().expect("an address"));
        storage.ss_family = family as libc::sa_family_t;
        // SAFETY: a whole storage.
        let outcome = unsafe { from_c((&raw const storage).cast()) };
        assert_eq!(outcome, Err(libc::EINVAL));
        assert_eq!(port(&storage), 0);
    }
    // SAFETY: NULL is allowed.
    unsafe {
        assert_eq!(from_c(std::ptr::null()), Err(libc::EINVAL));
        assert!(matches!(maybe_from_c(std::ptr::null()), Ok(None)));
    }
}
