//! Lines of how queue pairs are used, for `rnic advise`: with the counters, and as often.

use std::sync::atomic::{AtomicU64, Ordering};

use super::State;
use super::line::Line;
use crate::queues::QpShared;
use crate::queues::usage::{self, KINDS, Sizes};

fn value(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

fn sizes(line: &mut Line, name: &str, sizes: &Sizes) {
    line.object(name, |line| {
        for (bits, count) in sizes.used() {
            line.number(&bits.to_string(), count);
        }
    });
}

impl State {
    /// How a queue pair was used so far; nothing if nobody wants to know.
    pub(super) fn usage(&mut self, shared: &QpShared) -> String {
        let Some(usage) = &shared.usage else {
            return String::new();
        };
        let mut line = self.record("usage");
        line.number("qpn", u64::from(shared.qpn))
            .text("qp_type", shared.type_name())
            .number("max_send_wr", u64::from(shared.cap.max_send_wr))
            .number("max_inline_data", u64::from(shared.cap.max_inline_data))
            .number("posts", value(&usage.posts))
            .number("inline", value(&usage.inline))
            .number("signaled", value(&usage.signaled))
            .number("immediate", value(&usage.immediate))
            .number("elements", value(&usage.elements))
            .number("deepest", value(&usage.deepest))
            .number("depths", value(&usage.depths))
            .number("began", value(&usage.began))
            .number("last", value(&usage.last));
        for (kind, of) in KINDS.iter().zip(&usage.sizes) {
            sizes(&mut line, kind, of);
        }
        line.finish()
    }

    /// The same of the process.
    pub(super) fn usage_of_process(&mut self) -> String {
        if !usage::is_on() {
            return String::new();
        }
        let whole = usage::whole();
        let mut line = self.record("process usage");
        line.number("polls", value(&whole.polls))
            .number("polls_in_vain", value(&whole.polls_in_vain))
            .number("arms", value(&whole.arms))
            .number("registrations", value(&whole.registrations))
            .number("deregistrations", value(&whole.deregistrations))
            .number("registered", value(&whole.registered))
            .number("queue_pairs", value(&whole.queue_pairs))
            .number("sharing", value(&whole.sharing));
        sizes(&mut line, "regions", &whole.regions);
        line.finish()
    }
}
