//! Which process has which port of the RDMA port spaces: a table in a file beside the
//! [registry](crate::registry).
//!
//! The port spaces of the RDMA CM are their own: port 6379 of `RDMA_PS_TCP` and a TCP socket's port
//! 6379 have nothing to do with each other. So no socket can stand for a claim, and this table
//! does.
//!
//! # Which processes live
//! A claim names the first QPN range of its process, and counts while that range's lock is held.
//! There is no lock per port (the kernel keeps those of a file in one list, and searches it),
//! nothing that a killed process would have to clean up, and nothing that a forked child could
//! keep: the range's lock is all, and the child closes its copy of that. Before a range has a new
//! owner, what the last one left here is cleared away.
//!
//! # The file
//! A header and [`BUCKETS`] buckets of [`SLOTS`] slots; a claim lies in the bucket of its port, in
//! any slot. Changes to a bucket are made under a lock on a byte of the file, look-ups without one:
//! each slot carries a check sum, so that a slot which is being written is not taken for what it is
//! not. A slot is freed by its owner without the lock; nobody else writes it while the owner lives.
//! As the registry, the file is read and written and not mapped, and what is read is checked like a
//! packet.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rnic_wire::cm::{PortSpace, ServiceId};

use crate::registry::{LOCK_BASE, RANGES, Registry};
use rnic_sys::{self as sys, Fd};

mod census;
mod slot;
mod system;

pub use census::PortUse;
use slot::{SLOT_LEN, Slot};
use system::{Settings, System};

/// Buckets; a port lies in that of its low bits.
pub const BUCKETS: usize = 1024;
/// Most claims of the ports of one bucket, all port spaces together.
pub const SLOTS: usize = 128;

/// Ports of a bucket.
const ROWS: usize = 65536 / BUCKETS;
const MAGIC: [u8; 8] = *b"rnicPRT1";
const BUCKET_LEN: usize = SLOTS * SLOT_LEN;
const HEADER_LEN: usize = BUCKET_LEN;
const FILE_LEN: usize = HEADER_LEN + BUCKETS * BUCKET_LEN;
/// Read at once when all is looked through.
const PIECE_LEN: usize = 16 * BUCKET_LEN;
/// How long a process that opens the table waits for another process that changes the same bucket,
/// which takes it microseconds unless it is stopped just then.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a claim waits for it: its caller may have locks that others want.
const BRIEFLY: Duration = Duration::from_micros(200);

/// How a port is claimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BindFlags {
    /// `RDMA_OPTION_ID_REUSEADDR`: others that say the same may have the port too, until somebody
    /// listens.
    pub reuse_addr: bool,
    /// `RDMA_OPTION_ID_AFONLY`; `None`: IPv4 keeps to itself, IPv6 as `net.ipv6.bindv6only` says.
    pub af_only: Option<bool>,
}

/// The port table, as this process has it open. Calls may come from any thread, the engine's lock
/// is not needed.
#[derive(Clone, Debug)]
pub struct Ports(Arc<Table>);

#[derive(Debug)]
struct Table {
    file: Fd,
    /// Opened anew, not shared with the registry: its locks then show any process that has them,
    /// and a forked child that keeps this descriptor keeps no lock.
    registry: Fd,
    /// Held by a thread that changes the table, too: locks on the file do not tell the threads of a
    /// process apart.
    system: Mutex<System>,
    owner: u16,
    pid: u32,
}

/// A port that is claimed; dropping it gives the port back.
#[derive(Debug)]
pub struct PortClaim {
    table: Arc<Table>,
    slot: Slot,
    /// Place of the slot in the table.
    place: u32,
}

/// A bucket, read.
struct Bucket {
    number: usize,
    bytes: [u8; BUCKET_LEN],
}

impl Bucket {
    fn slots(&self) -> impl Iterator<Item = (u32, Option<Slot>)> {
        let first = (self.number * SLOTS) as u32;
        let (slots, _) = self.bytes.as_chunks::<SLOT_LEN>();
        (first..)
            .zip(slots)
            .map(|(place, bytes)| (place, Slot::decode(bytes, place)))
    }

