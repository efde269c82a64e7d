//! Counts of how a program uses sockets, in a file that its processes share with `rnic advise`.
//!
//! The file is made with all its bytes, so that a mapping of it can raise no SIGBUS. Its first part
//! is a head for all processes; each process that uses a socket takes a part of its own. Words only
//! grow, and each is added to by one atomic instruction: no lock, no allocation, and nothing to
//! write at the end, which a killed process would not come to. A child that a process forks takes a
//! part of its own, and adds to its parent's if there is none left.
//!
//! Who reads takes the words for what they are: another process may have written anything there.

use std::ffi::CStr;
use std::io;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::Ordering;

use crate::raw::raw;
use crate::segment::Words;
use crate::{get_option, open_at};

/// Words of a part.
const WORDS: usize = 2048;
/// Bytes of a part.
const PART: usize = WORDS * 8;
/// Parts for processes. Those that find none are only counted.
pub const PARTS: usize = 256;
/// Bytes of the file.
pub const FILE: usize = PART * (1 + PARTS);
/// The first word of the file, and that of each layout.
const MARK: u64 = 0x726e_6963_7461_6c31;

/// Words of the head.
mod head {
    pub const MARK: usize = 0;
    /// Parts that were taken.
    pub const TAKEN: usize = 1;
    /// Processes that the recorder was loaded into.
    pub const PROCESSES: usize = 2;
}

/// Words of a part that are no lane's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Whole {
    Pid = 0,
    /// The name of the process, 16 bytes.
    Name = 1,
    /// When the part was taken, ns.
    Began = 3,
    /// When it last sent or received, ns.
    Last = 4,
    /// Calls of listen(2).
    Listens = 5,
    /// Calls of poll, select and epoll_wait.
    Waits = 6,
    /// Those of them that were not to wait.
    Looks = 7,
    /// Those that had nothing in the end.
    WaitsInVain = 8,
    /// Descriptors that they had to say something of.
    Ready = 9,
    /// Time in them, ns.
    WaitNs = 10,
    /// Connections that carried data and are open now.
    Open = 11,
    /// The most at once.
    MostOpen = 12,
    /// When it first sent or received, ns.
    First = 13,
    /// Processor time that it had used until then, ns.
    CpuBefore = 14,
    /// Sockets that stdio reads or writes, whose calls are not seen.
    Stdio = 15,
}

/// Whose bytes they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Lane {
    /// TCP connections that the process opened.
    Asks = 0,
    /// TCP connections that it accepted.
    Serves = 1,
    /// Datagrams.
    Datagrams = 2,
    /// Sockets of this host alone (AF_UNIX).
    Unix = 3,
}

impl Lane {
    /// All of them.
    pub const ALL: [Lane; 4] = [Lane::Asks, Lane::Serves, Lane::Datagrams, Lane::Unix];
}

/// Counts of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Count {
    /// Calls that had to come again (EAGAIN).
    Again = 0,
    /// Time in calls that sent, ns.
    SendNs = 1,
    /// Time in calls that received, ns.
    ReceiveNs = 2,
    /// Sockets that carried data.
    Sockets = 3,
    /// Those of them whose peer is on this host.
    Local = 4,
    /// Bytes of files that the kernel sent (sendfile).
    FileBytes = 5,
}

/// Histograms of a lane: a bucket for each power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Spread {
    /// Bytes of a call that sends.
    Sent = 0,
    /// Bytes of a call that receives.
    Received = 1,
    /// Bytes that went one way before something came the other way.
    TurnOut = 2,
    /// The same of what came.
    TurnIn = 3,
    /// From the end of a receive to the next send on the same socket, ns.
    Think = 4,
    /// From the beginning of a send to the end of the next receive on the same socket, ns.
    Answer = 5,
}

