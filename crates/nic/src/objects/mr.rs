//! Memory regions: registration, re-registration, advice.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::driving::NoKey;
use crate::engine::Uses;
use crate::error::{Error, Result};
use crate::memory::pieces::DmShared;
use crate::memory::{Access, RegionSpec, WindowsBound, access};
use crate::objects::dm::Dm;
use crate::objects::pd::Pd;
use crate::observe::{self, lint};
use crate::queues::usage;
use rnic_settings::GuardedMemory;
use rnic_sys::{Lack, Mapping};

const REG: &str = "ibv_reg_mr";
pub(crate) const REG_DMABUF: &str = "ibv_reg_dmabuf_mr";
pub(crate) const PAGE: u64 = 4096;

/// What of a region [`Mr::rereg`] changes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rereg<'a> {
    /// Another protection domain.
    pub pd: Option<&'a Pd>,
    /// Other memory: address and length. The address is also what work requests use.
    pub translation: Option<(*mut u8, usize)>,
    /// Other rights.
    pub access: Option<Access>,
}

/// What became of a region that could not be re-registered.
#[derive(Clone, Debug)]
pub enum ReregError {
    /// It is as it was.
    Unchanged(Error),
    /// Its keys open nothing any more; it can only be deregistered.
    Lost(Error),
}

/// What a program expects to do with memory soon (`ibv_advise_mr(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Read.
    Prefetch,
    /// Write.
    PrefetchWrite,
    /// Use what is present; nothing is to be fetched.
    PrefetchNoFault,
}

impl Pd {
    /// Registers memory; `iova` is the address by which work requests and peers name its first
    /// byte. With [`Access::ON_DEMAND`] nothing needs to be mapped yet, and `addr` NULL with `len`
    /// `usize::MAX` stands for the whole address space, whatever is mapped there at the time of an
    /// access.
    ///
    /// # Errors
    /// EINVAL: remote write or atomic access without LOCAL_WRITE, FLUSH_PERSISTENT of memory that
    /// is no file's, address overflow, unknown flags, `iova` at another place of its page than
    /// `addr`, no bytes at the start of a page. EFAULT: the range is not mapped, or not writable
    /// although write access is asked for. ENOMEM: no key is left, or the pages that are not there
    /// yet need more memory than the machine has.
    ///
    /// # Safety
    /// Without [`Access::ON_DEMAND`], `[addr, addr + len)` stays mapped until the region is
    /// deregistered or dropped. In any case whoever holds references into it accepts that the NIC
    /// reads and (if `access` has a write right) writes it at any time until then.
    pub unsafe fn reg_mr(
        &self,
        addr: *mut u8,
        len: usize,
        iova: u64,
        access: Access,
    ) -> Result<Mr> {
        let source = Source {
            addr: addr as usize,
            len,
            iova,
        };
        let spec = specify(self, source, access)?;
        // SAFETY: the caller's promise, kept until `remove` in `Mr`'s drop.
        unsafe { self.enter(spec, source, access, Kind::Memory) }
    }

    /// The same for a mapping of our own.
    ///
    /// # Safety
    /// `[addr, addr + len)` lies in the mapping, which has the rights of `access`.
    pub(crate) unsafe fn reg_mapping(
        &self,
        addr: *mut u8,
        len: usize,
        iova: u64,
        access: Access,
        mapping: Mapping,
    ) -> Result<Mr> {
        let source = Source {
            addr: addr as usize,
            len,
            iova,
        };
        let spec = specify(self, source, access)?;
        // SAFETY: by contract; `Mr` keeps the mapping.
        unsafe { self.enter(spec, source, access, Kind::Mapped(mapping)) }
    }

