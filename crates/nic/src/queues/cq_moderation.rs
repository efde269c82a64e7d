//! Moderation of completion events: one for several completions.

/// Longest period, microseconds (that of ConnectX).
pub const MAX_CQ_PERIOD: u16 = 0xfff;

/// What to do about the event of an armed queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is due.
    Fire,
    /// Not yet; have [`Moderation::reminded`] called at this instant.
    Remind(u64),
    /// Not yet, and somebody will remind.
    Wait,
}

/// Counts the completions that an armed queue was armed for.
#[derive(Debug, Default)]
pub(super) struct Moderation {
    count: u16,
    period_ns: u64,
    seen: u32,
    /// When the period of the first of them ends.
    due: Option<u64>,
    /// The reminder that was asked for and has not come. There is one at a time: one that comes too
    /// early is renewed.
    reminder: Option<u64>,
}

impl Moderation {
    /// Events may wait for further completions, or for a time.
    pub(super) fn is_on(&self) -> bool {
        self.count != 0 && self.period_ns != 0
    }

    /// Changes the limits while completions may be waiting for their event.
    pub(super) fn set(&mut self, count: u16, period_us: u16, now: u64) -> Verdict {
        self.count = count;
        self.period_ns = u64::from(period_us) * 1000;
        if self.seen == 0 {
            return Verdict::Wait;
        }
        self.due = Some(now + self.period_ns);
        self.verdict(now)
    }

    /// A completion came that the queue is armed for.
    #[inline]
    pub(super) fn completed(&mut self, now: impl FnOnce() -> u64) -> Verdict {
        if self.count == 0 || self.period_ns == 0 {
            return Verdict::Fire;
        }
        self.moderated(now())
    }

    /// So many wait in a queue that is armed now, or was before the program took others.
    pub(super) fn waiting(&mut self, completions: u32, now: impl FnOnce() -> u64) -> Verdict {
        if self.count == 0 || self.period_ns == 0 {
            return Verdict::Fire;
        }
        self.seen = self.seen.max(completions.saturating_sub(1));
        self.moderated(now())
    }

    fn moderated(&mut self, now: u64) -> Verdict {
        self.seen += 1;
        self.due.get_or_insert(now + self.period_ns);
        self.verdict(now)
    }

    /// The instant asked for has come.
    pub(super) fn reminded(&mut self, now: u64) -> Verdict {
        self.reminder = None;
        self.verdict(now)
    }

    fn verdict(&mut self, now: u64) -> Verdict {
        let Some(due) = self.due else {
            return Verdict::Wait;
        };
        let enough = self.seen >= u32::from(self.count) || self.period_ns == 0;
        if enough || due <= now {
            self.seen = 0;
            self.due = None;
            return Verdict::Fire;
        }
        if self.reminder.is_some_and(|at| at <= due) {
            return Verdict::Wait;
        }
        self.reminder = Some(due);
        Verdict::Remind(due)
    }
}

#[cfg(test)]
mod tests;
