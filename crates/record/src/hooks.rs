//! The functions of the C library that the recorder stands in front of.
//!
//! Each passes on what it gets, and what it returns, errno included. With "C-unwind" a thread may
//! be cancelled in them: they are plain frames, with nothing to clean up.

use core::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{FILE, epoll_event, fd_set, iovec, msghdr, nfds_t, off_t, pollfd, sigset_t, sockaddr};
use libc::{mmsghdr, timespec, timeval};

use crate::flow;

/// The next function of this name.
fn next(name: &'static std::ffi::CStr, cache: &AtomicPtr<c_void>) -> *mut c_void {
    let mut function = cache.load(Ordering::Relaxed);
    if function.is_null() {
        // SAFETY: a C string; the result is compared with NULL before it is called.
        function = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        cache.store(function, Ordering::Relaxed);
    }
    function
}

/// What a function says that this C library does not have.
#[cold]
fn absent() {
    // SAFETY: the place of this thread's errno.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
}

/// Calls the next function of a name; -1 if there is none.
macro_rules! next {
    ($name:expr => fn($($ty:ty),* $(,)?) -> $ret:ty, ($($arg:expr),* $(,)?)) => {{
        static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
        let function = next($name, &NEXT);
        if function.is_null() {
            absent();
            -1
        } else {
            // SAFETY: the C library's function of that name has this signature, and the caller
            // keeps its contract.
            unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn($($ty),*) -> $ret>
                    (function)($($arg),*)
            }
        }
    }};
}

/// Defines functions of the C library. The safety contract of each is that of its man page: the
/// arguments go to the next function as they come, and only descriptors and numbers are looked at.
macro_rules! hooks {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty = |$call:ident| $body:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
            let $call = || -> $ret {
                next!(symbol!($name) => fn($($ty),*) -> $ret, ($($arg),*))
            };
            $body
        }
    )*};
}

macro_rules! symbol {
    ($name:ident) => {
        const {
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name without NUL"),
            }
        }
    };
}

/// A call that sends, from its call to what it returned.
macro_rules! sends {
    ($fd:expr, $call:ident, $of_file:expr) => {{
        let begin = flow::look($fd);
        let done = $call();
        flow::sent($fd, begin, done as isize, $of_file);
        done
    }};
}

/// A call that receives. What it only looks at comes again.
macro_rules! receives {
    ($fd:expr, $call:ident, $flags:expr) => {{
        let begin = match $flags & libc::MSG_PEEK {
            0 => flow::look($fd),
            _ => None,
        };
        let done = $call();
        flow::received($fd, begin, done as isize);
        done
    }};
}

/// A call that waits.
macro_rules! waits {
    ($call:ident, $looks:expr) => {{
        let begin = flow::begin();
        let done = $call();
        flow::waited(begin, done, $looks);
        done
    }};
}

/// Bytes of the messages that were sent or received at once.
///
/// # Safety
/// `done` messages lie at `messages`.
unsafe fn bytes_of(messages: *const mmsghdr, done: c_int) -> isize {
    let count = usize::try_from(done).unwrap_or(0);
    if count == 0 || messages.is_null() {
        return done as isize;
    }
    // SAFETY: by contract.
    let messages = unsafe { std::slice::from_raw_parts(messages, count) };
    messages
        .iter()
        .map(|message| message.msg_len as isize)
        .sum()
}

/// NULL, or a time of nothing.
///
/// # Safety
/// NULL, or a time of the caller's.
unsafe fn is_zero(time: *const timespec) -> bool {
    // SAFETY: by contract.
    unsafe { time.as_ref() }.is_some_and(|time| time.tv_sec == 0 && time.tv_nsec == 0)
}

type Size = usize;

