//! What has to hold when all is over, and what was counted.

use rnic_nic::Counters;

use super::{BEGIN, World};
use crate::flow::Side;
use crate::scenario::{Measure, Scenario};
use crate::script;

impl World {
    /// What holds of each scenario.
    pub(super) fn check_end(&self) -> Result<(), String> {
        for (at, side) in self.sides.iter().enumerate() {
            side.check_memory()?;
            side.check_peer(&self.sides[at ^ 1])?;
        }
        for pool in &self.pools {
            pool.check_memory()?;
        }
        let mut repeated = 0;
        for endpoint in &self.endpoints {
            repeated += endpoint.check_end(&self.endpoints)?;
        }
        // A copy that comes to a host comes to each of its queue pairs that are in the group.
        let each = self.machines.iter().map(|machine| machine.endpoints.len());
        let due = self.network.counters.duplicated * each.max().unwrap_or(0) as u64;
        match repeated <= due {
            true => Ok(()),
            false => Err(format!(
                "{repeated} datagrams came again, and the network repeated {due} at most"
            )),
        }
    }

    /// What the scenario says about the end.
    pub(super) fn check(&self, scenario: &Scenario) -> Result<(), String> {
        self.check_memory_paths(scenario)?;
        if let Some(marked) = self.network.unmet() {
            let line = script::fate(scenario, &marked);
            return Err(format!("`{line}`: not all of these packets were sent"));
        }
        for bound in &scenario.bounds {
            let counted = self.count(bound.measure);
            if !bound.holds(counted) {
                let line = script::bound(bound);
                let unit = if bound.measure == Measure::Time {
                    " ns"
                } else {
                    ""
                };
                return Err(format!("`{line}`: it was {counted}{unit}"));
            }
        }
        Ok(())
    }

    fn count(&self, measure: Measure) -> u64 {
        let counters = self.sides.iter().map(Side::counters);
        let counters = counters.chain(self.endpoints.iter().map(|endpoint| endpoint.counters()));
        let sum = |of: fn(&Counters) -> u64| counters.map(|counted| of(&counted)).sum();
        match measure {
            Measure::Time => self.done_at.unwrap_or(self.now) - BEGIN,
            Measure::Packets => self.network.counters.sent,
            Measure::Retransmissions => sum(|counted| counted.retransmitted_packets),
            Measure::Timeouts => sum(|counted| counted.timeouts),
            Measure::RnrNaks => sum(|counted| counted.rnr_naks_sent),
            Measure::SequenceNaks => sum(|counted| counted.sequence_naks_sent),
            Measure::Duplicates => sum(|counted| counted.duplicates_received),
            Measure::Dropped => sum(|counted| counted.messages_dropped),
            Measure::QkeyViolations => sum(|counted| counted.qkey_violations),
            Measure::Received => {
                let by_flows: usize = self.sides.iter().map(Side::received).sum();
                let datagrams = self.endpoints.iter().map(|endpoint| endpoint.received());
                by_flows as u64 + datagrams.sum::<u64>()
            }
            Measure::LimitEvents => self.pools.iter().map(|pool| pool.events).sum(),
            Measure::Rings => self.links(|link| link.tx_host_packets),
            Measure::Copied => self.links(|link| link.tx_reached_bytes + link.rx_reached_bytes),
            Measure::References => self.links(|link| link.rx_host_pointed),
            Measure::Busy => self.busy,
        }
    }

    /// Nothing is due, or nothing comes of it.
    pub(super) fn stuck(&self) -> String {
        let waits = self.sides.iter().filter(|side| !side.is_done());
        let endpoints = self.endpoints.iter().filter(|endpoint| !endpoint.is_done());
        let waits = waits
            .map(Side::waits_for)
            .chain(endpoints.map(|endpoint| endpoint.waits_for()));
        let waits: Vec<String> = waits.collect();
        format!("everybody waits: {}", waits.join("; "))
    }
}
