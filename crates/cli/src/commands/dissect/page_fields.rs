//! What the header fields mean: for the page, which shows it beside each value.
//!
//! "IBTA" is the InfiniBand Architecture Specification, volume 1. RoCEv2 is its annex A17.

use serde::Serialize;

/// A header, or what else the fields of a packet are sorted by.
#[derive(Serialize)]
pub struct Header {
    /// The first part of the keys of its fields.
    pub key: &'static str,
    pub name: &'static str,
    pub meaning: &'static str,
}

/// A field of a header.
#[derive(Serialize)]
pub struct Field {
    /// By which the script names it.
    pub key: &'static str,
    pub name: &'static str,
    /// Its width and unit.
    pub size: &'static str,
    pub meaning: &'static str,
    /// Where it is specified.
    pub source: &'static str,
}

/// A message of the connection manager.
#[derive(Serialize)]
pub struct Message {
    /// As `Attribute::name` says it.
    pub key: &'static str,
    pub name: &'static str,
    pub meaning: &'static str,
    pub source: &'static str,
}

const fn header(key: &'static str, name: &'static str, meaning: &'static str) -> Header {
    Header { key, name, meaning }
}

const fn field(
    key: &'static str,
    name: &'static str,
    size: &'static str,
    meaning: &'static str,
    source: &'static str,
) -> Field {
    Field {
        key,
        name,
        size,
        meaning,
        source,
    }
}

const fn message(
    key: &'static str,
    name: &'static str,
    meaning: &'static str,
    source: &'static str,
) -> Message {
    Message {
        key,
        name,
        meaning,
        source,
    }
}

/// In the order in which they stand in a packet.
pub const HEADERS: &[Header] = &[
    header("frame", "Frame", "What the capture says of the packet."),
    header("eth", "Ethernet", "The frame around the packet."),
    header(
        "ip",
        "IP",
        "RoCEv2 packets travel as UDP datagrams over IPv4 or IPv6.",
    ),
    header("udp", "UDP", "Destination port 4791 means RoCEv2."),
    header(
        "bth",
        "BTH",
        "Base transport header, 12 bytes: in every packet.",
    ),
    header(
        "deth",
        "DETH",
        "Datagram extended transport header, 8 bytes: in every datagram (UD).",
    ),
    header(
        "xrceth",
        "XRCETH",
        "Extended header of XRC, 4 bytes: in every XRC request.",
    ),
    header(
        "reth",
        "RETH",
        "RDMA extended transport header, 16 bytes: in the first packet of a WRITE, and in a READ request.",
    ),
    header(
        "feth",
        "FETH",
        "Flush extended transport header, 4 bytes: in a FLUSH.",
    ),
    header(
        "atomiceth",
        "AtomicETH",
        "Atomic extended transport header, 28 bytes: in atomic requests.",
    ),
    header(
        "aeth",
        "AETH",
        "ACK extended transport header, 4 bytes: in ACKs and NAKs, and in the first and last READ response.",
    ),
    header(
        "atomicacketh",
        "AtomicAckETH",
        "Answer to an atomic, 8 bytes.",
    ),
    header(
        "immdt",
        "ImmDt",
        "Immediate data, 4 bytes: in the last packet of a SEND or WRITE with immediate.",
    ),
    header(
        "ieth",
        "IETH",
        "Invalidate extended transport header, 4 bytes: in the last packet of a SEND with invalidate.",
    ),
    header(
        "cm",
        "Connection manager",
        "The payload is a message between connection managers (a MAD of 256 bytes to QP 1).",
    ),
    header("end", "Payload and ICRC", "What follows the headers."),
];

const BTH: &str = "IBTA 9.2";
const RETH: &str = "IBTA 9.3.3";
const ATOMIC: &str = "IBTA 9.3.4";
const AETH: &str = "IBTA 9.3.5";
const DETH: &str = "IBTA 9.3.2";
const EXTENDED: &str = "IBTA 9.3";

