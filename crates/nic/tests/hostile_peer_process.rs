//! A hostile process of the same user at the socket where others ask this one to execute for their
//! XRC targets.

use crate::environment;

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rnic_nic::{Access, Context, Cq, Pd, Srq, SrqInit, Status};
use rnic_transport::{RecvWqe, SgList, Sge};
use rnic_wire::{Bth, Ext, Opcode, Operation, Packet, Payload, Psn, Service, Xrceth, pad_len};

const SLOT: usize = 256;
const ROOM: u32 = 63;
// The kinds of messages (`neighbour/message.rs`).
const JOIN: u8 = 1;
const EXECUTE: u8 = 2;
const VERDICTS: u8 = 5;
/// Where in a message of one packet its opcode is.
const OPCODE: usize = 1 + 4 * 4 + 2 + 4;

/// A connection as another process makes it.
struct Stranger(OwnedFd);

impl Stranger {
    fn connect(path: &Path) -> Stranger {
        let name = path.as_os_str().as_bytes();
        // SAFETY: integers and arrays of them.
        let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        assert!(name.len() < address.sun_path.len());
        for (place, byte) in address.sun_path.iter_mut().zip(name) {
            *place = *byte as libc::c_char;
        }
        // SAFETY: no pointers; the descriptor is nobody else's.
        let fd =
            unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0)) };
        let timeout = libc::timeval {
            tv_sec: 60,
            tv_usec: 0,
        };
        // SAFETY: the pointers are those of local structures, with their sizes.
        unsafe {
            let len = size_of::<libc::timeval>() as u32;
            let option = (&raw const timeout).cast();
            libc::setsockopt(
                fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVTIMEO,
                option,
                len,
            );
            let len = size_of::<libc::sockaddr_un>() as u32;
            let connected = libc::connect(fd.as_raw_fd(), (&raw const address).cast(), len);
            assert_eq!(connected, 0, "{}", io::Error::last_os_error());
        }
        Stranger(fd)
    }

    /// False: this end was closed.
    fn say(&self, bytes: &[u8], file: Option<&File>) -> bool {
        #[repr(C, align(8))]
        struct Control([u8; 24]);
        let mut control = Control([0; 24]);
        let mut iov = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        // SAFETY: integers and pointers.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut iov;
        header.msg_iovlen = 1;
        if let Some(file) = file {
            control.0[..8].copy_from_slice(&20usize.to_ne_bytes());
            control.0[8..12].copy_from_slice(&libc::SOL_SOCKET.to_ne_bytes());
            control.0[12..16].copy_from_slice(&libc::SCM_RIGHTS.to_ne_bytes());
            control.0[16..20].copy_from_slice(&file.as_raw_fd().to_ne_bytes());
            header.msg_control = (&raw mut control).cast();
            header.msg_controllen = 24;
        }
        let fd = self.0.as_raw_fd();
        // SAFETY: the header names local buffers that live through the call.
        unsafe { libc::sendmsg(fd, &raw const header, libc::MSG_NOSIGNAL) >= 0 }
    }

    fn hear(&self) -> Vec<u8> {
        let mut out = vec![0; 1 << 16];
        // SAFETY: pointer and length are those of `out`.
        let n = unsafe { libc::recv(self.0.as_raw_fd(), out.as_mut_ptr().cast(), out.len(), 0) };
        out.truncate(usize::try_from(n).expect("an answer"));
        out
    }

    /// Takes what is there, and throws it away.
    fn ignore(&self) {
        let mut out = vec![0; 1 << 16];
        let (fd, flags) = (self.0.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: pointer and length are those of `out`.
        while unsafe { libc::recv(fd, out.as_mut_ptr().cast(), out.len(), flags) } > 0 {}
    }
}

fn words(kind: u8, words: &[u32]) -> Vec<u8> {
    let mut out = vec![kind];
    for word in words {
        out.extend_from_slice(&word.to_ne_bytes());
    }
    out
}

/// Asks that one packet be executed for target 0x77 with all rights, in domain 9.
fn execute(operation: Operation, srqn: u32, payload: &[u8]) -> Vec<u8> {
    let packet = Packet {
        bth: Bth {
            opcode: Opcode::new(Service::Xrc, operation),
            pkey: 0xffff,
            dest_qp: 0x77,
            psn: Psn::new(5),
            pad: pad_len(payload.len()),
            ..Bth::default()
        },
        ext: Ext {
            xrceth: Some(Xrceth { srqn }),
            ..Ext::default()
        },
        payload: Payload::Here(payload),
    };
    let mut bytes = vec![0; packet.wire_len()];
    packet.emit(&mut bytes);
    let mut out = words(EXECUTE, &[1, 0x77, 0x88, 9]);
    out.extend_from_slice(&[1, 0x1f]);
    out.extend_from_slice(&(bytes.len() as u32).to_ne_bytes());
    out.extend(bytes);
    out
}

