//! What both measuring examples share: a second process, pinned cores, the machine's state.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The second process: this program again, with `role` as its first argument; lines go both ways.
pub struct Peer {
    child: Child,
    pub stdin: ChildStdin,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Peer {
    pub fn start(args: &[String]) -> Peer {
        let mut child = Command::new(std::env::current_exe().expect("path of this program"))
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the second process");
        Peer {
            stdin: child.stdin.take().expect("stdin"),
            lines: BufReader::new(child.stdout.take().expect("stdout")).lines(),
            child,
        }
    }

    pub fn line(&mut self) -> String {
        self.lines
            .next()
            .expect("the second process answers")
            .expect("a line")
    }

    pub fn tell(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").expect("the second process reads");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn read_line() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("stdin");
    line.trim().to_owned()
}

pub fn pin(core: usize) {
    // SAFETY: cpu_set_t is a bit set for which zero is a value; the calls get its address and size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// Round trip of a cache line between cores 0 and 1 in nanoseconds: tells which state a virtual
/// machine is in.
pub fn core_round_trip_ns() -> f64 {
    let word = AtomicU64::new(0);
    let rounds = 100_000u64;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            for i in 0..rounds {
                while word.load(Ordering::Acquire) != 2 * i + 1 {
                    std::hint::spin_loop();
                }
                word.store(2 * i + 2, Ordering::Release);
            }
        });
        scope
            .spawn(|| {
                pin(0);
                let start = Instant::now();
                for i in 0..rounds {
                    word.store(2 * i + 1, Ordering::Release);
                    while word.load(Ordering::Acquire) != 2 * i + 2 {
                        std::hint::spin_loop();
                    }
                }
                start.elapsed().as_nanos() as f64 / rounds as f64
            })
            .join()
            .expect("no panic")
    })
}

pub fn set_option(socket: &std::net::UdpSocket, level: i32, name: i32, value: i32) {
    use std::os::fd::AsRawFd;
    // SAFETY: the option is a local int, its size is given.
    let ret = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as u32,
        )
    };
    assert_eq!(
        ret,
        0,
        "setsockopt {name}: {}",
        std::io::Error::last_os_error()
    );
}

/// A bare socket as the link's are: unconnected, never fragmenting.
pub fn bare_socket(ip: std::net::IpAddr) -> std::net::UdpSocket {
    let socket = std::net::UdpSocket::bind((ip, 0)).expect("bind");
    if ip.is_ipv4() {
        set_option(
            &socket,
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_DO,
        );
    } else {
        set_option(
            &socket,
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_DO,
        );
    }
    socket
}

pub fn path(ip: std::net::IpAddr, dest_qpn: u32) -> rnic_link::PathSpec {
    rnic_link::PathSpec {
        local: ip,
        scope_id: 0,
        remote: ip,
        dest_qpn,
        traffic_class: 0,
        hop_limit: 0,
    }
}