    fn claims(&self) -> impl Iterator<Item = (u32, Slot)> {
        self.slots()
            .filter_map(|(place, slot)| Some((place, slot?)))
    }

    fn claims_of(&self, service: u32) -> impl Iterator<Item = (u32, Slot)> {
        let first = (self.number * SLOTS) as u32;
        let (slots, _) = self.bytes.as_chunks::<SLOT_LEN>();
        (first..)
            .zip(slots)
            .filter(move |(_, bytes)| Slot::service_in(bytes) == service)
            .filter_map(|(place, bytes)| Some((place, Slot::decode(bytes, place)?)))
    }
}

/// A bucket's lock, held.
struct Locked<'a> {
    table: &'a Table,
    number: usize,
    /// Given back after the lock on the file.
    _system: MutexGuard<'a, System>,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        sys::unlock_byte(&self.table.file, lock_of(self.number));
    }
}

fn lock_of(bucket: usize) -> u64 {
    LOCK_BASE + bucket as u64
}

fn bucket_of(port: u16) -> usize {
    usize::from(port) % BUCKETS
}

/// Which of the bucket's ports.
fn row_of(port: u16) -> usize {
    usize::from(port) / BUCKETS
}

fn offset_of(place: u32) -> u64 {
    (HEADER_LEN + SLOT_LEN * place as usize) as u64
}

fn place_at(offset: u64) -> u32 {
    ((offset - HEADER_LEN as u64) / SLOT_LEN as u64) as u32
}

fn errno(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

/// Asks once per owner and call whether it lives.
struct Living<'a> {
    table: &'a Table,
    known: smallvec::SmallVec<[(u16, bool); 8]>,
}

impl Living<'_> {
    fn is_alive(&mut self, owner: u16) -> bool {
        if let Some((_, alive)) = self.known.iter().find(|(known, _)| *known == owner) {
            return *alive;
        }
        let alive = self.table.is_alive(owner.into());
        self.known.push((owner, alive));
        alive
    }
}

impl Ports {
    /// Opens the table beside `registry`, whose lock is held; `owner`: this process's first range.
    pub fn open(registry: &Registry, owner: u32) -> io::Result<Ports> {
        let flags = libc::O_RDWR | libc::O_CREAT;
        let file = sys::open_at(Some(registry.dir()), c"ports", flags, 0o600)?;
        let mut magic = [0; MAGIC.len()];
        sys::read_at(&file, &mut magic, 0)?;
        // What a file with another header contains need not be cleared: it is no slot, or a good
        // one.
        if magic != MAGIC || sys::stat(&file)?.size != FILE_LEN as u64 {
            sys::truncate(&file, FILE_LEN as u64)?;
            sys::write_at(&file, &MAGIC, 0)?;
        }
        Ok(Ports(Arc::new(Table {
            file,
            registry: registry.reopen()?,
            system: Mutex::default(),
            owner: owner as u16,
            pid: std::process::id(),
        })))
    }

    /// Claims `addr`'s port in `space` for that address, or an ephemeral one
    /// (`net.ipv4.ip_local_port_range`) that nobody has for any address if its port is 0. Where the
    /// search for that begins, `random` says.
    ///
    /// # Errors
    /// As Linux's RDMA CM: EADDRINUSE: the port is taken for that address; EADDRNOTAVAIL: the port
    /// is taken for all addresses, or wanted for all and taken for some, or no ephemeral port is
    /// free; EACCES: a privileged port; ENOMEM: the table has no room for one more claim of a port
    /// like this; ENODEV: in a forked child. EBUSY: another process changes the table, which takes
    /// microseconds as a rule; it goes the next time, or that process is stopped.
    pub fn bind(
        &self,
        space: PortSpace,
        addr: SocketAddr,
        flags: BindFlags,
        random: impl FnOnce() -> u64,
    ) -> io::Result<PortClaim> {
        let table = &self.0;
        table.check_process()?;
        let ip = addr.ip().to_canonical();
        let settings = table.settings();
        let af_only = flags
            .af_only
            .unwrap_or_else(|| ip.is_ipv4() || settings.v6_only);
        let mut slot = Slot {
            service: service(space, addr.port()),
            addr: ip,
            scope: match addr {
                SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => v6.scope_id(),
                _ => 0,
            },
            owner: table.owner,
            reuse: flags.reuse_addr,
            af_only,
            listening: false,
        };
        let place = if addr.port() == 0 {
            table.claim_any(&mut slot, &settings.ephemeral, random())?
        } else if settings.may_claim(addr.port()) {
            table.claim(&slot)?
        } else {
            return Err(errno(libc::EACCES));
        };
        Ok(PortClaim {
            table: table.clone(),
            slot,
            place,
        })
    }

