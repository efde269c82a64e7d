//! What `--faults` did to the packets of a run.

use serde_json::{Value, json};

use super::Report;
use super::record::Device;
use crate::text::count;

/// Packets that went through it, and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Injected {
    packets: u64,
    drops: u64,
    duplicates: u64,
    reorders: u64,
    corruptions: u64,
    delays: u64,
}

impl Injected {
    fn of(device: &Device) -> Injected {
        let of = |name: &str| device.faults.get(name).copied().unwrap_or(0);
        Injected {
            packets: of("packets"),
            drops: of("drops"),
            duplicates: of("duplicates"),
            reorders: of("reorders"),
            corruptions: of("corruptions"),
            delays: of("delays"),
        }
    }

    /// Of all processes of the run.
    pub fn of_all(report: &Report) -> Injected {
        report
            .devices
            .values()
            .map(Injected::of)
            .fold(Injected::default(), |sum, of| Injected {
                packets: sum.packets.saturating_add(of.packets),
                drops: sum.drops.saturating_add(of.drops),
                duplicates: sum.duplicates.saturating_add(of.duplicates),
                reorders: sum.reorders.saturating_add(of.reorders),
                corruptions: sum.corruptions.saturating_add(of.corruptions),
                delays: sum.delays.saturating_add(of.delays),
            })
    }

    /// Of one process.
    pub fn of_process(report: &Report, process: u64) -> Injected {
        report
            .devices
            .get(&process)
            .map_or(Injected::default(), Injected::of)
    }

    /// No packet left.
    pub fn dropped_all(self) -> bool {
        self.packets > 0 && self.drops >= self.packets
    }

    /// Some packet did not arrive as it was sent, or late.
    pub fn harmed(self) -> bool {
        self.drops > 0 || self.corruptions > 0 || self.delays > 0
    }

    /// For machines; null: there was no packet.
    pub fn to_json(self) -> Option<Value> {
        (self.packets > 0).then(|| {
            json!({
                "packets": self.packets,
                "drops": self.drops,
                "corruptions": self.corruptions,
                "duplicates": self.duplicates,
                "reorders": self.reorders,
                "delays": self.delays,
            })
        })
    }

    /// In words; `None`: there was no packet.
    pub fn words(self) -> Option<String> {
        if self.packets == 0 {
            return None;
        }
        let kinds = [
            (self.drops, "dropped"),
            (self.corruptions, "corrupted"),
            (self.duplicates, "sent twice"),
            (self.reorders, "reordered"),
            (self.delays, "delayed"),
        ];
        let kinds = kinds.iter().filter(|(n, _)| *n > 0);
        let mut kinds: Vec<String> = kinds.map(|(n, what)| format!("{n} {what}")).collect();
        if kinds.is_empty() {
            kinds.push("none changed".to_owned());
        }
        Some(format!(
            "of {}, {}",
            count(self.packets, "packet"),
            kinds.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    //! Counters of files are not trusted, and what did not happen is not told.

    use super::*;

    #[test]
    fn only_what_happened_is_told() {
        let none = Injected::default();
        assert_eq!((none.words(), none.dropped_all()), (None, false));
        let some = Injected {
            packets: 10,
            drops: 2,
            reorders: 1,
            ..none
        };
        assert_eq!(
            some.words().as_deref(),
            Some("of 10 packets, 2 dropped, 1 reordered")
        );
        assert!(some.harmed() && !some.dropped_all());
        let all = Injected {
            packets: 1,
            drops: u64::MAX,
            ..none
        };
        assert!(all.dropped_all());
        let untouched = Injected { packets: 3, ..none };
        assert_eq!(
            untouched.words().as_deref(),
            Some("of 3 packets, none changed")
        );
    }
}
