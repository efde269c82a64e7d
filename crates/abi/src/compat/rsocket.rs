//! rsockets: forwarded to the librdmacm of rdma-core.
//!
//! Its `rsocket.c` is a whole socket layer of its own upon `rdma_*` and `ibv_*`, all of which it
//! calls by name. So it runs unmodified on this device: the real library is loaded behind ours, and
//! its calls find our functions (see [`stock`]). Where no rdma-core is installed, the functions say
//! ENOSYS.
//!
//! A thread may be cancelled while it waits in `rrecv(3)`: nothing here owns anything while the
//! real function runs, and unwinding passes.

mod stock;
mod symbolic;

pub use stock::are_calling;

use core::ffi::{c_int, c_void};

use libc::{
    epoll_event, fd_set, iovec, msghdr, nfds_t, off_t, pollfd, size_t, sockaddr, socklen_t,
    ssize_t, timeval,
};

use crate::export::seam::set_errno;
use crate::export::symbols::export;

/// Those that may sleep until a peer does something: `rnic run` tells of them if they do for ever.
const SLEEP: [&str; 13] = [
    "raccept",
    "rconnect",
    "rclose",
    "rrecv",
    "rrecvfrom",
    "rrecvmsg",
    "rsend",
    "rsendto",
    "rsendmsg",
    "rread",
    "rreadv",
    "rwrite",
    "rwritev",
];
/// Likewise; 0 says that nothing was there in time.
const POLL: [&str; 3] = ["rpoll", "rselect", "repoll_wait"];

/// The name is one of these.
const fn is_among(name: &str, names: &[&str]) -> bool {
    let mut at = 0;
    while at < names.len() {
        let (a, b) = (name.as_bytes(), names[at].as_bytes());
        let mut same = 0;
        while same < a.len() && same < b.len() && a[same] == b[same] {
            same += 1;
        }
        if same == a.len() && same == b.len() {
            return true;
        }
        at += 1;
    }
    false
}

/// How a call ended that gave this. `polls`: 0 says that nothing was there.
fn over(result: i64, polls: bool) -> rnic_nic::Over {
    match result {
        // SAFETY: errno is the thread's own.
        ..0 => rnic_nic::Over::by_errno(unsafe { *libc::__errno_location() }),
        0 if polls => rnic_nic::Over::Idle,
        _ => rnic_nic::Over::Done,
    }
}

/// Declares the functions of the table and a forwarder for each, which returns `-1` and ENOSYS
/// where there is none.
macro_rules! forward {
    ($($node:literal: $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {
        /// The real library's functions; `None` for those that its release does not have.
        struct Functions {
            $($name: Option<unsafe extern "C-unwind" fn($($ty),*) -> $ret>,)*
        }

        impl Functions {
            fn find(library: &stock::Library) -> Functions {
                Functions {
                    $($name: library
                        .function(stringify!($name))
                        // SAFETY: the function of that name has this signature
                        // (`<rdma/rsocket.h>`).
                        .map(|function| unsafe { std::mem::transmute(function) }),)*
                }
            }
        }

        $(unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
            match stock::functions().and_then(|functions| functions.$name) {
                Some(function) => {
                    // SAFETY: the program's arguments, as they came.
                    let run = || unsafe { function($($arg),*) };
                    const POLLS: bool = is_among(stringify!($name), &POLL);
                    const SLEEPS: bool = POLLS || is_among(stringify!($name), &SLEEP);
                    match SLEEPS {
                        true => rnic_nic::wait_in_sockets(stringify!($name), run, |result| {
                            over(i64::try_from(*result).unwrap_or(-1), POLLS)
                        }),
                        false => run(),
                    }
                }
                None => {
                    set_errno(libc::ENOSYS);
                    -1
                }
            }
        })*

        export! { $($name @@ $node => $name;)* }
    };
}

forward! {
    "RDMACM_1.0": rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    "RDMACM_1.0": rbind(socket: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
    "RDMACM_1.0": rlisten(socket: c_int, backlog: c_int) -> c_int;
    "RDMACM_1.0": raccept(socket: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
    "RDMACM_1.0": rconnect(socket: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
    "RDMACM_1.0": rshutdown(socket: c_int, how: c_int) -> c_int;
    "RDMACM_1.0": rclose(socket: c_int) -> c_int;
    "RDMACM_1.0": rrecv(socket: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    "RDMACM_1.0": rrecvfrom(socket: c_int, buf: *mut c_void, len: size_t, flags: c_int, from: *mut sockaddr,
        from_len: *mut socklen_t) -> ssize_t;
    "RDMACM_1.0": rrecvmsg(socket: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t;
    "RDMACM_1.0": rsend(socket: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    "RDMACM_1.0": rsendto(socket: c_int, buf: *const c_void, len: size_t, flags: c_int, to: *const sockaddr,
        to_len: socklen_t) -> ssize_t;
    "RDMACM_1.0": rsendmsg(socket: c_int, msg: *const msghdr, flags: c_int) -> ssize_t;
    "RDMACM_1.0": rread(socket: c_int, buf: *mut c_void, count: size_t) -> ssize_t;
    "RDMACM_1.0": rreadv(socket: c_int, iov: *const iovec, count: c_int) -> ssize_t;
    "RDMACM_1.0": rwrite(socket: c_int, buf: *const c_void, count: size_t) -> ssize_t;
    "RDMACM_1.0": rwritev(socket: c_int, iov: *const iovec, count: c_int) -> ssize_t;
    "RDMACM_1.0": rpoll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    "RDMACM_1.0": rselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *mut timeval) -> c_int;
    "RDMACM_1.0": rgetpeername(socket: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
    "RDMACM_1.0": rgetsockname(socket: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
    "RDMACM_1.0": rsetsockopt(socket: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int;
    "RDMACM_1.0": rgetsockopt(socket: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int;
    // `int rfcntl(int, int, ...)` takes one more word, an int or a pointer; variadic or not, it
    // comes in the same register.
    "RDMACM_1.0": rfcntl(socket: c_int, command: c_int, argument: usize) -> c_int;
    "RDMACM_1.0": riomap(socket: c_int, buf: *mut c_void, len: size_t, protection: c_int, flags: c_int, offset: off_t) -> off_t;
    "RDMACM_1.0": riounmap(socket: c_int, buf: *mut c_void, len: size_t) -> c_int;
    // A size_t in the header, and -1 on failure all the same.
    "RDMACM_1.0": riowrite(socket: c_int, buf: *const c_void, count: size_t, offset: off_t, flags: c_int) -> ssize_t;
    "RDMACM_1.5": repoll_create(flags: c_int) -> c_int;
    "RDMACM_1.5": repoll_ctl(poll: c_int, operation: c_int, socket: c_int, event: *mut epoll_event) -> c_int;
    "RDMACM_1.5": repoll_wait(poll: c_int, events: *mut epoll_event, count: c_int, timeout: c_int) -> c_int;
}