    /// Registers a part of device memory. Its addresses count from 0 at `offset`, as ZERO_BASED
    /// says, which `ibv_reg_dm_mr(3)` asks for.
    ///
    /// # Errors
    /// EINVAL: without ZERO_BASED, with rights that device memory has no use for, or a range that
    /// leaves it.
    pub fn reg_dm_mr(&self, dm: &Dm, offset: u64, len: usize, access: Access) -> Result<Mr> {
        const VERB: &str = "ibv_reg_dm_mr";
        let wanted = access::mandatory(access);
        let unfit =
            Access::ON_DEMAND | Access::HUGETLB | Access::MW_BIND | Access::FLUSH_PERSISTENT;
        if access::unknown(wanted) != 0
            || wanted.intersects(unfit)
            || access::writes_without_local_write(wanted)
            || !wanted.contains(Access::ZERO_BASED)
        {
            return Err(Error::invalid(
                VERB,
                format!(
                    "access flags {:#x}: device memory is ZERO_BASED, with the rights to read, write and execute atomics",
                    access.0
                ),
            ));
        }
        if !dm.shared.contains(offset, len as u64) {
            return Err(Error::invalid(
                VERB,
                format!("{offset}..+{len} leaves the {} bytes", dm.len()),
            ));
        }
        self.check_same_context(VERB, dm.context().id())?;
        let base = dm.shared.address().ok_or_else(|| {
            Error::new(
                VERB,
                libc::EOPNOTSUPP,
                "device memory of another process: import a region of it",
            )
        })?;
        let spec = RegionSpec {
            pd: self.shared.id,
            base: base + offset as usize,
            len: len as u64,
            iova: 0,
            access: wanted,
            paged: false,
        };
        let source = Source {
            addr: 0,
            len,
            iova: 0,
        };
        // SAFETY: `Mr` keeps the device memory until the key is removed.
        unsafe { self.enter(spec, source, access, Kind::Device(dm.shared.clone())) }
    }

    /// A region of any length at any address, for local work requests: it reads as zeros and
    /// swallows what is written.
    ///
    /// # Errors
    /// ENOMEM: no key is left.
    pub fn alloc_null_mr(&self) -> Result<Mr> {
        let nic = &self.context().shared.nic;
        nic.check_alive("ibv_alloc_null_mr")?;
        let key = nic.enter_null_region(self.shared.id);
        let source = Source {
            addr: 0,
            len: 0,
            iova: 0,
        };
        self.hand_out(key, source, Access::LOCAL_WRITE, Kind::Null)
    }

    /// # Safety
    /// As `MemoryTable::insert`, until the region is dropped; `kind` may keep what `spec` names.
    unsafe fn enter(
        &self,
        spec: RegionSpec,
        source: Source,
        access: Access,
        kind: Kind,
    ) -> Result<Mr> {
        let nic = &self.context().shared.nic;
        nic.check_alive(REG)?;
        if nic.guarded_memory() == GuardedMemory::Handler {
            rnic_sys::guarded::watch();
        }
        // SAFETY: by contract.
        let key = unsafe { nic.enter_region(spec) };
        self.hand_out(key, source, access, kind)
    }

    fn hand_out(
        &self,
        key: std::result::Result<u32, NoKey>,
        source: Source,
        access: Access,
        kind: Kind,
    ) -> Result<Mr> {
        let key = key.map_err(|NoKey(why)| Error::new(REG, libc::ENOMEM, why))?;
        if lint::is_on() && is_locked(access, &kind) {
            lint::registered(source.addr, source.len);
        }
        usage::registered(source.len);
        self.shared.users.fetch_add(1, Ordering::AcqRel);
        Ok(Mr {
            pd: self.clone(),
            key,
            source,
            access: access::mandatory(access),
            kind,
            registered: true,
            kept: false,
        })
    }

    /// Key and length of the region of this domain with that index, the upper 24 bits of its keys.
    /// If the domain is an import from another process, so is the region then: local work requests
    /// and peers reach that process's memory by it, until the region is deregistered there. Atomics
    /// and windows are refused.
    ///
    /// # Errors
    /// ENOENT: there is none. ENODEV: its process is gone, ETIMEDOUT: or does not answer. EBUSY:
    /// its key is another region's here. ENOMEM: too many imports.
    pub fn find_mr(&self, index: u32) -> Result<(u32, u64)> {
        const VERB: &str = "ibv_import_mr";
        let nic = &self.context().shared.nic;
        nic.check_alive(VERB)?;
        if self.is_foreign()
            && let Some(origin) = self.context().origin()
        {
            return origin.import_mr(nic, self.shared.id, self.number(), index);
        }
        let found = nic.lock().memory.find_region(self.shared.id, index);
        found.ok_or_else(|| Error::new(VERB, libc::ENOENT, "the domain has no such region"))
    }

