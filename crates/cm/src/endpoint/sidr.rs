//! Service ID resolution: both sides.

use super::active::{fit, request_data};
use super::{Admission, Endpoint, Incoming};
use crate::{
    Address, CmError, Event, SidrAnswer, SidrConnect, SidrId, SidrReply, SidrRequest, Time,
};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use rnic_wire::Gid;
use rnic_wire::cm::{
    IpCmHeader, MAD_LEN, Mad, Message, ServiceId, SidrRep, SidrReq, SidrStatus, timeout_ns,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// We have asked.
    Asking,
    /// The peer has asked; the host was told.
    Asked,
    /// We have answered, and keep the answer in case that the peer asks again.
    Answered,
}

/// What an endpoint knows of a service ID resolution.
#[derive(Debug)]
pub(super) struct Resolution {
    stage: Stage,
    service: ServiceId,
    /// The requester's id of it.
    request_id: u32,
    address: Address,
    tid: u64,
    retries_left: u8,
    mad: Option<Box<[u8; MAD_LEN]>>,
    /// When the timer fires.
    pub deadline: Option<Time>,
    /// Its place in the queue of the answered ones.
    over: Option<u64>,
}

impl Resolution {
    pub fn retries_left(&self) -> u8 {
        self.retries_left
    }
}

/// All resolutions.
#[derive(Debug, Default)]
pub(super) struct Resolutions {
    by_id: BTreeMap<u32, Resolution>,
    /// Those that a peer has asked for, by where it asked from and its id.
    by_request: BTreeMap<(Gid, u32), u32>,
    /// The answered ones, oldest first.
    over: BTreeMap<u64, u32>,
    next_over: u64,
    unanswered: usize,
}

impl Resolutions {
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn unanswered(&self) -> usize {
        self.unanswered
    }

    pub fn contains(&self, id: u32) -> bool {
        self.by_id.contains_key(&id)
    }

    pub fn get(&self, id: u32) -> Option<&Resolution> {
        self.by_id.get(&id)
    }

    pub fn get_mut(&mut self, id: u32) -> Option<&mut Resolution> {
        self.by_id.get_mut(&id)
    }

    /// Questions that have no answer yet.
    pub fn asking(&self) -> impl Iterator<Item = u32> + use<> {
        let asking = |r: &Resolution| r.stage == Stage::Asking;
        let ids: Vec<u32> = self
            .iter()
            .filter(|(_, r)| asking(r))
            .map(|(id, _)| id)
            .collect();
        ids.into_iter()
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Resolution)> {
        self.by_id.iter().map(|(id, resolution)| (*id, resolution))
    }

    fn insert(&mut self, id: u32, resolution: Resolution) {
        if resolution.stage == Stage::Asked {
            self.unanswered += 1;
            let key = (resolution.address.remote_gid, resolution.request_id);
            self.by_request.insert(key, id);
        }
        self.by_id.insert(id, resolution);
    }

    fn answered(&mut self, id: u32) {
        let Some(resolution) = self.by_id.get_mut(&id) else {
            return;
        };
        resolution.stage = Stage::Answered;
        resolution.over = Some(self.next_over);
        self.over.insert(self.next_over, id);
        self.next_over += 1;
        self.unanswered -= 1;
    }

    fn remove(&mut self, id: u32) -> Option<Resolution> {
        let resolution = self.by_id.remove(&id)?;
        if let Some(over) = resolution.over {
            self.over.remove(&over);
        }
        if resolution.stage != Stage::Asking {
            let key = (resolution.address.remote_gid, resolution.request_id);
            self.by_request.remove(&key);
        }
        self.unanswered -= usize::from(resolution.stage == Stage::Asked);
        Some(resolution)
    }
}