/// Buckets of a histogram: bucket n has the values of n bits.
pub const BUCKETS: usize = 48;
/// Histograms of a lane.
const SPREADS: usize = 6;
/// Where the first lane begins.
const LANES: usize = 16;
/// Words of a lane's counts.
const COUNTS: usize = 16;
/// Words of a lane.
const LANE: usize = COUNTS + SPREADS * (BUCKETS + 1);
const _: () = assert!(LANES + 4 * LANE <= WORDS);

/// The word of a lane's count.
const fn count_at(lane: Lane, count: Count) -> usize {
    LANES + lane as usize * LANE + count as usize
}

/// The first word of a histogram: its sum; the buckets are behind it.
const fn spread_at(lane: Lane, spread: Spread) -> usize {
    LANES + lane as usize * LANE + COUNTS + spread as usize * (BUCKETS + 1)
}

/// The bucket of a value.
pub fn bucket(value: u64) -> usize {
    ((u64::BITS - value.leading_zeros()) as usize).min(BUCKETS - 1)
}

/// The part of one process.
#[derive(Debug)]
pub struct Tally(Words);

impl Tally {
    /// Says that one more process has the recorder.
    ///
    /// # Errors
    /// The file is none of [`blank`].
    pub fn join(path: &CStr) -> io::Result<()> {
        let file = open_at(None, path, libc::O_RDWR, 0)?;
        let head = Tally::head(&file)?;
        add(&head, head::PROCESSES, 1);
        Ok(())
    }

