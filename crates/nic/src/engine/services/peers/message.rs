//! What two processes say to each other, byte by byte. No I/O here; what does not decode is nothing
//! that this program wrote.
//!
//! Both ends are on one host and of one build or nearly so: numbers are in the host's order, and
//! the first byte says what the rest is.

use rnic_transport::{Refused, RemoteFault, Verdict};

use crate::engine::services::reader::Reader;
use crate::memory::Exported;

/// What an XRC target is, as far as it matters to who executes its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) qpn: u32,
    pub(crate) dest_qpn: u32,
    /// Path MTU, as `enum ibv_mtu` counts.
    pub(crate) mtu: u8,
    /// Bits of [`rights`].
    pub(crate) rights: u8,
    /// The XRC domain, as [`Message::Join`] numbered it.
    pub(crate) domain: u32,
}

/// Bits of [`Target::rights`].
pub(crate) mod rights {
    pub(crate) const WRITE: u8 = 1;
    pub(crate) const READ: u8 = 2;
    pub(crate) const ATOMIC: u8 = 4;
    pub(crate) const FLUSH_GLOBAL: u8 = 8;
    pub(crate) const FLUSH_PERSISTENT: u8 = 16;
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message<'a> {
    /// A descriptor of the file that an XRC domain belongs to comes along; the sender calls the
    /// domain by this number.
    Join { domain: u32 },
    /// Execute these requests in this order, up to the first that cannot be. Answer:
    /// [`Message::Verdicts`].
    Execute {
        request: u32,
        target: Target,
        packets: Packets<'a>,
    },
    /// Send bytes that a READ is to fetch. Answer: [`Message::Data`].
    Read {
        request: u32,
        qpn: u32,
        domain: u32,
        srqn: u32,
        rkey: u32,
        va: u64,
        len: u32,
    },
    /// The target is gone; `flush`: it is in ERR.
    Leave { qpn: u32, flush: bool },
    /// What became of the requests, in their order.
    Verdicts {
        request: u32,
        qpn: u32,
        verdicts: Verdicts<'a>,
    },
    /// The bytes.
    Data {
        request: u32,
        qpn: u32,
        bytes: Result<&'a [u8], RemoteFault>,
    },
    /// The sender has the descriptor of a context ([`Token`]). Answer: [`Message::ImportAnswer`],
    /// with descriptors of the memory and of the gate.
    Hello { request: u32, token: Token },
    /// An object of that context is to be used. Answer: [`Message::ImportAnswer`].
    Import {
        request: u32,
        token: Token,
        object: Object,
    },
    /// It is not used any more; a region is named by its slot (in the place of its domain) and key.
    Unimport { object: Object },
    /// What was asked about; `errno` 0: granted.
    ImportAnswer {
        request: u32,
        errno: u32,
        slot: u32,
        region: Exported,
    },
    /// Which objects of this kind has the process, from the place `from` on? Answer:
    /// [`Message::Listed`].
    List { request: u32, kind: u8, from: u32 },
    /// As many as the message holds, see [`crate::engine::resources`]; where the next are, 0 if
    /// those were all.
    Listed {
        request: u32,
        next: u32,
        bytes: &'a [u8],
    },
}

/// Proves that its sender was given the descriptor of a context.
pub(crate) type Token = [u8; 16];

/// What can be imported, by the number that its process has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    Pd(u32),
    Mr { pd: u32, index: u32 },
    Dm(u32),
}

impl Object {
    fn words(self) -> [u32; 3] {
        match self {
            Object::Pd(number) => [0, number, 0],
            Object::Mr { pd, index } => [1, pd, index],
            Object::Dm(number) => [2, number, 0],
        }
    }

    fn of(words: [u32; 3]) -> Option<Object> {
        match words {
            [0, number, _] => Some(Object::Pd(number)),
            [1, pd, index] => Some(Object::Mr { pd, index }),
            [2, number, _] => Some(Object::Dm(number)),
            _ => None,
        }
    }
}