    /// The process (its first range) that takes requests for `service` at `addr`; without an
    /// address, at any.
    pub fn listener_of(&self, service: ServiceId, addr: Option<IpAddr>) -> Option<u32> {
        let service = u32::try_from(service.0).ok()?;
        let addr = addr.map(|addr| addr.to_canonical());
        let bucket = self.0.read(bucket_of(service as u16)).ok()?;
        let mut living = self.0.living();
        bucket
            .claims_of(service)
            .find(|(_, slot)| slot.takes(service, addr) && living.is_alive(slot.owner))
            .map(|(_, slot)| slot.owner.into())
    }

    /// The process that has this range lives; one system call.
    pub fn range_is_alive(&self, range: u32) -> bool {
        self.0.is_alive(range)
    }

    /// Clears what earlier owners of `range` left; to be done before its new owner opens the table
    /// to others.
    pub fn purge(&self, range: u32) -> io::Result<()> {
        let table = &*self.0;
        let mut piece = vec![0; PIECE_LEN];
        let mut at = HEADER_LEN as u64;
        // Most of the file is a hole.
        while let Some(data) = sys::next_data(&table.file, at)?.filter(|at| *at < FILE_LEN as u64) {
            at = data - data % BUCKET_LEN as u64;
            let n = sys::read_at(&table.file, &mut piece, at)?;
            if n < SLOT_LEN {
                break;
            }
            let (slots, _) = piece[..n].as_chunks::<SLOT_LEN>();
            for (place, bytes) in (place_at(at)..).zip(slots) {
                let of_range = |slot: &Slot| u32::from(slot.owner) == range;
                if !Slot::decode(bytes, place).is_some_and(|slot| of_range(&slot)) {
                    continue;
                }
                let _locked = table.lock(place as usize / SLOTS, PATIENCE)?;
                // Somebody may have taken the place over meanwhile.
                if table.slot(place)?.is_some_and(|slot| of_range(&slot)) {
                    table.write(place, None)?;
                }
            }
            at += PIECE_LEN as u64;
        }
        Ok(())
    }

    /// Keeps cleaners of temporary folders away.
    pub fn touch(&self) {
        sys::touch(&self.0.file);
    }
}

fn service(space: PortSpace, port: u16) -> u32 {
    u32::from(space.code()) << 16 | u32::from(port)
}

impl Table {
    fn check_process(&self) -> io::Result<()> {
        if std::process::id() == self.pid {
            Ok(())
        } else {
            Err(errno(libc::ENODEV))
        }
    }

    fn is_alive(&self, range: u32) -> bool {
        // As the registry cannot be asked, everybody lives: nobody's port is taken away by mistake.
        range < RANGES
            && sys::byte_is_locked(&self.registry, LOCK_BASE + u64::from(range)).unwrap_or(true)
    }