    fn head(file: &crate::Fd) -> io::Result<Words> {
        // Its pages are there, so the mapping stays whole: it was made with all its bytes, in a
        // folder that is the user's alone.
        if crate::stat(file)?.size != FILE as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let head = Words::map(file, 0, PART)?;
        match head.word(head::MARK * 8).load(Ordering::Relaxed) {
            MARK => Ok(head),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Takes a part for this process.
    ///
    /// # Errors
    /// There is none left, or the file is none of [`blank`].
    pub fn take(path: &CStr) -> io::Result<Tally> {
        let file = open_at(None, path, libc::O_RDWR, 0)?;
        let head = Tally::head(&file)?;
        let mine = head.word(head::TAKEN * 8).fetch_add(1, Ordering::Relaxed);
        let mine = usize::try_from(mine).unwrap_or(PARTS);
        if mine >= PARTS {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let part = Tally(Words::map(&file, PART * (1 + mine), PART)?);
        part.add_whole(Whole::Pid, u64::from(std::process::id()));
        part.add_whole(Whole::Began, crate::now_ns());
        for (word, name) in [Whole::Name as usize, Whole::Name as usize + 1]
            .into_iter()
            .zip(own_name())
        {
            add(&part.0, word, name);
        }
        Ok(part)
    }

    /// Adds to a word that is no lane's.
    #[inline]
    pub fn add_whole(&self, word: Whole, amount: u64) {
        add(&self.0, word as usize, amount);
    }

    /// Says when something was last sent or received.
    #[inline]
    pub fn active(&self, now: u64) {
        (self.0.word(Whole::Last as usize * 8)).store(now, Ordering::Relaxed);
        let first = self.0.word(Whole::First as usize * 8);
        if first.load(Ordering::Relaxed) == 0 {
            self.is_first(now);
        }
    }

    #[cold]
    fn is_first(&self, now: u64) {
        let first = self.0.word(Whole::First as usize * 8);
        let order = Ordering::Relaxed;
        if first.compare_exchange(0, now, order, order).is_ok() {
            self.add_whole(Whole::CpuBefore, crate::process_cpu_ns());
        }
    }

    /// A connection carries its first data (1), or is closed (-1).
    pub fn opened(&self, more: i64) {
        let open = self.0.word(Whole::Open as usize * 8);
        let before = open.fetch_add(more as u64, Ordering::Relaxed);
        let now = before.wrapping_add(more as u64);
        // Forked children close what their parent goes on with.
        if (now as i64) > 0 {
            (self.0.word(Whole::MostOpen as usize * 8)).fetch_max(now, Ordering::Relaxed);
        }
    }

    /// Adds to a count of a lane.
    #[inline]
    pub fn add(&self, lane: Lane, count: Count, amount: u64) {
        add(&self.0, count_at(lane, count), amount);
    }

    /// Adds a value to a histogram.
    #[inline]
    pub fn note(&self, lane: Lane, spread: Spread, value: u64) {
        let at = spread_at(lane, spread);
        add(&self.0, at, value);
        add(&self.0, at + 1 + bucket(value), 1);
    }
}

#[inline]
fn add(words: &Words, word: usize, amount: u64) {
    words.word(word * 8).fetch_add(amount, Ordering::Relaxed);
}

/// The name that the kernel has for this process, as two words.
fn own_name() -> [u64; 2] {
    let mut name = [0u64; 2];
    // SAFETY: the kernel writes 16 bytes at most, which is the size of `name`; any bytes are words.
    let _ = unsafe {
        raw!(
            libc::SYS_prctl,
            libc::PR_GET_NAME,
            name.as_mut_ptr(),
            0,
            0,
            0
        )
    };
    name
}

/// What a descriptor is to the recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// TCP: its peer is on this host; the lower port is this side's, so that it serves, most likely.
    Tcp {
        /// The peer is on this host.
        local: bool,
        /// This side has the lower port.
        lower: bool,
    },
    /// A socket of datagrams.
    Datagrams {
        /// It is connected to an address of this host.
        local: bool,
    },
    /// A socket of this host alone.
    Unix,
    /// Anything else.
    Other,
}

/// Says what a descriptor is. It changes nothing, errno included.
pub fn carrier(number: RawFd) -> Carrier {
    if number < 0 {
        return Carrier::Other;
    }
    // SAFETY: the number is only used in calls that fail if it is no open descriptor.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    let of = |name| get_option(&fd, libc::SOL_SOCKET, name);
    let (Ok(family), Ok(kind)) = (of(libc::SO_DOMAIN), of(libc::SO_TYPE)) else {
        return Carrier::Other;
    };
    let local = || {
        let addresses = (rustix::net::getsockname(fd), rustix::net::getpeername(fd));
        let (Ok(own), Ok(Some(peer))) = addresses else {
            return None;
        };
        let of = |any: rustix::net::SocketAddrAny| std::net::SocketAddr::try_from(any).ok();
        Some((of(own)?, of(peer)?))
    };
    let same = |own: IpAddr, peer: IpAddr| own == peer || peer.to_canonical().is_loopback();
    match (family, kind) {
        (libc::AF_UNIX, _) => Carrier::Unix,
        (libc::AF_INET | libc::AF_INET6, libc::SOCK_STREAM) => match local() {
            Some((own, peer)) => Carrier::Tcp {
                local: same(own.ip(), peer.ip()),
                lower: own.port() < peer.port(),
            },
            None => Carrier::Tcp {
                local: false,
                lower: false,
            },
        },
        (libc::AF_INET | libc::AF_INET6, libc::SOCK_DGRAM) => Carrier::Datagrams {
            local: local().is_some_and(|(own, peer)| same(own.ip(), peer.ip())),
        },
        _ => Carrier::Other,
    }
}

/// The bytes of a file that nobody has counted in yet.
pub fn blank() -> Vec<u8> {
    let mut bytes = vec![0; FILE];
    bytes[..8].copy_from_slice(&MARK.to_ne_bytes());
    bytes
}

/// What one process counted.
#[derive(Clone, Debug)]
pub struct Counted(Vec<u64>);

/// What all processes counted.
#[derive(Clone, Debug, Default)]
pub struct AllCounted {
    /// Processes that the recorder was loaded into.
    pub processes: u64,
    /// Processes that used sockets and found no part.
    pub uncounted: u64,
    /// Those that used sockets.
    pub parts: Vec<Counted>,
}

/// Reads the bytes of a file.
pub fn read(bytes: &[u8]) -> AllCounted {
    let words: Vec<u64> = bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| u64::from_ne_bytes(*word))
        .collect();
    let mut parts = words.chunks_exact(WORDS);
    let head = parts.next().unwrap_or(&[0; WORDS]);
    let taken = head[head::TAKEN];
    let there = usize::try_from(taken).unwrap_or(PARTS).min(PARTS);
    AllCounted {
        processes: head[head::PROCESSES],
        uncounted: taken.saturating_sub(PARTS as u64),
        parts: parts
            .take(there)
            .map(|part| Counted(part.to_vec()))
            .collect(),
    }
}

impl Counted {
    /// From words that a test sets.
    pub fn empty() -> Counted {
        Counted(vec![0; WORDS])
    }