    /// Ends the use of what [`Pd::find_mr`] has found.
    pub fn forget_mr(&self, key: u32) {
        if self.is_foreign()
            && let Some(origin) = self.context().origin()
        {
            origin.unimport_mr(&self.context().shared.nic, key);
        }
    }

    /// Brings the pages of on-demand regions into memory, entry by entry: lkey, address, length.
    ///
    /// With `flush` the pages are there on return, or it fails; without, it is a hint, and what
    /// cannot be fetched is met by whoever accesses it.
    ///
    /// # Errors
    /// ENOENT: no on-demand region has that lkey. EINVAL: it is a window's. EPERM: the region
    /// belongs to another domain, or may not be written although the advice says so. EFAULT: the
    /// range leaves it, or (with `flush`) part of it is not mapped. ENOMEM (with `flush`).
    pub fn advise(&self, advice: Advice, flush: bool, list: &[(u32, u64, u32)]) -> Result<()> {
        const VERB: &str = "ibv_advise_mr";
        let nic = &self.context().shared.nic;
        nic.check_alive(VERB)?;
        let write = advice == Advice::PrefetchWrite;
        let ranges: Vec<Range<usize>> = {
            let engine = nic.lock();
            list.iter()
                .map(|&(lkey, addr, len)| {
                    engine
                        .memory
                        .paged_range(self.shared.id, lkey, addr, u64::from(len), write)
                        .map_err(|refused| {
                            Error::new(VERB, refused.errno(), format!("lkey {lkey:#x}: {refused}"))
                        })
                })
                .collect::<Result<_>>()?
        };
        if advice == Advice::PrefetchNoFault {
            return Ok(());
        }
        for range in ranges {
            let fetched = rnic_sys::populate(range.start, range.len(), write);
            if flush && let Err(errno) = fetched {
                return Err(Error::new(
                    VERB,
                    errno,
                    match errno {
                        libc::ENOMEM => format!("{range:#x?} needs more memory than is left"),
                        _ => format!("{range:#x?} {}", lacks(range.start, range.len(), write)),
                    },
                ));
            }
        }
        Ok(())
    }
}

/// What a program registers.
#[derive(Clone, Copy, Debug)]
struct Source {
    addr: usize,
    len: usize,
    iova: u64,
}

/// What memory lacks that cannot be had with these rights.
fn lacks(start: usize, len: usize, write: bool) -> &'static str {
    match rnic_sys::lack(start, len, write) {
        Some(Lack::Mapping) => "is not all mapped",
        Some(Lack::Reading) => "is mapped in part without the right to read it",
        Some(Lack::Writing) => "is mapped read-only in part, and the NIC is to write there",
        Some(Lack::Pages) | None => "is not all memory that the kernel has pages for",
    }
}

