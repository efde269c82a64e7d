//! What the connection managers said: connections by their communication ids, and service
//! resolutions.

use std::net::IpAddr;

use rnic_wire::cm::{
    Answered, Attribute, IpCmHeader, Mad, Message, RejectReason, Rep, Req, ServiceId, SidrStatus,
};

use crate::end::{End, other};

/// A connection, or the resolution of a datagram service.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The addresses of the active side (0) and the passive one (1).
    pub addrs: [IpAddr; 2],
    /// Communication ids, or the request id of a resolution on both sides.
    pub ids: [Option<u32>; 2],
    /// What was asked for, if the request was captured.
    pub service: Option<ServiceId>,
    /// A resolution of a datagram service, not a connection.
    pub resolution: bool,
    /// Addresses and port in the request's private data.
    pub ip_cm: Option<IpCmHeader>,
    /// The request.
    pub req: Option<Box<Req>>,
    /// The reply.
    pub rep: Option<Box<Rep>>,
    /// The answer to a resolution: status, QPN, Q_Key.
    pub resolved: Option<(SidrStatus, u32, u32)>,
    /// Who rejected, which message, why.
    pub rejected: Option<(End, Answered, RejectReason)>,
    /// Private data of each message that had some, without the zeros at its end.
    pub private_data: Vec<(Attribute, Vec<u8>)>,
    /// All messages.
    pub steps: Vec<Step>,
    /// Messages beyond those that are kept.
    pub more_steps: u64,
    /// Index into [`crate::Capture::conversations`].
    pub conversation: Option<usize>,
}

/// A message of the connection manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// When.
    pub time: u64,
    /// Its packet.
    pub number: u64,
    /// Who sent it.
    pub from: End,
    /// Which.
    pub what: Attribute,
    /// It had been sent before.
    pub again: bool,
}

const STEPS: usize = 1000;

/// All of them, as they come.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    pub all: Vec<Connection>,
}

/// What a message means for the data that follows.
pub(crate) enum News {
    None,
    /// Both queue pairs are known.
    Pair(usize),
}

impl Connections {
    /// A MAD from `src` to `dst`. Returns the connection, who of it sent the message, and what
    /// follows; `None` if it would be one more than `most`.
    pub fn message(
        &mut self,
        most: usize,
        src: IpAddr,
        dst: IpAddr,
        time: u64,
        number: u64,
        mad: &Mad,
    ) -> Option<(usize, End, News)> {
        let (local, remote) = match &mad.message {
            Message::Req(m) => (m.local_id, 0),
            Message::Mra(m) => (m.local_id, m.remote_id),
            Message::Rej(m) => (m.local_id, m.remote_id),
            Message::Rep(m) => (m.local_id, m.remote_id),
            Message::Rtu(m) => (m.local_id, m.remote_id),
            Message::Dreq(m) => (m.local_id, m.remote_id),
            Message::Drep(m) => (m.local_id, m.remote_id),
            Message::SidrReq(m) => (m.request_id, 0),
            Message::SidrRep(m) => (0, m.request_id),
        };
        let resolution = matches!(mad.message, Message::SidrReq(_) | Message::SidrRep(_));
        let asks = matches!(mad.message, Message::Req(_) | Message::SidrReq(_));
        let (index, from) = match self.find(src, dst, local, remote, resolution, asks) {
            Some(found) => found,
            None if self.all.len() >= most => return None,
            None => {
                // Who rejects or replies is the passive side; of others one does not know.
                let passive = matches!(
                    mad.message,
                    Message::Rep(_) | Message::Mra(_) | Message::Rej(_) | Message::SidrRep(_)
                );
                let from = usize::from(passive);
                let mut addrs = [src, dst];
                if passive {
                    addrs.reverse();
                }
                self.all.push(Connection {
                    addrs,
                    ids: [None, None],
                    service: None,
                    resolution,
                    ip_cm: None,
                    req: None,
                    rep: None,
                    resolved: None,
                    rejected: None,
                    private_data: Vec::new(),
                    steps: Vec::new(),
                    more_steps: 0,
                    conversation: None,
                });
                (self.all.len() - 1, from)
            }
        };
        let connection = &mut self.all[index];
        if local != 0 {
            connection.ids[from].get_or_insert(local);
        }
        if remote != 0 {
            connection.ids[other(from)].get_or_insert(remote);
        }
        let what = mad.message.attribute();
        let again = connection
            .steps
            .iter()
            .any(|step| step.from == from && step.what == what);
        if connection.steps.len() < STEPS {
            connection.steps.push(Step {
                time,
                number,
                from,
                what,
                again,
            });
        } else {
            connection.more_steps += 1;
        }
        let news = connection.learn(index, from, mad);
        Some((index, from, news))
    }