const JOIN: u8 = 1;
const EXECUTE: u8 = 2;
const READ: u8 = 3;
const LEAVE: u8 = 4;
const VERDICTS: u8 = 5;
const DATA: u8 = 6;
const HELLO: u8 = 7;
const IMPORT: u8 = 8;
const UNIMPORT: u8 = 9;
const IMPORT_ANSWER: u8 = 10;
const LIST: u8 = 11;
const LISTED: u8 = 12;

/// Packets, each behind its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packets<'a>(&'a [u8]);

impl<'a> Packets<'a> {
    pub(crate) fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = Reader(self.0);
        std::iter::from_fn(move || {
            let len = rest.u32()?;
            rest.take(len as usize)
        })
    }

    /// What [`Packets`] is made of.
    pub(crate) fn encode<'b>(packets: impl Iterator<Item = &'b [u8]>) -> Vec<u8> {
        let mut out = Vec::new();
        for packet in packets {
            out.extend_from_slice(&(packet.len() as u32).to_ne_bytes());
            out.extend_from_slice(packet);
        }
        out
    }

    pub(crate) fn of(encoded: &'a [u8]) -> Packets<'a> {
        Packets(encoded)
    }
}

/// Verdicts, of [`Verdicts::LEN`] bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdicts<'a>(&'a [u8]);

/// All reasons; a verdict names one by its place.
const REASONS: [Refused; 8] = [
    Refused::Access,
    Refused::ReceiveMemory,
    Refused::TooLong,
    Refused::NotAllowed,
    Refused::TooManyReads,
    Refused::Unaligned,
    Refused::Invalidate,
    Refused::Malformed,
];
const EXECUTED: u8 = 0;
const NOT_READY: u8 = 1;
const FIRST_REASON: u8 = 2;

impl<'a> Verdicts<'a> {
    const LEN: usize = 9;

    pub(crate) fn iter(self) -> impl Iterator<Item = Verdict> + 'a {
        self.0.chunks_exact(Verdicts::LEN).map(|bytes| {
            let mut original = [0; 8];
            original.copy_from_slice(&bytes[1..]);
            match bytes[0] {
                EXECUTED => Verdict::Executed {
                    original: u64::from_ne_bytes(original),
                },
                NOT_READY => Verdict::NotReady,
                other => {
                    let why = REASONS.get(usize::from(other - FIRST_REASON));
                    Verdict::Refused(why.copied().unwrap_or(Refused::Malformed))
                }
            }
        })
    }

    pub(crate) fn push(out: &mut Vec<u8>, verdict: Verdict) {
        let (code, original) = match verdict {
            Verdict::Executed { original } => (EXECUTED, original),
            Verdict::NotReady => (NOT_READY, 0),
            Verdict::Refused(why) => {
                let place = REASONS.iter().position(|reason| *reason == why);
                (FIRST_REASON + place.unwrap_or(REASONS.len() - 1) as u8, 0)
            }
        };
        out.push(code);
        out.extend_from_slice(&original.to_ne_bytes());
    }

    pub(crate) fn of(encoded: &'a [u8]) -> Verdicts<'a> {
        Verdicts(encoded)
    }
}

const FAULTS: [RemoteFault; 5] = [
    RemoteFault::UnknownKey,
    RemoteFault::OtherPd,
    RemoteFault::OutOfRange,
    RemoteFault::NoRight,
    RemoteFault::Unmapped,
];