/// Checks a registration and makes its pages present, unless they are to come on demand.
fn specify(pd: &Pd, source: Source, access: Access) -> Result<RegionSpec> {
    let Source {
        addr: start,
        len,
        iova,
    } = source;
    let access = access::mandatory(access);
    if access::unknown(access) != 0 {
        return Err(Error::invalid(
            REG,
            format!("unknown access flags {:#x}", access::unknown(access)),
        ));
    }
    if access::writes_without_local_write(access) {
        return Err(Error::invalid(
            REG,
            "REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE as well",
        ));
    }
    let paged = access.contains(Access::ON_DEMAND);
    let implicit = start == 0 && len == usize::MAX;
    let iova = match access.contains(Access::ZERO_BASED) {
        true => 0,
        false => iova,
    };
    if implicit {
        if !paged || access.contains(Access::HUGETLB) || iova != 0 {
            return Err(Error::invalid(
                REG,
                "the whole address space can be registered only with ON_DEMAND, without HUGETLB and at its own addresses",
            ));
        }
    } else {
        if start.checked_add(len).is_none() || iova.checked_add(len as u64).is_none() {
            return Err(Error::invalid(REG, "the range leaves the address space"));
        }
        if !access.contains(Access::ZERO_BASED) && iova % PAGE != start as u64 % PAGE {
            return Err(Error::invalid(
                REG,
                format!("iova {iova:#x} lies at another place of its page than {start:#x}"),
            ));
        }
        // As the kernel counts: from the page of the first byte to that of the last.
        if len == 0 && (start as u64).is_multiple_of(PAGE) {
            return Err(Error::invalid(REG, "no bytes, so no page"));
        }
    }
    if access.contains(Access::FLUSH_PERSISTENT) && (paged || !rnic_sys::is_shared_file(start, len))
    {
        return Err(Error::invalid(
            REG,
            "FLUSH_PERSISTENT: only pinned shared mappings of files with a name outlast the process (mmap(2), MAP_SHARED)",
        ));
    }
    if !paged {
        rnic_sys::populate(start, len, access.contains(Access::LOCAL_WRITE)).map_err(|errno| {
            let why = match errno {
                libc::ENOMEM => "needs more memory than the machine has left",
                _ => lacks(start, len, access.contains(Access::LOCAL_WRITE)),
            };
            Error::new(REG, errno, format!("{start:#x}..+{len} {why}"))
        })?;
    }
    Ok(RegionSpec {
        pd: pd.shared.id,
        base: start,
        len: len as u64,
        iova,
        access,
        paged: paged || pd.context().shared.nic.guarded_memory() == GuardedMemory::Kernel,
    })
}