/// All of them.
pub const FIELDS: &[Field] = &[
    field(
        "frame.number",
        "frame",
        "from 1",
        "The place of the frame in the file; Wireshark counts in the same way.",
        "the capture",
    ),
    field(
        "frame.time",
        "time",
        "seconds",
        "When it was captured, since the first frame of the file.",
        "the capture",
    ),
    field(
        "eth.vlan",
        "VLAN",
        "12 bits",
        "The virtual LAN of the outermost tag.",
        "IEEE 802.1Q",
    ),
    field(
        "ip.src",
        "from",
        "32 or 128 bits",
        "The sender's address. Its GID is the same address, IPv4 as ::ffff:a.b.c.d.",
        "RFC 791, RFC 8200",
    ),
    field(
        "ip.dst",
        "to",
        "32 or 128 bits",
        "The receiver's address, or that of a multicast group.",
        "RFC 791, RFC 8200",
    ),
    field(
        "ip.id",
        "IP identification",
        "16 bits, and DF",
        "Numbers the datagrams of IPv4; DF forbids fragments. The ICRC covers both, so nothing on the way may change them.",
        "RFC 791, IBTA A17",
    ),
    field(
        "ip.tos",
        "traffic class",
        "6 bits DSCP, 2 bits ECN",
        "DSCP chooses the priority in switches. ECN 3 says that a switch on the way had a long queue. The ICRC leaves it out.",
        "RFC 2474, RFC 3168",
    ),
    field(
        "ip.hops",
        "hop limit",
        "8 bits, routers",
        "How many routers the packet may still pass (TTL of IPv4). The ICRC leaves it out.",
        "RFC 791, RFC 8200",
    ),
    field(
        "udp.src",
        "source port",
        "16 bits",
        "Nobody answers to it. It stays the same for a queue pair, so that switches keep its packets in order on one path.",
        "RFC 768, IBTA A17",
    ),
    field(
        "udp.dst",
        "destination port",
        "16 bits",
        "4791 is RoCEv2.",
        "RFC 768, IBTA A17",
    ),
    field(
        "bth.opcode",
        "opcode",
        "8 bits",
        "The upper 3 bits are the service (0 RC, 1 UC, 3 UD, 5 XRC), the lower 5 the operation, and the packet's place in its message.",
        "IBTA 9.2.1",
    ),
    field(
        "bth.solicited",
        "solicited",
        "1 bit",
        "1 asks for an event at the receiver's completion queue, if it waits for solicited completions alone.",
        BTH,
    ),
    field(
        "bth.migreq",
        "MigReq",
        "1 bit",
        "State of path migration. Without an alternate path it is 1 (migrated); some NICs send 0.",
        BTH,
    ),
    field(
        "bth.pad",
        "pad",
        "2 bits, bytes",
        "Bytes added behind the payload, so that it ends at a multiple of 4.",
        BTH,
    ),
    field(
        "bth.pkey",
        "P_Key",
        "16 bits",
        "The partition. The highest bit means full member. RoCE has the default partition alone: 0xffff.",
        BTH,
    ),
    field(
        "bth.ecn",
        "FECN, BECN",
        "1 bit each",
        "Congestion notification: BECN is set in a CNP, which tells a sender to slow down.",
        "IBTA A17",
    ),
    field(
        "bth.dest_qp",
        "destination QP",
        "24 bits",
        "The queue pair that the packet is for. Nothing in the BTH says which one sent it. 1 is the connection manager's, 0xffffff multicast.",
        BTH,
    ),
    field(
        "bth.ack_req",
        "AckReq",
        "1 bit",
        "1 asks the responder to acknowledge this packet.",
        BTH,
    ),
    field(
        "bth.psn",
        "PSN",
        "24 bits, packets",
        "Packet sequence number: one more with each request packet, and with each response that a READ will take. An answer names the request's.",
        "IBTA 9.2, 9.7.1",
    ),
    field(
        "deth.qkey",
        "Q_Key",
        "32 bits",
        "The receiver takes the datagram only if its queue pair has the same Q_Key. That of QP 1 is 0x80010000.",
        DETH,
    ),
    field(
        "deth.src_qp",
        "source QP",
        "24 bits",
        "The queue pair that sent the datagram, for the answer to go to.",
        DETH,
    ),
    field(
        "xrceth.srqn",
        "XRC SRQ",
        "24 bits",
        "The shared receive queue at the receiver that takes the message.",
        "IBTA A14",
    ),
    field(
        "reth.va",
        "remote address",
        "64 bits, bytes",
        "Where in the responder's memory the message is written or read: a virtual address, or an offset in its region.",
        RETH,
    ),
    field(
        "reth.rkey",
        "rkey",
        "32 bits",
        "Names the responder's memory region, and is the permission to use it.",
        RETH,
    ),
    field(
        "reth.len",
        "DMA length",
        "32 bits, bytes",
        "Length of the whole message, not of this packet.",
        RETH,
    ),
    field(
        "feth.placement",
        "placement",
        "4 bits",
        "How far earlier WRITEs have to get before the answer: 1 visible to all readers, 2 safe from a loss of power, 3 both.",
        "IBTA A19",
    ),
    field(
        "feth.selectivity",
        "selectivity",
        "2 bits",
        "0: the bytes that the RETH names; 1: the whole region.",
        "IBTA A19",
    ),
    field(
        "atomiceth.va",
        "remote address",
        "64 bits, bytes",
        "Where in the responder's memory the 8 bytes are: a multiple of 8.",
        ATOMIC,
    ),
    field(
        "atomiceth.rkey",
        "rkey",
        "32 bits",
        "Names the responder's memory region, and is the permission to use it.",
        ATOMIC,
    ),
    field(
        "atomiceth.swap",
        "swap or add",
        "64 bits",
        "Compare and swap: the new value. Fetch and add: what is added.",
        ATOMIC,
    ),
    field(
        "atomiceth.compare",
        "compare",
        "64 bits",
        "Compare and swap: the value that the memory must have for the swap to happen.",
        ATOMIC,
    ),
    field(
        "aeth.syndrome",
        "syndrome",
        "8 bits",
        "ACK with the receives that the responder has left (31: it does not count them), RNR NAK with the time to wait, or NAK with the reason.",
        "IBTA 9.3.5, 9.7.5",
    ),
    field(
        "aeth.msn",
        "MSN",
        "24 bits, messages",
        "Message sequence number: how many messages the responder has completed.",
        AETH,
    ),
    field(
        "atomicacketh.original",
        "original value",
        "64 bits",
        "What the memory held before the atomic.",
        EXTENDED,
    ),
    field(
        "immdt.data",
        "immediate data",
        "32 bits",
        "Four bytes of the sender's program, which the receiver finds in its completion.",
        EXTENDED,
    ),
    field(
        "ieth.rkey",
        "invalidate rkey",
        "32 bits",
        "The receiver's memory region or window that may no longer be used from here on.",
        EXTENDED,
    ),
    field(
        "cm.message",
        "message",
        "MAD attribute, 16 bits",
        "Which of the messages that set up and end connections it is.",
        "IBTA 12.6, 12.11, 16.7",
    ),
    field(
        "end.payload",
        "payload",
        "bytes",
        "The message's bytes in this packet, without padding. A First or Middle packet carries exactly the path MTU.",
        "IBTA 9.4",
    ),
    field(
        "end.icrc",
        "ICRC",
        "32 bits",
        "Invariant CRC over the packet and what of the IP and UDP headers must not change. A receiver drops a packet whose ICRC is wrong.",
        "IBTA A17",
    ),
];

