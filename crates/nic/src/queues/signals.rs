//! Which completions retire which work requests of a send queue.

use rnic_transport::Fifo;

/// How many work requests each future signaled completion retires.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    pub(crate) runs: Fifo<u32>,
    open: u32,
    /// What the last run had.
    period: u32,
    /// Work requests that failed or were flushed: each had a completion of its own.
    failed: u32,
}

impl Signals {
    pub(crate) fn posted(&mut self, signaled: bool) {
        self.open += 1;
        if signaled {
            self.runs.push_back(self.open);
            self.period = self.open;
            self.open = 0;
        }
    }

    /// Work requests up to the next one that is expected to be signaled, as the last one was, if
    /// there are more than `many`.
    #[inline]
    pub(crate) fn left(&self, many: usize) -> usize {
        match self.period as usize {
            few if few <= many => 0,
            period => period.saturating_sub(self.open as usize),
        }
    }

    /// Completions that the queue gives if all of it succeeds, and work requests behind them that
    /// give none.
    pub(crate) fn expected(&self) -> (usize, u32) {
        (self.runs.len(), self.open)
    }

    /// Work requests that no completion has retired yet.
    pub(crate) fn outstanding(&self) -> u32 {
        let posted = self.runs.iter().sum::<u32>() + self.open;
        posted.saturating_sub(self.failed)
    }

    /// Work requests retired by the next signaled completion.
    pub(crate) fn completed(&mut self) -> u32 {
        self.runs.pop_front().unwrap_or(0)
    }

    /// Work requests retired by the completion of a failed one: itself. For those before it see
    /// `QpEntry::free_retired`.
    pub(crate) fn failed(&mut self) -> u32 {
        self.failed += 1;
        1
    }

    /// The queue was flushed: work requests that no completion will retire, since they had ended
    /// well, unsignaled, before one failed.
    pub(crate) fn abandoned(&mut self) -> u32 {
        let left = self.outstanding();
        self.reset();
        left
    }

    /// Nothing is posted. The memory stays.
    pub(crate) fn reset(&mut self) {
        let mut runs = std::mem::take(&mut self.runs);
        runs.clear();
        *self = Signals {
            runs,
            ..Signals::default()
        };
    }
}