impl Endpoint {
    /// Sends a SIDR_REQ. Leads to [`Event::SidrResponse`](crate::Event::SidrResponse) or
    /// `SidrUnreachable`.
    ///
    /// # Errors
    /// [`CmError::PrivateData`], [`CmError::IpCmHeader`], [`CmError::NoIds`].
    pub fn sidr_connect(
        &mut self,
        now: Time,
        connect: &SidrConnect<'_>,
    ) -> Result<SidrId, CmError> {
        let private_data = request_data(connect.service, &connect.ip, connect.private_data)?;
        let id = self.new_id()?;
        let tid = self.transaction(id);
        let req = SidrReq {
            request_id: id,
            pkey: connect.pkey,
            service_id: connect.service,
            private_data,
        };
        let mad = Mad {
            tid,
            attr_modifier: 0,
            message: Message::SidrReq(req),
        }
        .emit();
        let resolution = Resolution {
            stage: Stage::Asking,
            service: connect.service,
            request_id: id,
            address: connect.address,
            tid,
            retries_left: self.config.max_retries.min(15),
            mad: Some(Box::new(mad)),
            deadline: None,
            over: None,
        };
        self.resolutions.insert(id, resolution);
        self.send(connect.address, mad);
        let at = now.after(timeout_ns(self.config.response_timeout));
        self.arm(id, at);
        Ok(SidrId(id))
    }

    /// After [`Event::SidrRequest`](crate::Event::SidrRequest): sends a SIDR_REP. The resolution is
    /// destroyed: no event names it any more.
    ///
    /// # Errors
    /// [`CmError::Unknown`], [`CmError::PrivateData`].
    pub fn sidr_answer(
        &mut self,
        now: Time,
        sidr: SidrId,
        answer: &SidrAnswer<'_>,
    ) -> Result<(), CmError> {
        let known = self.resolutions.get_mut(sidr.0);
        let resolution = known
            .filter(|resolution| resolution.stage == Stage::Asked)
            .ok_or(CmError::Unknown)?;
        let rep = SidrRep {
            request_id: resolution.request_id,
            status: answer.status,
            info_len: answer.info.len() as u8,
            qpn: answer.qpn,
            service_id: resolution.service,
            qkey: answer.qkey,
            additional_info: fit(answer.info)?,
            private_data: fit(answer.private_data)?,
        };
        let mad = Mad {
            tid: resolution.tid,
            attr_modifier: 0,
            message: Message::SidrRep(rep),
        }
        .emit();
        resolution.mad = Some(Box::new(mad));
        let address = resolution.address;
        self.resolutions.answered(sidr.0);
        self.send(address, mad);
        self.events.retain(|event| event.sidr() != Some(sidr));
        let at = now.after(self.refusal_ns(false));
        self.arm(sidr.0, at);
        while self.resolutions.over.len() > self.config.max_time_wait
            && let Some((_, oldest)) = self.resolutions.over.pop_first()
        {
            self.counters.time_wait_overflow += 1;
            self.resolutions.remove(oldest);
        }
        Ok(())
    }

    /// The application has no more interest: a question is not repeated any more, one that was not
    /// answered is answered with "rejected".
    pub fn sidr_destroy(&mut self, now: Time, sidr: SidrId) {
        match self.resolutions.get(sidr.0).map(|r| r.stage) {
            Some(Stage::Asking) => {
                self.resolutions.remove(sidr.0);
            }
            Some(Stage::Asked) => {
                let answered = self.sidr_answer(now, sidr, &no(SidrStatus::REJECTED));
                debug_assert_eq!(answered, Ok(()));
            }
            Some(Stage::Answered) | None => {}
        }
        self.events.retain(|event| event.sidr() != Some(sidr));
    }