/// Numbers that look random (Knuth's MMIX generator).
struct Noise(u64);

impl Noise {
    fn below(&mut self, bound: usize) -> usize {
        let Noise(state) = self;
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) as usize % bound
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let len = self.below(most + 1);
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

/// The socket in the runtime folder of who has that shared receive queue. Other shards of the
/// engine have one, too.
fn socket_in(dir: &Path, srqn: u32) -> PathBuf {
    let namespace = std::fs::read_dir(dir).unwrap().next().unwrap().unwrap();
    let all = std::fs::read_dir(namespace.path()).unwrap();
    let mut names = all.map(|entry| entry.unwrap().path());
    let name = format!("/neighbour.{}", srqn >> 12);
    names
        .find(|path| path.display().to_string().ends_with(&name))
        .unwrap()
}

/// The owner: a queue whose receives lie one after the other in `buffer`, between bytes that nobody
/// may touch.
struct Owner {
    _context: Context,
    cq: Cq,
    srq: Srq,
    buffer: &'static mut [u8],
    lkey: u32,
}

impl Owner {
    fn new(file: &File) -> Owner {
        let context = Context::open().expect("a device");
        let xrcd = context
            .open_xrcd(Some(file.as_raw_fd()), true, true)
            .unwrap();
        let pd: Pd = context.alloc_pd();
        let cq = context.create_cq(4096, None, 0).unwrap();
        let srq = pd
            .create_srq(&SrqInit {
                max_wr: ROOM,
                max_sge: 1,
                xrc: Some((xrcd, cq.clone())),
                cookie: 0,
            })
            .unwrap();
        let buffer = vec![0xee; (ROOM as usize + 2) * SLOT].leak();
        let inner = &mut buffer[SLOT..];
        let len = ROOM as usize * SLOT;
        let (at, iova) = (inner.as_mut_ptr(), inner.as_ptr() as u64);
        // SAFETY: the buffer is never freed, and only looked at when the device is at rest.
        let mr = unsafe { pd.reg_mr(at, len, iova, Access::LOCAL_WRITE) }.unwrap();
        let lkey = mr.lkey();
        std::mem::forget(mr);
        Owner {
            _context: context,
            cq,
            srq,
            buffer,
            lkey,
        }
    }

    /// Posts until the queue is full; how many.
    fn post_all(&self) -> u32 {
        let start = self.buffer[SLOT..].as_ptr() as u64;
        for n in 0.. {
            let sge = Sge {
                addr: start + (n as usize % ROOM as usize * SLOT) as u64,
                length: SLOT as u32,
                lkey: self.lkey,
            };
            let wqe = RecvWqe {
                wr_id: n.into(),
                sges: SgList::from_slice(&[sge]),
            };
            if self.srq.post_recv(&mut std::iter::once(Ok(wqe))).is_err() {
                return n;
            }
        }
        unreachable!("the queue has an end")
    }

    /// How many receives have completed with this status, of all that have.
    fn completed(&self) -> (usize, usize) {
        let (mut well, mut all) = (0, 0);
        while self
            .cq
            .poll(64, &mut |completion| {
                well += usize::from(completion.status == Status::Success);
                all += 1;
            })
            .unwrap()
            > 0
        {}
        (well, all)
    }

