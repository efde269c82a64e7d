//! Memory with its region, and waiting for what is done with it.

use std::time::{Duration, Instant};

use rnic_nic::{Access, Cq, Mr, Pd, SgList, Sge, Status};

const PATIENCE: Duration = Duration::from_secs(60);

/// Memory with its region.
pub struct Region {
    pub bytes: Box<[u8]>,
    pub mr: Mr,
}

impl Region {
    pub fn new(pd: &Pd, len: usize, fill: impl Fn(usize) -> u8) -> Region {
        let mut bytes: Box<[u8]> = (0..len).map(fill).collect();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let at = bytes.as_mut_ptr();
        // SAFETY: the box outlives the region (`revoke` deregisters first), and nobody looks at its
        // bytes meanwhile.
        let mr = unsafe { pd.reg_mr(at, len, at as u64, access) }.expect("a region");
        Region { bytes, mr }
    }

    /// Deregisters, then gives the bytes, which the NIC cannot touch any more.
    pub fn revoke(self) -> Box<[u8]> {
        crate::pair::deregister(self.mr);
        self.bytes
    }

    pub fn sge(&self, at: usize, len: usize) -> Sge {
        Sge {
            addr: self.mr.addr() + at as u64,
            length: len as u32,
            lkey: self.mr.lkey(),
        }
    }

    /// Two pieces, a little apart.
    #[allow(dead_code, reason = "some tests have none")]
    pub fn pieces(&self, at: usize, len: usize, cut: usize, gap: usize) -> SgList {
        let cut = cut.min(len);
        SgList::from_slice(&[self.sge(at, cut), self.sge(at + cut + gap, len - cut)])
    }
}

/// For so many completions, all of them good.
pub fn wait(cq: &Cq, n: usize) {
    let start = Instant::now();
    let mut done = 0;
    while done < n {
        assert!(start.elapsed() < PATIENCE, "{done} of {n} completions");
        let mut good = true;
        done += cq
            .poll(16, &mut |c| good &= c.status == Status::Success)
            .expect("polled");
        assert!(good);
    }
}