    pub(super) fn handle_sidr_req(
        &mut self,
        _now: Time,
        from: &Address,
        tid: u64,
        req: &SidrReq,
        admit: &mut dyn FnMut(&Incoming) -> Admission,
    ) {
        let key = (from.remote_gid, req.request_id);
        if let Some(id) = self.resolutions.by_request.get(&key).copied() {
            let known = self.resolutions.get(id);
            let same = known.is_some_and(|r| (r.service, r.tid) == (req.service_id, tid));
            let asked = known.is_some_and(|r| r.stage == Stage::Asked);
            if same || asked {
                self.counters.duplicates += 1;
                self.answer_again(id);
                return;
            }
            // Its sender was restarted and counts from the same number.
            self.resolutions.remove(id);
        }
        if !self.has_room_for_a_request() {
            self.counters.dropped += 1;
            return;
        }
        let has_header = req.service_id.port().is_some();
        let ip = has_header.then(|| IpCmHeader::parse(&req.private_data));
        let incoming = Incoming {
            service: req.service_id,
            transport: None,
            ip,
            local_gid: from.local_gid,
            remote_gid: from.remote_gid,
        };
        let refuse = |endpoint: &mut Endpoint, status| {
            endpoint.counters.refused += 1;
            let rep = SidrRep {
                request_id: req.request_id,
                status,
                info_len: 0,
                qpn: 0,
                service_id: req.service_id,
                qkey: 0,
                additional_info: [0; 72],
                private_data: [0; 136],
            };
            endpoint.reply(from, tid, Message::SidrRep(rep));
        };
        let listener = match admit(&incoming) {
            Admission::Admit(listener) => listener,
            Admission::NobodyListens => return refuse(self, SidrStatus::UNSUPPORTED),
            Admission::Refuse(_) => return refuse(self, SidrStatus::REJECTED),
            Admission::Drop => {
                self.counters.dropped += 1;
                return;
            }
        };
        if !self.has_good_header(&ip) {
            return refuse(self, SidrStatus::REJECTED);
        }
        let Ok(id) = self.new_id() else {
            return refuse(self, SidrStatus::REJECTED);
        };
        let resolution = Resolution {
            stage: Stage::Asked,
            service: req.service_id,
            request_id: req.request_id,
            address: *from,
            tid,
            retries_left: 0,
            mad: None,
            deadline: None,
            over: None,
        };
        self.resolutions.insert(id, resolution);
        let request = Box::new(SidrRequest {
            req: *req,
            ip: ip.and_then(Result::ok),
            address: *from,
        });
        self.events.push_back(Event::SidrRequest {
            sidr: SidrId(id),
            listener,
            request,
        });
    }

    pub(super) fn handle_sidr_rep(&mut self, from: &Address, tid: u64, rep: &SidrRep) {
        let id = rep.request_id;
        let known = self.resolutions.get(id);
        let Some(resolution) = known.filter(|r| {
            r.stage == Stage::Asking && r.tid == tid && r.address.joins_same_ends(from)
        }) else {
            self.counters.unexpected += 1;
            return;
        };
        let service = resolution.service;
        self.resolutions.remove(id);
        let reply = Box::new(SidrReply { rep: *rep, service });
        let sidr = SidrId(id);
        self.events.push_back(Event::SidrResponse { sidr, reply });
    }

    pub(super) fn resolution_timeout(&mut self, now: Time, id: u32) {
        let Some(resolution) = self.resolutions.get_mut(id) else {
            return;
        };
        resolution.deadline = None;
        if resolution.stage == Stage::Asking && resolution.retries_left > 0 {
            resolution.retries_left -= 1;
            self.counters.retransmits += 1;
            self.answer_again(id);
            let at = now.after(timeout_ns(self.config.response_timeout));
            self.arm(id, at);
            return;
        }
        let asking = resolution.stage == Stage::Asking;
        self.resolutions.remove(id);
        if asking {
            let sidr = SidrId(id);
            self.events.push_back(Event::SidrUnreachable { sidr });
        }
    }

    /// Sends what was sent last, question or answer.
    pub(super) fn answer_again(&mut self, id: u32) {
        let known = self.resolutions.get(id);
        let said = known.and_then(|r| Some((r.address, *r.mad.as_deref()?)));
        let Some((address, mad)) = said else {
            return;
        };
        if self.out.len() >= self.config.max_replies {
            self.counters.replies_dropped += 1;
            return;
        }
        self.send(address, mad);
    }
}

/// An answer that says only why there is none.
fn no(status: SidrStatus) -> SidrAnswer<'static> {
    SidrAnswer {
        status,
        qpn: 0,
        qkey: 0,
        info: &[],
        private_data: &[],
    }
}
