//! The rules: what each says, its number, and where that is from.
//!
//! [`super::judge`] has the conditions. "Own inference" means that no text gives the number.

use serde::Serialize;

/// A rule of thumb.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rule {
    pub id: &'static str,
    /// What it says.
    pub says: &'static str,
    /// Its number.
    pub number: &'static str,
    /// Where the number is from.
    pub source: &'static str,
}

macro_rules! rules {
    ($($name:ident = $id:literal, $says:literal, $number:literal, $source:literal;)+) => {
        $(pub static $name: Rule = Rule {
            id: $id,
            says: $says,
            number: $number,
            source: $source,
        };)+
        /// All of them.
        #[cfg(test)]
        pub static ALL: &[&Rule] = &[$(&$name),+];
    };
}

rules! {
    THIN = "thin", "a trace with few messages proves nothing",
        "200 messages", "own inference: below, a rate depends on how the program starts";
    SHARE = "share", "what the network takes part in is all that a faster one can save",
        "less than 10% of the time: no gain", "Amdahl's law; 10% is own inference";
    HOST = "host", "RDMA is for what goes to other hosts",
        "AF_UNIX sockets reach none", "unix(7)";
    BULK = "bulk", "large transfers one way need no processor of the peer's",
        "64 KiB a turn by calls of 4 KiB, 90% of the bytes one way",
        "own inference from the texts: 10 KB take 7.0 us, which is bytes alone";
    LOCKSTEP = "lockstep", "a request and its answer are an RPC; one-sided only if one trip suffices",
        "HERD 1 trip a GET, Pilaf 2.6 READs: 26 against 9.9 Mops; from 8 connections on",
        "HERD (SIGCOMM'14); 8 is own inference";
    SHIM = "shim", "sockets programs gain without a change by a preloaded library",
        "ping-pong 12.2 to 2.1 us on one host",
        "README of a public LD_PRELOAD tunnel; rsockets is the packaged one";
    CONNECT = "connect", "keep connections: one for each request costs more than it saves",
        "fewer than 2 trips a connection", "own inference: a queue pair takes three changes of state and a handshake";
    STREAM = "stream", "messages that nobody answers one by one are SENDs",
        "fewer than half of the messages are turns", "own inference";
    ANSWERS = "answers", "a message and its answer are SENDs where no side knows the other's memory",
        "10 B: SEND 1.41 us, WRITE 1.32 us", "texts";
    ONE_SIDED = "one-sided", "WRITE or one READ instead of an RPC",
        "10 B: WRITE 1.32 us, READ 2.42 us", "texts; HERD (SIGCOMM'14)";
    INLINE = "inline", "inline what fits",
        "10 B: 1.41 us inlined, 1.91 us not; usual limit 256 B", "texts; HERD, ATC'16";
    SIGNAL = "signal", "signal one request in N, N at most half the send queue",
        "half a queue", "ATC'16; valkey does so";
    POLL = "poll", "poll where messages wait for each other, sleep where they are rare",
        "10 B: 1.4 us polling, 4.8 us with events", "texts; fades above 10^5 messages a second (inference)";
    BATCH = "batch", "ring the doorbell once for many requests",
        "7.0 to 16.6 M requests a second and core", "ATC'16, table 3";
    DEPTH = "depth", "keep several requests under way",
        "one trip for each otherwise", "cost model: one under way at a time";
    MTU = "mtu", "fewer packets for the same bytes",
        "42 B of headers a packet", "InfiniBand: LRH, BTH, RETH, ICRC, VCRC";
    POOL = "pool", "register once, not for each message",
        "registering removes the gain", "Frey and Alonso (ICDCS'09); TensorFlow's verbs";
    REGIONS = "regions", "one big region, huge pages",
        "slower above 100 regions or 4 MB in 4 KiB pages (ConnectX-3)", "LITE, figures 4 and 5";
    QPS = "qps", "a card caches few queue pairs",
        "21% of the rate with 256 queue pairs (ConnectX-3)", "HERD, figure 6; FaSST, figure 3";
    SRQ = "srq", "many connections share receives",
        "16 connections", "own inference; the number of queue pairs: HERD, FaSST";
    ATOMICS = "atomics", "no atomics on the hot path",
        "2.24 against 122 M requests a second; a card does 2.7 M", "ATC'16";
    RNR = "rnr", "post receives before the peer sends",
        "1 RNR NAK in 1000 messages", "own inference";
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: docs/advise.md has each rule with its number and source.
    #[test]
    fn rules_are_documented() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/advise.md");
        let document = std::fs::read_to_string(file).expect("docs/advise.md");
        for rule in ALL {
            let row = format!(
                "| `{}` | {} | {} | {} |",
                rule.id, rule.says, rule.number, rule.source
            );
            assert!(document.contains(&row), "no row:\n{row}");
        }
    }
}
