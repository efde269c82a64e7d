//! What Linux lost on the way, by its own counters: the first thing to look at when a packet never
//! came.

/// What an end's commands say.
#[derive(Debug)]
pub struct Said {
    /// `/proc/net/snmp` and `/proc/net/snmp6`.
    pub snmp: String,
    /// `/proc/net/softnet_stat`: a line for each processor, of which the second number is what its
    /// backlog dropped.
    pub softnet: String,
    /// tc-qdisc(8) of the link.
    pub queue: String,
    /// `NAME:VALUE`, a line for each file of the link's `statistics`.
    pub link: String,
}

impl Said {
    /// All counters that are not zero, or "nothing".
    pub fn losses(&self) -> String {
        let mut losses = self.udp();
        losses.push(("backlog".to_owned(), self.backlog()));
        losses.push(("queue of the link".to_owned(), self.dropped()));
        losses.extend(self.link());
        let told: Vec<String> = losses
            .into_iter()
            .filter(|&(_, count)| count > 0)
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        if told.is_empty() {
            return "nothing".to_owned();
        }
        told.join(", ")
    }

    /// Errors of sockets, among them what did not fit into one (RcvbufErrors).
    fn udp(&self) -> Vec<(String, u64)> {
        let mut found: Vec<(String, &str)> = Vec::new();
        let v4: Vec<&str> = self
            .snmp
            .lines()
            .filter(|line| line.starts_with("Udp: "))
            .collect();
        if let [names, values] = v4[..] {
            let pairs = names.split_whitespace().zip(values.split_whitespace());
            found.extend(pairs.map(|(name, value)| (format!("Udp{name}"), value)));
        }
        for line in self.snmp.lines().filter(|line| line.starts_with("Udp6")) {
            let mut words = line.split_whitespace();
            if let (Some(name), Some(value)) = (words.next(), words.next()) {
                found.push((name.to_owned(), value));
            }
        }
        found
            .into_iter()
            .filter(|(name, _)| name.ends_with("Errors"))
            .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
            .collect()
    }

    fn backlog(&self) -> u64 {
        let dropped = self
            .softnet
            .lines()
            .filter_map(|line| line.split_whitespace().nth(1));
        dropped
            .filter_map(|hex| u64::from_str_radix(hex, 16).ok())
            .sum()
    }

    /// What the link's two directions dropped.
    fn link(&self) -> Vec<(String, u64)> {
        let counters = self.link.lines().filter_map(|line| {
            let (path, value) = line.rsplit_once(':')?;
            let name = path.rsplit('/').next()?;
            Some((format!("link {name}"), value.parse().ok()?))
        });
        counters
            .filter(|(name, _): &(String, u64)| name.ends_with("_dropped"))
            .collect()
    }

    fn dropped(&self) -> u64 {
        let after = self.queue.split("(dropped ").skip(1);
        let numbers = after.filter_map(|rest| rest.split(',').next()?.parse::<u64>().ok());
        numbers.sum()
    }
}

#[cfg(test)]
mod tests {
    //! Each counter is found where Linux has it.

    use super::*;

    #[test]
    fn losses_are_named() {
        let said = Said {
            snmp: "\
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors
Udp: 100 1 7 100 7 0
Udp6InDatagrams                 \t5
Udp6InErrors                    \t0
Udp6RcvbufErrors                \t3
UdpLite: InDatagrams NoPorts
"
            .into(),
            softnet: "00000010 0000000a 00000000\n00000010 00000001 00000000\n".into(),
            queue: "qdisc pfifo 8001: root refcnt 3 limit 1000p\n Sent 9 bytes 1 pkt (dropped 12, overlimits 0 requeues 0)\n".into(),
            link: "\
/sys/class/net/to-rnic/statistics/rx_packets:9
/sys/class/net/to-rnic/statistics/rx_dropped:0
/sys/class/net/to-rnic/statistics/tx_dropped:4
"
            .into(),
        };
        assert_eq!(
            said.losses(),
            "UdpInErrors 7, UdpRcvbufErrors 7, Udp6RcvbufErrors 3, backlog 11, queue of the link 12, link tx_dropped 4"
        );
        let quiet = Said {
            snmp: String::new(),
            softnet: String::new(),
            queue: String::new(),
            link: String::new(),
        };
        assert_eq!(quiet.losses(), "nothing");
    }
}
