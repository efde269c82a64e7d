//! What completes next at an endpoint, and what may come to it.
//!
//! A datagram that comes was sent by the QPN that the completion names, to this endpoint or to a
//! group that it is attached to, with its Q_Key, and not more often than the network repeated it.
//! In front of it are 40 bytes that say from where it came and to where (IBTA vol. 1, 11.4.1.2 and
//! annex A17.9). If the network keeps packets in order, the datagrams of each sender come in their
//! order.
//!
//! Whatever arrives at the host for the endpoint is received, or counted as dropped: for want of a
//! receive, or with a wrong Q_Key.

use std::net::IpAddr;
use std::rc::Rc;

use rnic_nic::{Completion, CompletionOpcode, Counters, Gid, Immediate, NetworkHeader, Status};
use rnic_wire::ip::{Ipv4Header, UDP_LEN};
use rnic_wire::{Bth, Deth, ICRC_LEN, ImmDt, UdPrefix};

use super::Everybody;
use crate::inbox::Inbox;
use crate::pattern::{bytes_of, place};
use crate::scenario::{Datagram, Endpoint, To};

/// Endpoints have bytes of these owners.
const OWNER: usize = 5000;

/// What is known of an endpoint so far.
pub(super) struct Oracle {
    at: usize,
    all: Rc<Everybody>,
    /// Datagrams that are known to be complete.
    completed: usize,
    /// Of each sender's datagrams, how often each has come.
    came: Vec<Vec<u64>>,
    /// Of each sender, the datagram that came last, plus one.
    last: Vec<usize>,
    received: u64,
    /// A datagram did not fit into its receive: the queue pair is in ERR.
    is_broken: bool,
    /// For that, a send was flushed, and all behind it: this one is the first.
    is_flushing: bool,
    first_flushed: usize,
}

/// Packets that have come to an endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Come {
    pub(super) most: u64,
    /// No fewer.
    pub(super) is_exact: bool,
}

/// Length of the memory that an endpoint's datagrams come from.
pub(super) fn source_len(spec: &Endpoint) -> usize {
    let lens = spec.datagrams.iter().map(|datagram| datagram.len as usize);
    lens.max().unwrap_or(0).max(64) + 512
}

/// What that memory holds.
pub(super) fn source_bytes(at: usize, begin: usize, len: usize) -> &'static [u8] {
    bytes_of(OWNER + at, 0, begin, len)
}

impl Oracle {
    pub(super) fn new(at: usize, all: Rc<Everybody>) -> Oracle {
        Oracle {
            at,
            completed: 0,
            came: all
                .specs
                .iter()
                .map(|s| vec![0; s.datagrams.len()])
                .collect(),
            last: vec![0; all.specs.len()],
            received: 0,
            is_broken: false,
            is_flushing: false,
            first_flushed: usize::MAX,
            all,
        }
    }

    pub(super) fn spec(&self) -> &Endpoint {
        &self.all.specs[self.at]
    }

    pub(super) fn posted(&self) -> usize {
        self.all.posted[self.at].get()
    }

    /// The next datagram is posted.
    pub(super) fn posts(&self) {
        self.all.posted[self.at].set(self.posted() + 1);
    }

    /// Datagrams in the send queue, as far as the program knows.
    pub(super) fn queued(&self) -> usize {
        self.posted() - self.completed
    }

    /// Datagrams that the program has received.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Each completion of a send is there.
    pub(super) fn is_done(&self) -> bool {
        self.completed == self.spec().datagrams.len()
    }

    /// Whether datagram `nth` makes a completion.
    pub(super) fn is_signaled(&self, nth: usize) -> bool {
        let spec = self.spec();
        spec.datagrams[nth].signaled
            || nth + 1 == spec.datagrams.len()
            || (nth + 1).is_multiple_of((spec.depth as usize / 2).max(1))
    }