    /// A stranger that keeps the rules fills every receive, and finds none beyond.
    fn works(&self, path: &Path, file: &File) {
        let peer = Stranger::connect(path);
        assert!(peer.say(&words(JOIN, &[9]), Some(file)));
        let send = execute(Operation::SendOnly, self.srq.number(), b"hello");
        for n in 0..=ROOM {
            assert!(peer.say(&send, None));
            let answer = peer.hear();
            let expected = [words(VERDICTS, &[1, 0x77]), vec![u8::from(n == ROOM)]].concat();
            assert_eq!(answer[..10], expected, "message {n}");
        }
        assert_eq!(self.completed(), (ROOM as usize, ROOM as usize));
        assert_eq!(&self.buffer[SLOT..SLOT + 5], b"hello");
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

impl Owner {
    /// A stranger shows files of domains that this process does not have open, and those that it
    /// has, again and again.
    fn keeps_no_descriptors(&self, path: &Path, dir: &Path) {
        let peer = Stranger::connect(path);
        let ask = execute(Operation::SendOnly, self.srq.number(), b"hello");
        let before = descriptors();
        for domain in 0..300 {
            let name = dir.with_extension(format!("other{domain}"));
            let other = File::create(&name).unwrap();
            assert!(peer.say(&words(JOIN, &[domain]), Some(&other)));
            std::fs::remove_file(&name).unwrap();
        }
        // The answer comes behind all of them.
        assert!(peer.say(&ask, None));
        assert!(peer.hear()[9] > 1, "domain 9 is another one");
        // The stranger's connection is the one that may be new.
        assert!(descriptors() <= before + 1, "{} kept", descriptors());
    }

    /// A stranger says that a target has a number of this process, to whose queue pairs windows are
    /// bound.
    fn takes_nobody_for_itself(&self, path: &Path, file: &File) {
        let peer = Stranger::connect(path);
        assert!(peer.say(&words(JOIN, &[9]), Some(file)));
        let mut ask = execute(Operation::SendOnly, self.srq.number(), b"hello");
        let own = self.srq.number() ^ 1;
        ask[5..9].copy_from_slice(&own.to_ne_bytes());
        assert!(peer.say(&ask, None));
        assert!(peer.hear()[9] > 1, "executed");
        assert_eq!(self.completed(), (0, 0));
    }
}

#[test]
fn whatever_a_neighbour_says_no_receive_is_lost_and_no_other_byte_is_touched() {
    let dir = std::env::temp_dir().join(format!("rnic-neighbours-{}", std::process::id()));
    environment::set("RNIC_RUNTIME_DIR", &dir);
    let file = File::create(dir.with_extension("domain")).unwrap();
    let owner = Owner::new(&file);
    let path = socket_in(&dir, owner.srq.number());
    assert_eq!(owner.post_all(), ROOM);
    owner.works(&path, &file);
    owner.post_all();
    owner.keeps_no_descriptors(&path, &dir);
    owner.takes_nobody_for_itself(&path, &file);

    let srqn = owner.srq.number();
    let mut noise = Noise(std::process::id().into());
    let operations = [
        Operation::SendFirst,
        Operation::SendMiddle,
        Operation::SendLast,
        Operation::SendOnly,
    ];
    let mut peer = Stranger::connect(&path);
    for round in 0..20_000 {
        let file = (noise.below(8) == 0).then_some(&file);
        let mut message = match noise.below(4) {
            0 => words(JOIN, &[noise.below(12) as u32]),
            1 => [vec![noise.below(13) as u8], noise.bytes(80)].concat(),
            _ => {
                let payload = vec![7; [0, 5, 256, 300][noise.below(4)]];
                let mut message = execute(operations[noise.below(4)], srqn, &payload);
                if noise.below(4) == 0 {
                    // Whatever that opcode needs behind its headers is what lies there.
                    message[OPCODE] = message[OPCODE] & 0xe0 | noise.below(32) as u8;
                }
                if noise.below(4) == 0 {
                    message.truncate(1 + noise.below(message.len()));
                }
                message
            }
        };
        if noise.below(4) == 0 {
            let at = noise.below(message.len());
            message[at] ^= 1 << noise.below(8);
        }
        if !peer.say(&message, file) || noise.below(50) == 0 {
            peer = Stranger::connect(&path);
        }
        peer.ignore();
        if round % 64 == 0 {
            owner.completed();
            owner.post_all();
        }
    }
    drop(peer);
    // What its targets held is free again, when their end was heard.
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        owner.completed();
        owner.post_all();
        let probe = Stranger::connect(&path);
        assert!(probe.say(&words(JOIN, &[9]), Some(&file)));
        let send = execute(Operation::SendOnly, srqn, b"probe");
        let taken = (0..=ROOM)
            .take_while(|_| {
                assert!(probe.say(&send, None));
                probe.hear()[9] == 0
            })
            .count();
        if taken == ROOM as usize {
            break;
        }
        assert!(Instant::now() < deadline, "{taken} receives are left");
    }
    owner.completed();
    owner.post_all();
    owner.works(&path, &file);
    let (before, after) = (
        &owner.buffer[..SLOT],
        &owner.buffer[(ROOM as usize + 1) * SLOT..],
    );
    assert!(before.iter().chain(after).all(|byte| *byte == 0xee));
    let _ = std::fs::remove_dir_all(&dir);
}
