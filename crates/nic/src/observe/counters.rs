//! Counters for `rnic run --stats`: of every queue pair when it ends, and now and then before, as
//! programs are killed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rnic_link::LinkCounters;
use rnic_transport::{Counters, Traffic};

use super::drops::DropCounters;
use super::file::append;
use super::line::Line;
use super::{State, is_on, lint, settings, state, trace, write};
use crate::queues::{QpShared, QpState};

/// Between two looks at a few queue pairs; with many it is longer.
const PERIOD: Duration = Duration::from_millis(400);
/// Queue pairs that may double the period.
const FEW: usize = 64;
/// Between two looks at waits, ns.
pub(super) const TICK: u64 = 200_000_000;
/// Long waits that may double the time between two looks.
const FEW_WAITS: usize = 8;

/// What was written last, so that only news is written.
#[derive(Debug)]
pub(super) struct Snapshots {
    qps: BTreeMap<u32, (Counters, QpState)>,
    /// By shard of the engine.
    devices: Vec<(LinkCounters, DropCounters)>,
}

impl Snapshots {
    pub(super) const fn new() -> Snapshots {
        Snapshots {
            qps: BTreeMap::new(),
            devices: Vec::new(),
        }
    }
}

/// Counters are wanted.
fn wanted() -> bool {
    settings().is_some_and(|settings| settings.stats || settings.lint || settings.usage)
}

/// A queue pair is about to be destroyed.
pub(crate) fn destroyed(shared: &QpShared, counters: &Counters) {
    if !is_on() {
        return;
    }
    if let Some(mut state) = state() {
        if wanted() {
            let line = state.qp(shared, counters, true);
            write(line);
            let usage = state.usage(shared) + &state.usage_of_process();
            if !usage.is_empty() {
                append(&usage);
            }
        }
        state.tell_drops(shared.qpn, counters);
        state.left(shared.qpn, "destroyed");
        state.snapshots.qps.remove(&shared.qpn);
        state.forget(shared.qpn);
        lint::destroyed(&mut state, shared);
    }
}

/// Notes what has changed since the last time, of the queue pairs of engine `index` and of the
/// engine itself. `last`: nothing will come any more.
pub(crate) fn note_all<'a>(
    index: usize,
    queue_pairs: impl Iterator<Item = (&'a QpShared, Counters)>,
    device: (LinkCounters, DropCounters),
    last: bool,
) {
    if last {
        trace::flush();
    }
    let only_drops = !wanted();
    if only_drops && (!last || !is_on()) {
        return;
    }
    let Some(mut state) = state() else {
        return;
    };
    if only_drops {
        queue_pairs.for_each(|(shared, counters)| state.tell_drops(shared.qpn, &counters));
        return;
    }
    // In one go: the engine is locked, and a system call for each of many queue pairs would keep it
    // so for long.
    let mut lines = String::new();
    for (shared, counters) in queue_pairs {
        let now = (counters, shared.state());
        let known = state.snapshots.qps.get(&shared.qpn);
        if last || known != Some(&now) {
            state.snapshots.qps.insert(shared.qpn, now);
            lines += &state.qp(shared, &counters, last).finish();
            lines += &state.usage(shared);
        }
        if last {
            state.tell_drops(shared.qpn, &counters);
        }
    }
    let devices = &mut state.snapshots.devices;
    if devices.get(index) != Some(&device) {
        if devices.len() <= index {
            devices.resize(index + 1, Default::default());
        }
        devices[index] = device;
        let mut all = (LinkCounters::default(), DropCounters::default());
        for (link, drops) in devices {
            all.0 += *link;
            all.1 += *drops;
        }
        lines += &state.device(&all).finish();
    }
    lines += &state.usage_of_process();
    if !lines.is_empty() {
        append(&lines);
    }
}

/// The thread that looks at waits now and then, and notes counters if they are wanted.
#[derive(Debug)]
pub(crate) struct Reporter {
    /// 1: it is to end.
    end: Arc<AtomicU32>,
    thread: rnic_sys::Thread,
}

impl Reporter {
    /// `None` if it cannot be started, which costs nothing but what a killed program would have
    /// proven.
    pub(super) fn start(
        note: impl Fn() -> Option<usize> + Send + 'static,
        mut look: impl FnMut() -> Option<usize> + Send + 'static,
    ) -> Option<Reporter> {
        let end = Arc::new(AtomicU32::new(0));
        let heeded = end.clone();
        let body = move || {
            let tick = Duration::from_nanos(TICK);
            let mut until_note = PERIOD;
            while let Some(waits) = look() {
                trace::flush();
                let rest = tick * (1 + waits / FEW_WAITS) as u32;
                rnic_sys::sleep_while_for(&heeded, 0, rest);
                if heeded.load(Ordering::Acquire) != 0 {
                    break;
                }
                until_note = until_note.saturating_sub(rest);
                if wanted() && until_note.is_zero() {
                    let Some(qps) = note() else {
                        break;
                    };
                    until_note = PERIOD * (1 + qps / FEW) as u32;
                }
            }
        };
        let started =
            rnic_sys::with_signals_blocked(|| rnic_sys::spawn(c"rnic-report", 256 * 1024, body));
        let thread = started.ok()?;
        Some(Reporter { end, thread })
    }