    /// A completion of the send queue.
    pub(super) fn check_send(&mut self, completion: &Completion) -> Result<(), String> {
        let nth = completion.wr_id as usize;
        let flushed = self.is_broken && completion.status == Status::WorkRequestFlushed;
        let due = (self.completed..self.posted()).find(|at| {
            let fails = self.spec().datagrams[*at].expect != Status::Success;
            // All behind the first that is flushed are.
            let flushed = flushed && (self.is_flushing || *at == nth);
            self.is_signaled(*at) || fails || flushed
        });
        if due != Some(nth) {
            return Err(format!("datagram {nth} completes, due was {due:?}"));
        }
        let expect = self.spec().datagrams[nth].expect;
        if completion.status != expect && !flushed {
            return Err(format!(
                "datagram {nth} ends with {:?}, not {expect:?}",
                completion.status
            ));
        }
        if completion.status == Status::Success && completion.opcode != CompletionOpcode::Send {
            return Err(format!("datagram {nth} is told as {:?}", completion.opcode));
        }
        if flushed && !std::mem::replace(&mut self.is_flushing, true) {
            self.first_flushed = nth;
        }
        self.completed = nth + 1;
        Ok(())
    }

    /// The receive of a slot has completed.
    pub(super) fn check_receive(
        &mut self,
        slot: usize,
        completion: &Completion,
        inbox: &mut Inbox,
    ) -> Result<(), String> {
        match completion.status {
            Status::Success => {}
            Status::WorkRequestFlushed if self.is_broken => return Ok(()),
            Status::LocalLengthError if !self.is_broken && self.may_be_too_long(inbox) => {
                self.is_broken = true;
                return Ok(());
            }
            other => return Err(format!("receive {slot} ends with {other:?}")),
        }
        let Some(from) = self.all.of_qpn(completion.src_qpn) else {
            return Err(format!(
                "receive {slot}: no endpoint has QPN {}",
                completion.src_qpn
            ));
        };
        let dst = self.check_header(slot, from, completion, inbox)?;
        let begin = if self.all.in_order {
            self.last[from]
        } else {
            0
        };
        let found = (begin..self.all.posted[from].get()).find(|nth| {
            let datagram = &self.all.specs[from].datagrams[*nth];
            let once = self.came[from][*nth] == 0;
            once && self.may_come(from, datagram, dst)
                && self.is_datagram(from, *nth, slot, completion, inbox)
        });
        // What the network repeats comes again.
        let found = found.or_else(|| {
            let repeats = (0..self.all.posted[from].get()).filter(|_| !self.all.in_order);
            let mut repeats = repeats.filter(|nth| {
                self.may_come(from, &self.all.specs[from].datagrams[*nth], dst)
                    && self.is_datagram(from, *nth, slot, completion, inbox)
            });
            repeats.next()
        });
        let Some(nth) = found else {
            let name = &self.all.specs[from].name;
            return Err(format!("receive {slot}: {name} has not sent that"));
        };
        self.came[from][nth] += 1;
        self.last[from] = nth + 1;
        self.received += 1;
        inbox.came(slot, completion.byte_len as usize);
        Ok(())
    }

    /// That datagram of endpoint `from` may come here, to that address.
    fn may_come(&self, from: usize, datagram: &Datagram, dst: IpAddr) -> bool {
        let here = match datagram.to {
            To::Endpoint(_) => dst == self.all.addresses[self.at],
            To::Group(group) => dst == group,
        };
        here && datagram.expect == Status::Success
            && self.all.is_for(self.at, datagram)
            && self.all.qkey(from, datagram) == self.spec().qkey
    }

    /// Somebody has sent here what no receive has room for.
    fn may_be_too_long(&self, inbox: &Inbox) -> bool {
        let specs = self.all.specs.iter().enumerate();
        let mut sent = specs.flat_map(|(from, spec)| {
            let posted = self.all.posted[from].get();
            spec.datagrams[..posted].iter().map(move |d| (from, d))
        });
        sent.any(|(from, datagram)| {
            let len = UdPrefix::LEN + datagram.len as usize;
            let dst = match datagram.to {
                To::Endpoint(_) => self.all.addresses[self.at],
                To::Group(group) => group,
            };
            len > inbox.room() && self.may_come(from, datagram, dst)
        })
    }

