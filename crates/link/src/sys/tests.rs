use proptest::prelude::*;

use super::datagram::parse_control;
use super::*;

#[test]
fn addresses_come_back_as_they_were() {
    for text in ["1.2.3.4:5", "[fd00::1]:65535", "0.0.0.0:0"] {
        let addr: SocketAddr = text.parse().unwrap();
        assert_eq!(Addr::inet(&addr).to_inet(), Some(addr));
    }
    let scoped = SocketAddr::V6(SocketAddrV6::new("fe80::1".parse().unwrap(), 9, 0, 7));
    assert_eq!(Addr::inet(&scoped).to_inet(), Some(scoped));
    let mapped: SocketAddr = "[::ffff:1.2.3.4]:5".parse().unwrap();
    assert_eq!(
        Addr::inet(&mapped).to_inet(),
        Some("1.2.3.4:5".parse().unwrap())
    );
    assert_eq!(Addr::empty().to_inet(), None);
    assert!(Addr::unix(&[b'x'; 107]).is_some());
    assert!(Addr::unix(&[b'x'; 108]).is_none());
    assert!(Addr::unix(b"a\0b").is_none());
}

proptest! {
    #[test]
    fn any_control_message_is_survived(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        len in 0usize..120,
        kind in 0usize..3,
    ) {
        let mut bytes = bytes;
        if bytes.len() >= size_of::<libc::cmsghdr>() {
            let (level, kind) = [
                (libc::SOL_UDP, libc::UDP_GRO),
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO),
                (libc::IPPROTO_IP, libc::IP_PKTINFO),
            ][kind];
            bytes[..8].copy_from_slice(&len.to_ne_bytes());
            bytes[8..12].copy_from_slice(&level.to_ne_bytes());
            bytes[12..16].copy_from_slice(&kind.to_ne_bytes());
        }
        let mut out = Datagram { len: 0, from: None, to: None, segment: 0, truncated: false };
        parse_control(&bytes, &mut out);
    }
}

#[test]
fn datagrams_tell_where_they_came_from_and_went_to() {
    let receiver = socket(libc::AF_INET, libc::SOCK_DGRAM).unwrap();
    set_option(&receiver, libc::IPPROTO_IP, libc::IP_PKTINFO, 1).unwrap();
    bind(&receiver, &Addr::inet(&"127.0.0.1:0".parse().unwrap())).unwrap();
    let to = local_addr(&receiver).unwrap();
    let sender = socket(libc::AF_INET, libc::SOCK_DGRAM).unwrap();
    bind(&sender, &Addr::inet(&"127.0.0.1:0".parse().unwrap())).unwrap();
    let mut buffer = [0; 64];
    let nothing = receive(&receiver, &mut buffer).err().unwrap();
    assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    assert!(!wait_readable(&receiver, 0));
    send_to(&sender, &[7; 100], Some(&Addr::inet(&to))).unwrap();
    assert!(wait_readable(&receiver, 10_000));
    let datagram = receive(&receiver, &mut buffer).unwrap();
    assert_eq!((datagram.len, datagram.truncated), (64, true));
    assert_eq!(datagram.from, Some(local_addr(&sender).unwrap()));
    assert_eq!(datagram.to, Some("127.0.0.1".parse().unwrap()));
    assert_eq!(buffer, [7; 64]);
}

#[test]
fn many_messages_go_in_one_call() {
    let receiver = socket(libc::AF_INET, libc::SOCK_DGRAM).unwrap();
    bind(&receiver, &Addr::inet(&"127.0.0.1:0".parse().unwrap())).unwrap();
    let to = Addr::inet(&local_addr(&receiver).unwrap());
    let sender = socket(libc::AF_INET, libc::SOCK_DGRAM).unwrap();
    let bytes: Vec<Vec<u8>> = (0..20u8).map(|i| vec![i; 3 + usize::from(i)]).collect();
    for n in [1, 3, 20] {
        let messages: Vec<_> = bytes[..n]
            .iter()
            .map(|b| Message {
                bytes: b,
                segment: if b.len() == 5 { 2 } else { 0 },
                to: Some(&to),
                by: None,
            })
            .collect();
        assert_eq!(send_many(&sender, &messages).unwrap(), n);
        let mut buffer = [0; 64];
        for expected in &bytes[..n] {
            let pieces = if expected.len() == 5 {
                vec![2, 2, 1]
            } else {
                vec![expected.len()]
            };
            for len in pieces {
                assert!(wait_readable(&receiver, 10_000));
                assert_eq!(receive(&receiver, &mut buffer).unwrap().len, len);
                assert_eq!(buffer[0], expected[0]);
            }
        }
    }
}