    /// Ends the thread and waits for that: nothing of it is left when the last device is closed.
    pub(crate) fn stop(self) {
        self.end.store(1, Ordering::Release);
        rnic_sys::wake_all(&self.end);
        if !self.thread.is_current() {
            self.thread.join();
        }
    }
}

impl State {
    fn qp(&mut self, shared: &QpShared, counters: &Counters, end: bool) -> Line {
        let mut line = self.record("qp");
        self.name_qp(&mut line, shared.qpn);
        line.text("qp_type", shared.type_name())
            .text("state", &shared.state().to_string())
            .flag("end", end);
        if let Some(connection) = self.connections.get(&shared.qpn) {
            let attr = &connection.attr;
            line.number("max_rd_atomic", u64::from(attr.max_rd_atomic))
                .number("max_dest_rd_atomic", u64::from(attr.max_dest_rd_atomic));
            if let Some(mtu) = attr.path_mtu {
                line.number("path_mtu", mtu.bytes() as u64);
            }
        }
        line.object("counters", |line| write_counters(line, counters));
        line
    }

    fn device(&mut self, (link, drops): &(LinkCounters, DropCounters)) -> Line {
        let mut line = self.record("device");
        line.object("link", |line| {
            line.number("tx_packets", link.tx_packets)
                .number("tx_bytes", link.tx_bytes)
                .number("tx_multicast", link.tx_multicast)
                .number("tx_xdp_packets", link.tx_xdp_packets)
                .number("tx_zero_copy_packets", link.tx_zero_copy_packets)
                .number("tx_detour_packets", link.tx_detour_packets)
                .number("rx_xdp_packets", link.rx_xdp_packets)
                .number("tx_host_packets", link.tx_host_packets)
                .number("tx_host_bytes", link.tx_host_bytes)
                .number("out_of_reach", link.host_out_of_reach)
                .number("tx_errors", link.tx_errors)
                .number("tx_waited", link.tx_waited)
                .number("rx_packets", link.rx_packets)
                .number("rx_bytes", link.rx_bytes)
                .number("rx_multicast", link.rx_multicast)
                .number("rx_host_packets", link.rx_host_packets)
                .number("rx_host_bytes", link.rx_host_bytes)
                .number("rx_host_pointed", link.rx_host_pointed);
        });
        line.object("drops", |line| {
            line.number("bad_icrc", link.rx_bad_icrc)
                .number("truncated", link.rx_truncated)
                .number("receive_buffer_full", link.rx_overrun)
                .number("unknown_process", link.rx_unknown_qpn)
                .number("unknown_qpn", drops.unknown_qpn)
                .number("malformed", drops.malformed)
                .number("bad_pkey", drops.bad_pkey)
                .number("wrong_address", drops.wrong_address)
                .number("wrong_process", drops.wrong_process)
                .number("not_ready", drops.not_ready)
                .number("wrong_rings", link.host_rings_wrong)
                .number("no_room", drops.no_room);
        });
        line.object("faults", |line| {
            line.number("packets", link.fault_packets)
                .number("drops", link.fault_drops)
                .number("duplicates", link.fault_duplicates)
                .number("reorders", link.fault_reorders)
                .number("corruptions", link.fault_corruptions)
                .number("delays", link.fault_delays);
        });
        line
    }
}

fn write_counters(line: &mut Line, c: &Counters) {
    let traffic = |line: &mut Line, name: &str, t: Traffic| {
        line.object(name, |line| {
            line.number("messages", t.messages).number("bytes", t.bytes);
        });
    };
    for (name, by) in [("requested", c.requested), ("served", c.served)] {
        line.object(name, |line| {
            traffic(line, "send", by.send);
            traffic(line, "write", by.write);
            traffic(line, "read", by.read);
            traffic(line, "atomic", by.atomic);
            traffic(line, "flush", by.flush);
        });
    }
    for (name, value) in [
        (
            "messages_without_packets",
            c.without_packets.total().messages,
        ),
        ("bytes_without_packets", c.without_packets.total().bytes),
        ("packets_sent", c.packets_sent),
        ("packets_received", c.packets_received),
        ("bytes_sent", c.bytes_sent),
        ("bytes_received", c.bytes_received),
        ("retransmitted_packets", c.retransmitted_packets),
        ("timeouts", c.timeouts),
        ("sequence_naks_sent", c.sequence_naks_sent),
        ("sequence_naks_received", c.sequence_naks_received),
        ("rnr_naks_sent", c.rnr_naks_sent),
        ("rnr_naks_received", c.rnr_naks_received),
        ("access_naks_sent", c.access_naks_sent),
        ("access_naks_received", c.access_naks_received),
        ("invalid_naks_sent", c.invalid_naks_sent),
        ("invalid_naks_received", c.invalid_naks_received),
        ("operational_naks_sent", c.operational_naks_sent),
        ("operational_naks_received", c.operational_naks_received),
        ("duplicates_received", c.duplicates_received),
        ("out_of_sequence", c.out_of_sequence),
        ("messages_dropped", c.messages_dropped),
        ("no_receive_drops", c.no_receive_drops),
        ("too_long_drops", c.too_long_drops),
        ("access_drops", c.access_drops),
        ("incomplete_drops", c.incomplete_drops),
        ("packet_length_drops", c.packet_length_drops),
        ("malformed_drops", c.malformed_drops),
        ("qkey_violations", c.qkey_violations),
        ("start_psn_violations", c.start_psn_violations),
        ("dropped", c.dropped),
    ] {
        line.number(name, value);
    }
}