    /// Looks at the network header in front of a datagram; gives the address that it came to.
    fn check_header(
        &self,
        slot: usize,
        from: usize,
        completion: &Completion,
        inbox: &Inbox,
    ) -> Result<IpAddr, String> {
        let wrong = |what: &str| Err(format!("receive {slot}: {what}"));
        let Some(payload) = (completion.byte_len as usize).checked_sub(UdPrefix::LEN) else {
            return wrong("it is shorter than a GRH");
        };
        let bytes = inbox.front::<{ UdPrefix::LEN }>(slot);
        let Some(Ok(prefix)) = bytes.map(|bytes| UdPrefix::parse(&bytes)) else {
            return wrong("its first 40 bytes are no network header");
        };
        let imm = match completion.immediate {
            Immediate::Data(_) => ImmDt::LEN,
            _ => 0,
        };
        let packet = Bth::LEN + Deth::LEN + imm + payload.next_multiple_of(4) + ICRC_LEN;
        let datagram = UDP_LEN + packet;
        let (kind, src, dst, len, due) = match prefix {
            UdPrefix::V4(ip) => (
                NetworkHeader::Ipv4,
                IpAddr::V4(ip.src),
                IpAddr::V4(ip.dst),
                ip.total_len,
                Ipv4Header::LEN + datagram,
            ),
            UdPrefix::V6(grh) => (
                NetworkHeader::Ipv6,
                Gid(grh.sgid).ip(),
                Gid(grh.dgid).ip(),
                grh.payload_len,
                datagram,
            ),
            UdPrefix::None => return wrong("it has no network header"),
        };
        if completion.grh != Some(kind) {
            return wrong(&format!("it is told to have {:?}", completion.grh));
        }
        if src != self.all.addresses[from] {
            return wrong(&format!("its header says that it comes from {src}"));
        }
        if usize::from(len) != due {
            return wrong(&format!("its header says {len} bytes, and it has {due}"));
        }
        Ok(dst)
    }

    /// What came is that datagram of endpoint `from`.
    fn is_datagram(
        &self,
        from: usize,
        nth: usize,
        slot: usize,
        completion: &Completion,
        inbox: &Inbox,
    ) -> bool {
        let spec = &self.all.specs[from];
        let datagram = &spec.datagrams[nth];
        let len = datagram.len as usize;
        let immediate = match datagram.imm {
            true => Immediate::Data((nth as u32).to_be_bytes()),
            false => Immediate::None,
        };
        let wanted = source_bytes(from, place(nth, len, source_len(spec)), len);
        completion.opcode == CompletionOpcode::Recv
            && completion.immediate == immediate
            && completion.byte_len as usize == UdPrefix::LEN + len
            && inbox.has(slot, UdPrefix::LEN, wanted)
            && inbox.is_empty_behind(slot, UdPrefix::LEN + len)
    }

    /// Datagrams that have left for endpoint `to`, and for no group.
    pub(super) fn sent_to(&self, to: usize) -> u64 {
        let left = self.posted().min(self.first_flushed);
        let datagrams = self.spec().datagrams[..left].iter();
        let meant = datagrams.filter(|datagram| {
            datagram.to == To::Endpoint(to) && datagram.expect == Status::Success
        });
        meant.count() as u64
    }

    /// At the end, when so many packets have come: what was counted, and how often datagrams came
    /// more than once.
    pub(super) fn check_counts(&self, come: Come, counters: &Counters) -> Result<u64, String> {
        let Counters {
            packets_received,
            messages_received,
            messages_dropped,
            qkey_violations,
            dropped,
            ..
        } = *counters;
        let parts = messages_received + messages_dropped + qkey_violations + dropped;
        let due = match come.is_exact {
            true => come.most..=come.most,
            false => 0..=come.most,
        };
        // In ERR nothing is taken in, and the one that did not fit is no message.
        if !self.is_broken && (!due.contains(&packets_received) || parts != packets_received) {
            return Err(format!(
                "{due:?} packets came, {packets_received} were taken in: {messages_received} received, \
                 {messages_dropped} without a receive, {qkey_violations} with a wrong Q_Key, {dropped} others"
            ));
        }
        if messages_received != self.received {
            return Err(format!(
                "{messages_received} datagrams were received, and {} completions came",
                self.received
            ));
        }
        let came = self.came.iter().flatten();
        Ok(came.map(|count| count.saturating_sub(1)).sum())
    }
}