/// All that the wire knows.
pub const MESSAGES: &[Message] = &[
    message(
        "REQ",
        "request for a connection",
        "The active side asks for a connection. It names its queue pair, first PSN, path MTU, timeouts and retries.",
        "IBTA 12.6.5",
    ),
    message(
        "MRA",
        "message receipt acknowledgment",
        "The message came; the answer takes longer. It asks the other side to wait instead of sending again.",
        "IBTA 12.6.6",
    ),
    message(
        "REJ",
        "reject",
        "The connection is refused, with a reason.",
        "IBTA 12.6.7",
    ),
    message(
        "REP",
        "reply to the request",
        "The passive side accepts. It names its queue pair and first PSN.",
        "IBTA 12.6.8",
    ),
    message(
        "RTU",
        "ready to use",
        "The active side has the reply: both may send.",
        "IBTA 12.6.9",
    ),
    message(
        "DREQ",
        "request to disconnect",
        "One side ends the connection.",
        "IBTA 12.6.10",
    ),
    message(
        "DREP",
        "reply to the disconnect",
        "The other side has ended it, too.",
        "IBTA 12.6.11",
    ),
    message(
        "SIDR_REQ",
        "service resolution request",
        "Asks which queue pair and Q_Key serve datagrams of a service.",
        "IBTA 12.11.1",
    ),
    message(
        "SIDR_REP",
        "service resolution response",
        "Names the queue pair and Q_Key of the service, or says why there is none.",
        "IBTA 12.11.2",
    ),
    message(
        "LAP",
        "load alternate path",
        "Proposes an alternate path; RoCE has none.",
        "IBTA 12.8.1",
    ),
    message(
        "APR",
        "alternate path response",
        "Answers a LAP.",
        "IBTA 12.8.2",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SCRIPT: &str = include_str!("page/page.js");

    /// Keys that the script uses: quoted, a header's name, a dot, a word.
    fn used() -> BTreeSet<&'static str> {
        let quoted = SCRIPT.split('"').skip(1).step_by(2);
        quoted
            .filter(|text| {
                let headed = text.split_once('.').filter(|(_, field)| {
                    !field.is_empty() && field.chars().all(|c| c.is_ascii_lowercase() || c == '_')
                });
                headed.is_some_and(|(key, _)| HEADERS.iter().any(|header| header.key == key))
            })
            .collect()
    }

    /// Every value that the page shows of a packet has its explanation, and no explanation is left
    /// over.
    #[test]
    fn each_field_of_the_page_is_explained() {
        let known: BTreeSet<_> = FIELDS.iter().map(|field| field.key).collect();
        assert_eq!(used(), known);
        assert_eq!(known.len(), FIELDS.len(), "each once");
    }

    /// An explanation is a sentence, and says width or unit and where the field is specified.
    #[test]
    fn explanations_are_whole() {
        for field in FIELDS {
            assert!(field.meaning.ends_with('.'), "{}", field.key);
            assert!(
                !field.size.is_empty() && !field.source.is_empty(),
                "{}",
                field.key
            );
            let header = field.key.split_once('.').unwrap().0;
            assert!(HEADERS.iter().any(|known| known.key == header), "{header}");
        }
        for header in HEADERS {
            assert!(header.meaning.ends_with('.'), "{}", header.key);
        }
    }

    /// Each message of the connection manager has a name that the page can show.
    #[test]
    fn each_message_of_the_connection_manager_is_explained() {
        use rnic_wire::cm::Attribute::*;
        for attribute in [
            Req, Mra, Rej, Rep, Rtu, Dreq, Drep, SidrReq, SidrRep, Lap, Apr,
        ] {
            let name = attribute.name();
            assert!(MESSAGES.iter().any(|known| known.key == name), "{name}");
        }
    }
}