impl<'a> Message<'a> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        let words = |out: &mut Vec<u8>, kind: u8, words: &[u32]| {
            out.push(kind);
            for word in words {
                out.extend_from_slice(&word.to_ne_bytes());
            }
        };
        match *self {
            Message::Join { domain } => words(&mut out, JOIN, &[domain]),
            Message::Execute {
                request,
                target,
                packets,
            } => {
                let Target {
                    qpn,
                    dest_qpn,
                    domain,
                    mtu,
                    rights,
                } = target;
                words(&mut out, EXECUTE, &[request, qpn, dest_qpn, domain]);
                out.extend_from_slice(&[mtu, rights]);
                out.extend_from_slice(packets.0);
            }
            Message::Read {
                request,
                qpn,
                domain,
                srqn,
                rkey,
                va,
                len,
            } => {
                words(&mut out, READ, &[request, qpn, domain, srqn, rkey, len]);
                out.extend_from_slice(&va.to_ne_bytes());
            }
            Message::Leave { qpn, flush } => words(&mut out, LEAVE, &[qpn, flush.into()]),
            Message::Verdicts {
                request,
                qpn,
                verdicts,
            } => {
                words(&mut out, VERDICTS, &[request, qpn]);
                out.extend_from_slice(verdicts.0);
            }
            Message::Hello { request, token } => {
                words(&mut out, HELLO, &[request]);
                out.extend_from_slice(&token);
            }
            Message::Import {
                request,
                token,
                object,
            } => {
                words(&mut out, IMPORT, &[request]);
                out.extend_from_slice(&token);
                for word in object.words() {
                    out.extend_from_slice(&word.to_ne_bytes());
                }
            }
            Message::Unimport { object } => words(&mut out, UNIMPORT, &object.words()),
            Message::ImportAnswer {
                request,
                errno,
                slot,
                region,
            } => {
                let Exported {
                    key,
                    access,
                    base,
                    iova,
                    len,
                } = region;
                words(
                    &mut out,
                    IMPORT_ANSWER,
                    &[request, errno, slot, key, access],
                );
                for long in [base, iova, len] {
                    out.extend_from_slice(&long.to_ne_bytes());
                }
            }
            Message::List {
                request,
                kind,
                from,
            } => {
                words(&mut out, LIST, &[request, from]);
                out.push(kind);
            }
            Message::Listed {
                request,
                next,
                bytes,
            } => {
                words(&mut out, LISTED, &[request, next]);
                out.extend_from_slice(bytes);
            }
            Message::Data {
                request,
                qpn,
                bytes,
            } => {
                words(&mut out, DATA, &[request, qpn]);
                match bytes {
                    Ok(bytes) => {
                        out.push(0);
                        out.extend_from_slice(bytes);
                    }
                    Err(fault) => {
                        let place = FAULTS.iter().position(|f| *f == fault);
                        out.push(1 + place.unwrap_or(0) as u8);
                    }
                }
            }
        }
        out
    }

    /// `None`: no message.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Message<'a>> {
        let mut r = Reader(bytes);
        let message = match r.u8()? {
            JOIN => Message::Join { domain: r.u32()? },
            EXECUTE => Message::Execute {
                request: r.u32()?,
                target: Target {
                    qpn: r.u32()?,
                    dest_qpn: r.u32()?,
                    domain: r.u32()?,
                    mtu: r.u8()?,
                    rights: r.u8()?,
                },
                packets: Packets(r.rest()),
            },
            READ => {
                let (request, qpn, domain) = (r.u32()?, r.u32()?, r.u32()?);
                let (srqn, rkey, len) = (r.u32()?, r.u32()?, r.u32()?);
                Message::Read {
                    request,
                    qpn,
                    domain,
                    srqn,
                    rkey,
                    va: r.u64()?,
                    len,
                }
            }
            LEAVE => Message::Leave {
                qpn: r.u32()?,
                flush: r.u32()? != 0,
            },
            VERDICTS => Message::Verdicts {
                request: r.u32()?,
                qpn: r.u32()?,
                verdicts: Verdicts(r.rest()),
            },
            DATA => Message::Data {
                request: r.u32()?,
                qpn: r.u32()?,
                bytes: match r.u8()? {
                    0 => Ok(r.rest()),
                    other => Err(*FAULTS.get(usize::from(other - 1))?),
                },
            },
            HELLO => Message::Hello {
                request: r.u32()?,
                token: r.array()?,
            },
            IMPORT => Message::Import {
                request: r.u32()?,
                token: r.array()?,
                object: Object::of([r.u32()?, r.u32()?, r.u32()?])?,
            },
            UNIMPORT => Message::Unimport {
                object: Object::of([r.u32()?, r.u32()?, r.u32()?])?,
            },
            IMPORT_ANSWER => Message::ImportAnswer {
                request: r.u32()?,
                errno: r.u32()?,
                slot: r.u32()?,
                region: Exported {
                    key: r.u32()?,
                    access: r.u32()?,
                    base: r.u64()?,
                    iova: r.u64()?,
                    len: r.u64()?,
                },
            },
            LIST => Message::List {
                request: r.u32()?,
                from: r.u32()?,
                kind: r.u8()?,
            },
            LISTED => Message::Listed {
                request: r.u32()?,
                next: r.u32()?,
                bytes: r.rest(),
            },
            _ => return None,
        };
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    //! Whatever comes, it is a message or it is not.

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_come_back_as_they_were() {
        let packets = Packets::encode([&[1u8, 2, 3][..], &[], &[4; 70]].into_iter());
        let mut verdicts = Vec::new();
        let said = [
            Verdict::Executed { original: 77 },
            Verdict::NotReady,
            Verdict::Refused(Refused::TooLong),
            Verdict::Refused(Refused::Malformed),
        ];
        for verdict in said {
            Verdicts::push(&mut verdicts, verdict);
        }
        assert_eq!(Verdicts(&verdicts).iter().collect::<Vec<_>>(), said);
        assert_eq!(
            Packets(&packets)
                .iter()
                .map(<[u8]>::len)
                .collect::<Vec<_>>(),
            [3, 0, 70]
        );
        let target = Target {
            qpn: 1,
            dest_qpn: 2,
            mtu: 3,
            rights: 4,
            domain: 5,
        };
        for message in [
            Message::Join { domain: 9 },
            Message::Execute {
                request: 8,
                target,
                packets: Packets(&packets),
            },
            Message::Read {
                request: 1,
                qpn: 2,
                domain: 3,
                srqn: 4,
                rkey: 5,
                va: 6,
                len: 7,
            },
            Message::Leave {
                qpn: 5,
                flush: true,
            },
            Message::Verdicts {
                request: 1,
                qpn: 2,
                verdicts: Verdicts(&verdicts),
            },
            Message::Data {
                request: 1,
                qpn: 2,
                bytes: Ok(&[1, 2]),
            },
            Message::Data {
                request: 1,
                qpn: 2,
                bytes: Err(RemoteFault::Unmapped),
            },
            Message::Hello {
                request: 1,
                token: [7; 16],
            },
            Message::Import {
                request: 1,
                token: [7; 16],
                object: Object::Mr { pd: 3, index: 4 },
            },
            Message::Unimport {
                object: Object::Dm(8),
            },
            Message::ImportAnswer {
                request: 1,
                errno: 2,
                slot: 3,
                region: Exported {
                    key: 1,
                    access: 2,
                    base: 3,
                    iova: 4,
                    len: 5,
                },
            },
            Message::List {
                request: 1,
                kind: 2,
                from: 3,
            },
            Message::Listed {
                request: 1,
                next: 2,
                bytes: &[3, 4],
            },
        ] {
            assert_eq!(Message::decode(&message.encode()), Some(message));
        }
    }

    proptest! {
        #[test]
        fn anything_is_survived(kind in 0u8..13, bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut message = vec![kind];
            message.extend(bytes);
            match Message::decode(&message) {
                Some(Message::Execute { packets, .. }) => {
                    let all: usize = packets.iter().map(<[u8]>::len).sum();
                    prop_assert!(all <= message.len());
                }
                Some(Message::Verdicts { verdicts, .. }) => {
                    prop_assert!(verdicts.iter().count() <= message.len());
                }
                _ => {}
            }
        }
    }
}