    fn living(&self) -> Living<'_> {
        Living {
            table: self,
            known: smallvec::SmallVec::new(),
        }
    }

    /// A file that somebody cut short reads as free slots.
    fn read(&self, number: usize) -> io::Result<Bucket> {
        let mut bucket = Bucket {
            number,
            bytes: [0; BUCKET_LEN],
        };
        let offset = offset_of((number * SLOTS) as u32);
        sys::read_at(&self.file, &mut bucket.bytes, offset)?;
        Ok(bucket)
    }

    fn slot(&self, place: u32) -> io::Result<Option<Slot>> {
        let mut bytes = [0; SLOT_LEN];
        sys::read_at(&self.file, &mut bytes, offset_of(place))?;
        Ok(Slot::decode(&bytes, place))
    }

    fn write(&self, place: u32, slot: Option<&Slot>) -> io::Result<()> {
        let bytes = slot.map_or([0; SLOT_LEN], |slot| slot.encode(place));
        sys::write_at(&self.file, &bytes, offset_of(place))?;
        Ok(())
    }

    fn system(&self) -> MutexGuard<'_, System> {
        // What it guards is whole whatever happened.
        self.system.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settings(&self) -> Settings {
        self.system().get()
    }

    /// Takes a bucket's lock, for which it waits at most `patience`: then EBUSY.
    fn lock(&self, number: usize, patience: Duration) -> io::Result<Locked<'_>> {
        let system = self.system();
        let mut start = None;
        while !sys::try_lock_byte(&self.file, lock_of(number))? {
            let waited = start.get_or_insert_with(Instant::now).elapsed();
            if waited >= patience {
                return Err(errno(libc::EBUSY));
            }
            // It is held for microseconds; if not, its holder waits for a core.
            if waited < Duration::from_micros(20) {
                std::thread::yield_now();
            } else {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        Ok(Locked {
            table: self,
            number,
            _system: system,
        })
    }

    /// Claims that port and no other; the place.
    fn claim(&self, slot: &Slot) -> io::Result<u32> {
        let locked = self.lock(bucket_of(slot.service as u16), BRIEFLY)?;
        let bucket = self.read(locked.number)?;
        self.check(&bucket, slot, None)?;
        self.put(&bucket, slot)
    }

    /// The errno of [`Collision`](slot::Collision) if `slot` collides with anything alive that does
    /// not stand in the place `but`. Where several share the port, the same address counts for more
    /// than a wildcard (Linux asks the one that came last).
    fn check(&self, bucket: &Bucket, slot: &Slot, but: Option<u32>) -> io::Result<()> {
        let mut living = self.living();
        let collision = bucket
            .claims_of(slot.service)
            .filter(|(place, _)| Some(*place) != but)
            .filter_map(|(_, other)| Some((slot.collision(&other)?, other.owner)))
            .filter(|(_, owner)| living.is_alive(*owner))
            .map(|(collision, _)| collision)
            .max();
        collision.map_or(Ok(()), |collision| Err(errno(collision.errno())))
    }

    /// Writes the claim to a place that is free, or whose owner is dead.
    fn put(&self, bucket: &Bucket, slot: &Slot) -> io::Result<u32> {
        let mut living = self.living();
        let free = bucket.slots().find(|(_, there)| there.is_none());
        let (place, _) = free
            .or_else(|| {
                let mut slots = bucket.slots();
                slots.find(|(_, there)| there.is_none_or(|there| !living.is_alive(there.owner)))
            })
            .ok_or_else(|| errno(libc::ENOMEM))?;
        self.write(place, Some(slot))?;
        Ok(place)
    }

    /// Chooses a port that nobody has for any address.
    fn claim_any(
        &self,
        slot: &mut Slot,
        range: &RangeInclusive<u16>,
        random: u64,
    ) -> io::Result<u32> {
        let (first, turn) = (random as usize % BUCKETS, (random >> 32) as usize % ROWS);
        let space = slot.service & 0xffff_0000;
        let buckets = (0..BUCKETS)
            .map(|i| (first + i) % BUCKETS)
            .filter(|number| free_port(*number, 0, range, 0).is_some());
        // First whatever is free at once; then the dead make room, and others' locks are waited
        // for.
        for patience in [Duration::ZERO, BRIEFLY] {
            let thorough = !patience.is_zero();
            for number in buckets.clone() {
                let _locked = match self.lock(number, patience) {
                    Err(e) if e.raw_os_error() == Some(libc::EBUSY) && !thorough => continue,
                    locked => locked?,
                };
                let bucket = self.read(number)?;
                let mut living = self.living();
                let used = bucket
                    .claims()
                    .filter(|(_, other)| other.service & 0xffff_0000 == space)
                    .filter(|(_, other)| !thorough || living.is_alive(other.owner))
                    .fold(0, |used, (_, other)| {
                        used | 1 << row_of(other.service as u16)
                    });
                let Some(port) = free_port(number, used, range, turn) else {
                    continue;
                };
                slot.service = space | u32::from(port);
                match self.put(&bucket, slot) {
                    Err(e) if e.raw_os_error() == Some(libc::ENOMEM) => {}
                    done => return done,
                }
            }
        }
        Err(errno(libc::EADDRNOTAVAIL))
    }
}