hooks! {
    send(fd: c_int, buffer: *const c_void, size: Size, flags: c_int) -> isize =
        |call| sends!(fd, call, false);
    sendto(fd: c_int, buffer: *const c_void, size: Size, flags: c_int, to: *const sockaddr,
        len: c_uint) -> isize = |call| sends!(fd, call, false);
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize =
        |call| sends!(fd, call, false);
    write(fd: c_int, buffer: *const c_void, size: Size) -> isize =
        |call| sends!(fd, call, false);
    writev(fd: c_int, pieces: *const iovec, count: c_int) -> isize =
        |call| sends!(fd, call, false);
    sendfile(to: c_int, from: c_int, offset: *mut off_t, size: Size) -> isize =
        |call| sends!(to, call, true);
    sendfile64(to: c_int, from: c_int, offset: *mut off_t, size: Size) -> isize =
        |call| sends!(to, call, true);
    sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int = |call| {
        let begin = flow::look(fd);
        let done = call();
        // SAFETY: the next function says that it sent so many.
        flow::sent(fd, begin, unsafe { bytes_of(messages, done) }, false);
        done
    };

    recv(fd: c_int, buffer: *mut c_void, size: Size, flags: c_int) -> isize =
        |call| receives!(fd, call, flags);
    __recv_chk(fd: c_int, buffer: *mut c_void, size: Size, room: Size, flags: c_int) -> isize =
        |call| receives!(fd, call, flags);
    recvfrom(fd: c_int, buffer: *mut c_void, size: Size, flags: c_int, from: *mut sockaddr,
        len: *mut c_uint) -> isize = |call| receives!(fd, call, flags);
    __recvfrom_chk(fd: c_int, buffer: *mut c_void, size: Size, room: Size, flags: c_int,
        from: *mut sockaddr, len: *mut c_uint) -> isize = |call| receives!(fd, call, flags);
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize =
        |call| receives!(fd, call, flags);
    read(fd: c_int, buffer: *mut c_void, size: Size) -> isize =
        |call| receives!(fd, call, 0);
    __read_chk(fd: c_int, buffer: *mut c_void, size: Size, room: Size) -> isize =
        |call| receives!(fd, call, 0);
    readv(fd: c_int, pieces: *const iovec, count: c_int) -> isize =
        |call| receives!(fd, call, 0);
    recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int,
        time: *mut timespec) -> c_int = |call| {
        let begin = flow::look(fd);
        let done = call();
        // SAFETY: the next function says that it received so many.
        flow::received(fd, begin, unsafe { bytes_of(messages, done) });
        done
    };

    poll(fds: *mut pollfd, count: nfds_t, time: c_int) -> c_int = |call| waits!(call, time == 0);
    __poll_chk(fds: *mut pollfd, count: nfds_t, time: c_int, room: Size) -> c_int =
        |call| waits!(call, time == 0);
    ppoll(fds: *mut pollfd, count: nfds_t, time: *const timespec,
        mask: *const sigset_t) -> c_int =
        // SAFETY: the argument of ppoll(2).
        |call| waits!(call, unsafe { is_zero(time) });
    __ppoll_chk(fds: *mut pollfd, count: nfds_t, time: *const timespec, mask: *const sigset_t,
        room: Size) -> c_int =
        // SAFETY: the argument of ppoll(2).
        |call| waits!(call, unsafe { is_zero(time) });
    select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        time: *mut timeval) -> c_int = |call| waits!(call, false);
    pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        time: *const timespec, mask: *const sigset_t) -> c_int = |call| waits!(call, false);
    epoll_wait(epoll: c_int, events: *mut epoll_event, most: c_int, time: c_int) -> c_int =
        |call| waits!(call, time == 0);
    epoll_pwait(epoll: c_int, events: *mut epoll_event, most: c_int, time: c_int,
        mask: *const sigset_t) -> c_int = |call| waits!(call, time == 0);
    epoll_pwait2(epoll: c_int, events: *mut epoll_event, most: c_int, time: *const timespec,
        mask: *const sigset_t) -> c_int =
        // SAFETY: the argument of epoll_pwait2(2).
        |call| waits!(call, unsafe { is_zero(time) });

    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int = |call| {
        let fd = call();
        flow::made(fd, None);
        fd
    };
    connect(fd: c_int, to: *const sockaddr, len: c_uint) -> c_int = |call| {
        let done = call();
        flow::made(fd, Some(false));
        done
    };
    accept(fd: c_int, from: *mut sockaddr, len: *mut c_uint) -> c_int = |call| {
        let made = call();
        flow::made(made, Some(true));
        made
    };
    accept4(fd: c_int, from: *mut sockaddr, len: *mut c_uint, flags: c_int) -> c_int = |call| {
        let made = call();
        flow::made(made, Some(true));
        made
    };
    listen(fd: c_int, backlog: c_int) -> c_int = |call| {
        let done = call();
        if done == 0 {
            flow::listens();
        }
        done
    };

    close(fd: c_int) -> c_int = |call| {
        flow::closed(fd);
        call()
    };
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int = |call| {
        flow::closed_range(first, last);
        call()
    };
    dup2(from: c_int, to: c_int) -> c_int = |call| {
        if from != to {
            flow::closed(to);
        }
        call()
    };
    dup3(from: c_int, to: c_int, flags: c_int) -> c_int = |call| {
        if from != to {
            flow::closed(to);
        }
        call()
    };
    fclose(stream: *mut FILE) -> c_int = |call| {
        // SAFETY: the argument of fclose(3): a stream that is open.
        flow::closed(unsafe { libc::fileno(stream) });
        call()
    };
}

/// closefrom(3), which returns nothing.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn closefrom(first: c_int) {
    flow::closed_range(c_uint::try_from(first).unwrap_or(0), c_uint::MAX);
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let function = next(c"closefrom", &NEXT);
    if !function.is_null() {
        // SAFETY: the C library's function of that name has this signature.
        unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn(c_int)>(function)(first);
        }
    }
}

/// fdopen(3), which returns a pointer.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    flow::is_stdio(fd);
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let function = next(c"fdopen", &NEXT);
    if function.is_null() {
        absent();
        return std::ptr::null_mut();
    }
    type Fdopen = unsafe extern "C-unwind" fn(c_int, *const c_char) -> *mut FILE;
    // SAFETY: the C library's function of that name has this signature, and the caller keeps its
    // contract.
    unsafe { std::mem::transmute::<*mut c_void, Fdopen>(function)(fd, mode) }
}