#[test]
fn byte_locks_belong_to_the_open_file() {
    let folder = crate::registry::tests::Folder::new();
    let path = std::ffi::CString::new(folder.path().join("f").to_str().unwrap()).unwrap();
    let open = || open_at(None, &path, libc::O_RDWR | libc::O_CREAT, 0o600).unwrap();
    let (a, b) = (open(), open());
    assert!(try_lock_byte(&a, 1 << 32).unwrap());
    assert!(!try_lock_byte(&b, 1 << 32).unwrap());
    assert!(try_lock_byte(&b, (1 << 32) + 1).unwrap());
    assert!(byte_is_locked(&b, 1 << 32).unwrap());
    assert!(!byte_is_locked(&a, 1 << 32).unwrap());
    // Another descriptor of the file being closed changes nothing (with POSIX locks it would).
    drop(open());
    assert!(byte_is_locked(&b, 1 << 32).unwrap());
    drop(a);
    assert!(!byte_is_locked(&b, 1 << 32).unwrap());
}

/// Systems with `vm.memfd_noexec=2` give out no others.
#[test]
fn memory_files_are_never_to_be_executed_where_the_kernel_knows_that() {
    const F_SEAL_EXEC: usize = 0x20;
    let seals = |fd: &Fd| {
        // SAFETY: no pointers.
        check(unsafe { libc::syscall(libc::SYS_fcntl, fd.0, libc::F_GET_SEALS) }).unwrap()
    };
    let flags = libc::MFD_CLOEXEC | libc::MFD_NOEXEC_SEAL;
    // SAFETY: a terminated string, and a new descriptor.
    let known = unsafe {
        let made = libc::syscall(libc::SYS_memfd_create, c"rnic".as_ptr(), flags);
        Fd::from_call(made)
    };
    let file = memory_file(4096).unwrap();
    assert_eq!(seals(&file) & F_SEAL_EXEC != 0, known.is_ok());
    assert!(is_safe_memory_file(&file, 4096));
}

/// Runs the calling test again in a process that has nothing else to do, since limits are a process's. True: this is it.
pub(crate) fn alone() -> bool {
    const CHILD: &str = "RNIC_TEST_ALONE";
    if std::env::var_os(CHILD).is_some() {
        // Some tests take all that there are.
        let few = libc::rlimit {
            rlim_cur: 256,
            rlim_max: 256,
        };
        // SAFETY: reads the local value.
        check(unsafe { libc::syscall(libc::SYS_setrlimit, libc::RLIMIT_NOFILE, &raw const few) })
            .expect("a lower limit");
        return true;
    }
    let name = std::thread::current().name().expect("a test").to_owned();
    let output = std::process::Command::new(std::env::current_exe().expect("this"))
        .args([&name, "--exact", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .expect("a child");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 passed"), "it ran: {said}");
    false
}

/// All descriptors that are left, for who is [`alone`].
pub(crate) fn all_descriptors() -> Vec<Fd> {
    std::iter::from_fn(|| socket(libc::AF_UNIX, libc::SOCK_STREAM).ok()).collect()
}

/// Runs `work` in a thread that is in a network namespace of its own; `None`: there cannot be one, which is said.
pub(crate) fn in_another_namespace<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: no pointers; it is this thread's alone.
            match check(unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_NEWNET) }) {
                Ok(_) => Some(work()),
                Err(e) => {
                    let why = format!("no network namespace here: {e}");
                    rnic_skip::skipped(&test, &why);
                    None
                }
            }
        });
        thread.join().expect("what is wrong was said")
    })
}

/// Runs `work` in a thread that cannot ask sockets for their options; `None`: that cannot be had here, which is said.
pub(crate) fn without_options<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let step = |code: u32, jt, jf, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    // The number of the call is the first word of struct seccomp_data.
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            libc::SYS_getsockopt as u32,
        ),
        step(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | libc::ENOPROTOOPT as u32,
        ),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let mut set = || {
        let filter = libc::sock_fprog {
            len: steps.len() as u16,
            filter: steps.as_mut_ptr(),
        };
        // SAFETY: the filter is only read; both calls are about this thread alone.
        unsafe {
            let (prctl, no) = (libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS);
            check(libc::syscall(prctl, no, 1, 0, 0, 0))?;
            let (seccomp, mode) = (libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER);
            check(libc::syscall(prctl, seccomp, mode, &raw const filter))
        }
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| match set() {
            Ok(_) => Some(work()),
            Err(e) => {
                rnic_skip::skipped(&test, &format!("no filter of system calls here: {e}"));
                None
            }
        });
        thread.join().expect("what is wrong was said")
    })
}
