//! The way to a peer that does not answer, as this host's kernel and ICMP know it. What they say is
//! asked for apart from the packets of queue pairs, and only once an answer is overdue.

use rnic_link::Address;
use rnic_link::udp::inquiry::{Inquiry, longest_packet};
use rnic_link::udp::tx::learned_mtu;
use rnic_transport::SendFailed;

use super::failure::is_here;
use super::line::Line;
use super::{Connection, State, is_on, state};
use crate::addressing::address::headroom;

/// Ways that are asked about.
const MOST: usize = 16;
/// Time between two questions about one way, ns.
const PAUSE_NS: u64 = 200_000_000;

/// What was asked about one way.
#[derive(Debug)]
struct Asked {
    ends: (Address, Address),
    /// `None`: not even that was possible.
    inquiry: Option<Inquiry>,
    at_ns: u64,
    /// The last error, and when it was found.
    said: Option<(i32, u64)>,
}

impl Asked {
    fn note(&mut self, error: Option<i32>, now_ns: u64) {
        if let Some(error) = error {
            self.said = Some((error, now_ns));
        }
    }

    /// Takes the answer to the last question, and asks again.
    fn ask(&mut self, now_ns: u64) {
        self.at_ns = now_ns;
        if self.inquiry.is_none() {
            let (Some(local), Some(remote)) = (self.ends.0.ip(), self.ends.1.ip()) else {
                return;
            };
            match Inquiry::open(local, remote) {
                Ok(inquiry) => self.inquiry = Some(inquiry),
                Err(error) => return self.note(error.raw_os_error(), now_ns),
            }
        }
        let Some(inquiry) = &self.inquiry else { return };
        let before = inquiry.answer();
        let asked = inquiry.ask().err().and_then(|error| error.raw_os_error());
        // Within this host, and often beyond, the answer is there at once.
        let answer = before.or(asked).or_else(|| inquiry.answer());
        self.note(answer, now_ns);
    }
}

/// All that was asked, the oldest first.
#[derive(Debug)]
pub(super) struct Inquiries(Vec<Asked>);

impl Inquiries {
    pub(super) const fn new() -> Inquiries {
        Inquiries(Vec::new())
    }

    fn ask(&mut self, local: Address, remote: Address, now_ns: u64) -> &Asked {
        let ends = (local, remote);
        let place = match self.0.iter().position(|asked| asked.ends == ends) {
            Some(place) => place,
            None => {
                if self.0.len() == MOST {
                    self.0.remove(0);
                }
                self.0.push(Asked {
                    ends,
                    inquiry: None,
                    at_ns: 0,
                    said: None,
                });
                self.0.len() - 1
            }
        };
        let asked = &mut self.0[place];
        if now_ns.saturating_sub(asked.at_ns) >= PAUSE_NS {
            rnic_sys::uncancelled(|| asked.ask(now_ns));
        } else {
            let answer = asked.inquiry.as_ref().and_then(Inquiry::answer);
            asked.note(answer, now_ns);
        }
        asked
    }
}

/// An answer is overdue.
pub(crate) fn no_answer(local: Address, remote: Address) {
    if !is_on() {
        return;
    }
    if let Some(mut state) = state() {
        state.inquiries.ask(local, remote, rnic_sys::now_ns());
    }
}

/// What the kernel or ICMP says of the way to a peer that has not answered a connection manager; an
/// errno.
pub(super) fn error_of(local: Address, remote: Address) -> Option<u32> {
    let mut state = state()?;
    let asked = state.inquiries.ask(local, remote, rnic_sys::now_ns());
    asked.said.map(|(error, _)| error.unsigned_abs())
}

impl State {
    /// What is known of the way of a request that got no answer.
    pub(super) fn name_way(&mut self, line: &mut Line, qpn: u32, sent: Option<&SendFailed>) {
        let Some(connection) = self.connections.get(&qpn).copied() else {
            return;
        };
        let Connection { local, remote, .. } = connection;
        let now_ns = rnic_sys::now_ns();
        let waited_ns = sent.map_or(0, |sent| sent.waited_ns);
        let asked = match is_here(&connection) {
            true => None,
            false => Some(self.inquiries.ask(local, remote, now_ns)),
        };
        // What was said of an earlier silence is no news of this one.
        let said = asked.and_then(|asked| asked.said);
        if let Some((error, at)) = said
            && now_ns.saturating_sub(at) <= waited_ns
        {
            line.number("way_errno", error.unsigned_abs().into());
        }
        let (Some(from), Some(to), Some(mtu)) = (local.ip(), remote.ip(), connection.attr.path_mtu)
        else {
            return;
        };
        let full = mtu.bytes() as u32 + headroom(&remote);
        let (learned, longest) =
            rnic_sys::uncancelled(|| (learned_mtu(from, to), longest_packet(from, to)));
        if let Some(longest) = longest.filter(|longest| *longest < full) {
            line.number("interface_bytes", longest.into());
            return;
        }
        // What ICMP has said, if long packets of this queue pair are longer than it takes.
        if let Some(learned) = learned.filter(|learned| *learned < full) {
            line.number("path_bytes", learned.into());
        }
    }
}
