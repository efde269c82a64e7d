//! The clock of a device, which completions are stamped by.

use rnic_layouts::*;
use rnic_types::Result;

use crate::objects::context::{Context, extended};

/// A device's clock at some time (`ibv_query_rt_values_ex`, and `hca_core_clock` of
/// `ibv_query_device_ex`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceClock {
    /// What it shows, in ticks.
    pub now: u64,
    /// Ticks in a millisecond; 0: the device does not tell.
    pub khz: u64,
    /// The bits of a stamp that count; the clock begins anew at the end of them.
    pub mask: u64,
}

impl Context {
    /// The clock that completions are stamped by; `None`: the device has none.
    fn core_clock(&self) -> Option<(u64, u64)> {
        let query = extended!(self, query_device_ex)?;
        let input = ibv_query_device_ex_input { comp_mask: 0 };
        // SAFETY: numbers only.
        let mut attr: ibv_device_attr_ex = unsafe { core::mem::zeroed() };
        let size = size_of_val(&attr);
        // SAFETY: an open device, and the structure that the call fills, with its length.
        let given = unsafe { query(self.ptr(), &input, &mut attr, size) };
        let mask = attr.completion_timestamp_mask;
        (given == 0 && mask != 0).then_some((attr.hca_core_clock, mask))
    }

    /// Completions can be stamped, as far as the device tells.
    pub(crate) fn stamps(&self) -> bool {
        extended!(self, create_cq_ex).is_some() && self.core_clock().is_some()
    }

    /// What the clock shows now.
    ///
    /// # Errors
    /// The device has none; ENODEV in a forked child.
    pub fn clock(&self) -> Result<DeviceClock> {
        const VERB: &str = "ibv_query_rt_values_ex";
        self.check_alive(VERB)?;
        let query = extended!(self, query_rt_values).ok_or(self.absent(VERB))?;
        let (khz, mask) = self.core_clock().ok_or(self.absent(VERB))?;
        // SAFETY: numbers only.
        let mut values: ibv_values_ex = unsafe { core::mem::zeroed() };
        values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
        // SAFETY: an open device, and the structure that the call fills.
        let given = unsafe { query(self.ptr(), &mut values) };
        self.outcome(VERB, given)?;
        let part = |value: i64| u64::try_from(value).unwrap_or(0);
        let (s, ns) = (values.raw_clock.tv_sec, values.raw_clock.tv_nsec);
        // Devices whose clock is no time have ticks in the second field alone.
        let now = part(s).wrapping_mul(1_000_000_000).wrapping_add(part(ns));
        Ok(DeviceClock { now, khz, mask })
    }
}