#[derive(Debug)]
enum Kind {
    Memory,
    /// Keeps the device memory while the region stands.
    Device(#[allow(dead_code, reason = "held")] Arc<DmShared>),
    /// Keeps the mapping while the region stands.
    Mapped(#[allow(dead_code, reason = "held")] Mapping),
    Null,
}

/// A memory region. Deregistered when dropped, along with the windows that are bound to it.
#[derive(Debug)]
pub struct Mr {
    pd: Pd,
    key: u32,
    source: Source,
    access: Access,
    kind: Kind,
    registered: bool,
    /// It has ended, and its memory may be used for ever.
    kept: bool,
}

impl Mr {
    /// Key for local work requests.
    pub fn lkey(&self) -> u32 {
        self.key
    }

    /// Key for peers.
    pub fn rkey(&self) -> u32 {
        self.key
    }

    /// Address of the first byte as work requests name it.
    pub fn addr(&self) -> u64 {
        self.source.iova
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.source.len
    }

    /// No bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its protection domain.
    pub fn pd(&self) -> &Pd {
        &self.pd
    }

    /// Changes it in place: the keys stay (`ibv_rereg_mr(3)`).
    ///
    /// # Errors
    /// EBUSY while windows are bound to it, EINVAL for regions of no memory of the program:
    /// unchanged. As [`Pd::reg_mr`] for what is new: lost.
    ///
    /// # Safety
    /// As [`Pd::reg_mr`] of what it is afterwards. The promise of before ends when this returns,
    /// but not if the region is unchanged.
    pub unsafe fn rereg(&mut self, change: Rereg<'_>) -> std::result::Result<(), ReregError> {
        const VERB: &str = "ibv_rereg_mr";
        let unchanged = |error| Err(ReregError::Unchanged(error));
        if !matches!(self.kind, Kind::Memory) {
            return unchanged(Error::invalid(
                VERB,
                "only regions of the program's own memory can be registered anew",
            ));
        }
        let pd = change.pd.unwrap_or(&self.pd).clone();
        if let Err(error) = self.pd.check_same_context(VERB, pd.context().id()) {
            return unchanged(error);
        }
        let nic = self.pd.context().shared.nic.clone();
        if let Err(error) = nic.check_alive(VERB) {
            return unchanged(error);
        }
        if let Err(bound) = nic.windows_bound(self.key) {
            return unchanged(busy(VERB, bound));
        }
        let access = change.access.unwrap_or(self.access);
        let source = match change.translation {
            Some((addr, len)) => Source {
                addr: addr as usize,
                len,
                iova: addr as u64,
            },
            None => self.source,
        };
        let spec = match specify(&pd, source, access) {
            Ok(spec) => spec,
            Err(error) => {
                // A bind that was posted before may have been done meanwhile.
                return match nic.disable_region(self.key) {
                    Ok(uses) => {
                        uses.wait();
                        Err(ReregError::Lost(error))
                    }
                    Err(bound) => unchanged(busy(VERB, bound)),
                };
            }
        };
        // SAFETY: the caller's promise.
        let uses = match unsafe { nic.change_region(self.key, spec) } {
            Ok(uses) => uses,
            Err(bound) => return unchanged(busy(VERB, bound)),
        };
        if !uses.wait() {
            // Nothing of what it is now was granted for long.
            let _ = nic.disable_region(self.key).map(Uses::wait);
            return Err(ReregError::Lost(in_use(VERB)));
        }
        pd.shared.users.fetch_add(1, Ordering::AcqRel);
        self.pd.shared.users.fetch_sub(1, Ordering::AcqRel);
        if lint::is_on() && is_locked(self.access, &self.kind) {
            lint::unregistered(self.source.addr, self.source.len);
        }
        if lint::is_on() && is_locked(access, &self.kind) {
            lint::registered(source.addr, source.len);
        }
        self.pd = pd;
        self.source = source;
        self.access = access::mandatory(access);
        Ok(())
    }

    /// Deregisters: on return no copy in flight can touch the memory.
    ///
    /// # Errors
    /// EBUSY: windows are bound to it, and it is as it was; or a process of this host was stopped
    /// in the middle of an RDMA operation on it: then nobody begins another one, and it can be
    /// tried again.
    pub fn try_deregister(&mut self) -> Result<()> {
        const VERB: &str = "ibv_dereg_mr";
        let nic = &self.pd.context().shared.nic;
        // In a forked child the table is a dead copy.
        if self.registered && nic.check_alive(VERB).is_ok() {
            let facts = nic.region_facts(self.key);
            let disabled = nic.disable_region(self.key);
            if !disabled.map_err(|bound| busy(VERB, bound))?.wait() {
                return Err(in_use(VERB));
            }
            nic.remove_region(self.key);
            observe::deregistered(self.key, facts);
        }
        self.released();
        Ok(())
    }

    /// Deregisters, along with the windows that are bound to it.
    pub fn deregister(self) {}

    /// The same, and says whether the memory is free: false if a process of this host was stopped
    /// in the middle of an RDMA operation on it, which may go on some day. Then the memory has to
    /// stay for ever, whenever this is asked again.
    #[must_use = "the memory may still be in use"]
    pub fn end(&mut self) -> bool {
        let nic = &self.pd.context().shared.nic;
        let mut over = !self.kept;
        if self.registered && nic.check_alive("ibv_dereg_mr").is_ok() {
            observe::deregistered(self.key, nic.region_facts(self.key));
            let uses = nic.disable_region_and_windows(self.key);
            nic.remove_region(self.key);
            over = uses.wait();
            self.kept = !over;
            if !over {
                // Memory of ours stays.
                std::mem::forget(std::mem::replace(&mut self.kind, Kind::Null));
            }
        }
        self.released();
        over
    }

    fn released(&mut self) {
        if std::mem::take(&mut self.registered) {
            usage::deregistered();
            if lint::is_on() && is_locked(self.access, &self.kind) {
                lint::unregistered(self.source.addr, self.source.len);
            }
            self.pd.shared.users.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Hardware would lock the pages.
fn is_locked(access: Access, kind: &Kind) -> bool {
    matches!(kind, Kind::Memory) && !access.contains(Access::ON_DEMAND)
}

fn in_use(verb: &'static str) -> Error {
    Error::new(
        verb,
        libc::EBUSY,
        "a process of this host is stopped in the middle of an RDMA operation on it: nothing new begins, but that one may \
         go on",
    )
}

fn busy(verb: &'static str, WindowsBound(windows): WindowsBound) -> Error {
    Error::new(
        verb,
        libc::EBUSY,
        format!("{windows} memory windows are bound to it"),
    )
}

impl Drop for Mr {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