    /// The name of the process.
    pub fn name(&self) -> String {
        let at = Whole::Name as usize;
        let bytes: Vec<u8> = (self.0[at..at + 2].iter())
            .flat_map(|word| word.to_ne_bytes())
            .take_while(|byte| *byte != 0)
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// A word that is no lane's.
    pub fn whole(&self, word: Whole) -> u64 {
        self.0[word as usize]
    }

    /// A count of a lane.
    pub fn count(&self, lane: Lane, count: Count) -> u64 {
        self.0[count_at(lane, count)]
    }

    /// Sum and buckets of a histogram.
    pub fn spread(&self, lane: Lane, spread: Spread) -> (u64, &[u64]) {
        let at = spread_at(lane, spread);
        (self.0[at], &self.0[at + 1..at + 1 + BUCKETS])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: what one process adds is what another reads, and no two words are one.
    #[test]
    fn counts_arrive() {
        let path = std::env::temp_dir().join(format!("rnic-tally-{}", std::process::id()));
        std::fs::write(&path, blank()).unwrap();
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        Tally::join(&name).unwrap();
        let tally = Tally::take(&name).unwrap();
        let mut amount = 1;
        for lane in Lane::ALL {
            tally.add(lane, Count::FileBytes, amount);
            tally.note(lane, Spread::Answer, amount + 1);
            amount += 2;
        }
        tally.opened(1);
        tally.opened(-1);
        let all = read(&std::fs::read(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert_eq!((all.processes, all.uncounted, all.parts.len()), (1, 0, 1));
        let part = &all.parts[0];
        let mut amount = 1;
        for lane in Lane::ALL {
            assert_eq!(part.count(lane, Count::FileBytes), amount);
            let (sum, buckets) = part.spread(lane, Spread::Answer);
            assert_eq!((sum, buckets.iter().sum::<u64>()), (amount + 1, 1));
            assert_eq!(buckets[bucket(amount + 1)], 1);
            amount += 2;
        }
        assert_eq!(part.whole(Whole::MostOpen), 1);
        assert!(!part.name().is_empty());
    }

    /// Promise: a file of another kind is refused, and one that ends early is read as far as it
    /// goes.
    #[test]
    fn other_files_are_refused() {
        let path = std::env::temp_dir().join(format!("rnic-no-tally-{}", std::process::id()));
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        for content in [vec![], vec![0; FILE], blank()[..100].to_vec()] {
            std::fs::write(&path, &content).unwrap();
            assert!(Tally::take(&name).is_err());
            assert!(read(&content).parts.is_empty());
        }
        std::fs::remove_file(&path).unwrap();
        let mut many = blank();
        many[8..16].copy_from_slice(&u64::MAX.to_ne_bytes());
        assert_eq!(read(&many).parts.len(), PARTS);
    }

    #[test]
    fn values_have_buckets() {
        assert_eq!(
            [0, 1, 2, 3, 4, 1023, 1024].map(bucket),
            [0, 1, 2, 2, 3, 10, 11]
        );
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }
}