    fn find(
        &self,
        src: IpAddr,
        dst: IpAddr,
        local: u32,
        remote: u32,
        resolution: bool,
        asks: bool,
    ) -> Option<(usize, End)> {
        // The latest ones first: ids are used again. Far back nobody waits any more.
        let candidates = self.all.iter().enumerate().rev().take(4096);
        for (index, connection) in candidates {
            if connection.resolution != resolution {
                continue;
            }
            for from in [0, 1] {
                if connection.addrs[from] != src || connection.addrs[other(from)] != dst {
                    continue;
                }
                let [mine, peers] = [connection.ids[from], connection.ids[other(from)]];
                let fits = |known: Option<u32>, said: u32| {
                    said == 0 || known.is_none() || known == Some(said)
                };
                let names =
                    local != 0 && mine == Some(local) || remote != 0 && peers == Some(remote);
                if names && fits(mine, local) && fits(peers, remote) && !(asks && from == 1) {
                    return Some((index, from));
                }
            }
        }
        None
    }
}

impl Connection {
    fn learn(&mut self, index: usize, from: End, mad: &Mad) -> News {
        match &mad.message {
            Message::Req(req) => {
                self.service = Some(req.service_id);
                self.keep_private(
                    Attribute::Req,
                    &req.private_data,
                    req.service_id.port().is_some(),
                );
                self.req.get_or_insert_with(|| Box::new(*req));
            }
            Message::Rep(rep) => {
                self.keep_private(Attribute::Rep, &rep.private_data, false);
                if self.rep.is_none() {
                    self.rep = Some(Box::new(*rep));
                    if self.req.is_some() {
                        return News::Pair(index);
                    }
                }
            }
            Message::Rej(rej) => {
                self.keep_private(Attribute::Rej, &rej.private_data, false);
                self.rejected.get_or_insert((from, rej.message, rej.reason));
            }
            Message::Rtu(rtu) => self.keep_private(Attribute::Rtu, &rtu.private_data, false),
            Message::Mra(mra) => self.keep_private(Attribute::Mra, &mra.private_data, false),
            Message::Dreq(dreq) => self.keep_private(Attribute::Dreq, &dreq.private_data, false),
            Message::Drep(drep) => self.keep_private(Attribute::Drep, &drep.private_data, false),
            Message::SidrReq(req) => {
                self.service = Some(req.service_id);
                let headed = req.service_id.port().is_some();
                self.keep_private(Attribute::SidrReq, &req.private_data, headed);
            }
            Message::SidrRep(rep) => {
                self.service.get_or_insert(rep.service_id);
                self.keep_private(Attribute::SidrRep, &rep.private_data, false);
                self.resolved.get_or_insert((rep.status, rep.qpn, rep.qkey));
            }
        }
        News::None
    }

    fn keep_private(&mut self, what: Attribute, bytes: &[u8], headed: bool) {
        let mut rest = bytes;
        if headed && let Ok(header) = IpCmHeader::parse(bytes) {
            self.ip_cm = Some(header);
            rest = bytes.get(IpCmHeader::LEN..).unwrap_or_default();
        }
        let len = rest
            .iter()
            .rposition(|&byte| byte != 0)
            .map_or(0, |at| at + 1);
        if len > 0 && !self.private_data.iter().any(|(known, _)| *known == what) {
            self.private_data.push((what, rest[..len].to_vec()));
        }
    }

    /// Whether a message of this kind was seen, from either side.
    pub fn has(&self, what: Attribute) -> bool {
        self.steps.iter().any(|step| step.what == what)
    }

    /// How often a message was sent by a side.
    pub fn times(&self, from: End, what: Attribute) -> usize {
        let of = |step: &&Step| step.from == from && step.what == what;
        self.steps.iter().filter(of).count()
    }
}
