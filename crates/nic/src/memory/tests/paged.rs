//! On-demand regions: what is mapped is reached, what is not is an error.

use rnic_transport::LocalFault;

use super::*;

const PAGE: usize = 4096;

/// Anonymous pages that a test maps and unmaps.
struct Pages(*mut u8, usize);

impl Pages {
    fn new(count: usize) -> Pages {
        // SAFETY: a fresh anonymous mapping.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                count * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        Pages(at.cast(), count)
    }

    fn protect(&self, page: usize, protection: i32) {
        // SAFETY: one page of the own mapping, which nobody has a reference into.
        let r = unsafe { libc::mprotect(self.0.add(page * PAGE).cast(), PAGE, protection) };
        assert_eq!(r, 0);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the own mapping.
        unsafe { libc::munmap(self.0.cast(), self.1 * PAGE) };
    }
}

fn paged(base: usize, len: u64, iova: u64) -> (MemoryTable, u32) {
    let mut table = MemoryTable::default();
    let spec = RegionSpec {
        pd: PD,
        base,
        len,
        iova,
        access: ALL | Access::ON_DEMAND,
        paged: true,
    };
    // SAFETY: a paged region; the tests access what they own.
    let key = unsafe { table.insert(spec) }.unwrap();
    (table, key)
}

#[test]
fn copies_like_any_region_where_pages_are() {
    let mut buffer = [0u8; 96];
    let (table, key) = paged(buffer.as_mut_ptr() as usize, 96, 0x1000);
    for at in 24..32u64 {
        for len in 0..40usize {
            table
                .write_remote(PD, QPN, key, 0x1000, &[0xee; 96])
                .unwrap();
            let data: Vec<u8> = (0..len as u8).collect();
            table
                .write_remote(PD, QPN, key, 0x1000 + at, &data)
                .unwrap();
            let mut seen = vec![0; 96];
            table.read_remote(PD, QPN, key, 0x1000, &mut seen).unwrap();
            let mut expected = vec![0xee; 96];
            expected[at as usize..at as usize + len].copy_from_slice(&data);
            assert_eq!(seen, expected, "{len} bytes at {at}");
        }
    }
}

#[test]
fn what_is_not_there_is_an_error_for_every_kind_of_access() {
    let pages = Pages::new(3);
    let base = pages.0 as usize;
    let (table, key) = paged(base, 3 * PAGE as u64, base as u64);
    let second = (base + PAGE) as u64;
    pages.protect(1, libc::PROT_NONE);
    let mut out = [0u8; 64];
    let across = second - 32;
    assert_eq!(
        table.read_local(PD, key, across, &mut out),
        Err(LocalFault::Unmapped)
    );
    assert_eq!(
        table.write_local(PD, key, across, &out),
        Err(LocalFault::Unmapped)
    );
    assert_eq!(
        table.read_remote(PD, QPN, key, second, &mut out),
        Err(RemoteFault::Unmapped)
    );
    assert_eq!(
        table.write_remote(PD, QPN, key, second, &out),
        Err(RemoteFault::Unmapped)
    );
    let add = AtomicOp::FetchAdd { add: 1 };
    assert_eq!(
        table.atomic(PD, QPN, key, second, add),
        Err(RemoteFault::Unmapped)
    );
    pages.protect(1, libc::PROT_READ);
    assert_eq!(table.read_local(PD, key, across, &mut out), Ok(()));
    assert_eq!(
        table.write_local(PD, key, across, &out),
        Err(LocalFault::Unmapped)
    );
    pages.protect(1, libc::PROT_READ | libc::PROT_WRITE);
    assert_eq!(table.write_local(PD, key, across, &[1; 64]), Ok(()));
    assert_eq!(
        table.atomic(PD, QPN, key, second, add),
        Ok(u64::from_ne_bytes([1; 8]))
    );
}

#[test]
fn the_whole_address_space() {
    let mut word = 5u64;
    let at = &raw mut word as u64;
    let (table, key) = paged(0, u64::MAX, 0);
    assert_eq!(table.write_local(PD, key, at, &7u64.to_ne_bytes()), Ok(()));
    let mut out = [0u8; 8];
    for nowhere in [0, 4096, u64::MAX - 8, 1 << 63] {
        assert_eq!(
            table.read_local(PD, key, nowhere, &mut out),
            Err(LocalFault::Unmapped),
            "{nowhere:#x}"
        );
    }
    // SAFETY: a local variable.
    assert_eq!(unsafe { (&raw const word).read_volatile() }, 7);
}