/// A port of the bucket that is in `range` and not `used` (a bit for each row); the search starts
/// at row `turn`.
fn free_port(bucket: usize, used: u64, range: &RangeInclusive<u16>, turn: usize) -> Option<u16> {
    (0..ROWS)
        .map(|i| (turn + i) % ROWS)
        .filter(|row| used >> row & 1 == 0)
        .map(|row| (row * BUCKETS + bucket) as u16)
        .find(|port| range.contains(port))
}

impl PortClaim {
    /// The address, with the port that was chosen.
    pub fn addr(&self) -> SocketAddr {
        let port = self.slot.service as u16;
        match self.slot.addr {
            IpAddr::V6(v6) => std::net::SocketAddrV6::new(v6, port, 0, self.slot.scope).into(),
            ip => SocketAddr::new(ip, port),
        }
    }

    /// From now on [`Ports::listener_of`] finds this process; nobody else can have the port for
    /// this address any more, whatever it allows.
    ///
    /// # Errors
    /// EADDRINUSE, EADDRNOTAVAIL: others have it, as both allowed. ENODEV: in a forked child.
    /// EBUSY: as [`Ports::bind`].
    pub fn listen(&mut self) -> io::Result<()> {
        self.change(Slot {
            listening: true,
            reuse: false,
            ..self.slot
        })
    }

    /// `RDMA_OPTION_ID_REUSEADDR` of a port that is claimed already.
    ///
    /// # Errors
    /// EINVAL: it is listened on, or shared and shall not be. EBUSY: as [`Ports::bind`].
    pub fn set_reuse_addr(&mut self, reuse: bool) -> io::Result<()> {
        if self.slot.listening {
            return Err(errno(libc::EINVAL));
        }
        let changed = self.change(Slot { reuse, ..self.slot });
        changed.map_err(|e| match e.raw_os_error() {
            Some(libc::EADDRINUSE | libc::EADDRNOTAVAIL) => errno(libc::EINVAL),
            _ => e,
        })
    }

    fn change(&mut self, slot: Slot) -> io::Result<()> {
        let table = &*self.table;
        table.check_process()?;
        let locked = table.lock(bucket_of(slot.service as u16), BRIEFLY)?;
        let bucket = table.read(locked.number)?;
        table.check(&bucket, &slot, Some(self.place))?;
        let own = bucket.claims().find(|(place, _)| *place == self.place);
        if own == Some((self.place, self.slot)) {
            table.write(self.place, Some(&slot))?;
        } else {
            // Somebody spoilt the file.
            self.place = table.put(&bucket, &slot)?;
        }
        self.slot = slot;
        Ok(())
    }
}

impl Drop for PortClaim {
    fn drop(&mut self) {
        // In a forked child it is the parent's.
        if self.table.check_process().is_ok()
            && let Ok(Some(there)) = self.table.slot(self.place)
            && there == self.slot
        {
            let _ = self.table.write(self.place, None);
        }
    }
}

#[cfg(test)]
mod tests;
