//! The side that imports another process's objects: what it has asked, and what was answered.

use std::collections::HashMap;
use std::sync::Arc;

use rnic_host::PeerId;
use rnic_sys::Fd;

use super::message::{Message, Object};
use crate::memory::{Exported, Foreign};

/// Questions of verbs that wait, and what was answered.
#[derive(Debug, Default)]
pub(crate) struct Imported {
    pub(crate) awaited: HashMap<u32, (PeerId, Option<Answer>)>,
    /// Imports whose answer was not waited for: what is granted then is to be given back.
    pub(crate) late: HashMap<u32, (PeerId, Object)>,
    pub(crate) processes: HashMap<PeerId, Arc<Foreign>>,
    /// Domains of other processes: theirs, and what they are here.
    pub(crate) domains: HashMap<(PeerId, u32), u32>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) errno: i32,
    pub(crate) slot: u32,
    pub(crate) region: Exported,
    pub(crate) fds: Vec<Fd>,
}

impl Imported {
    /// [`Message::ImportAnswer`] has come; what is to be said to it. An answer counts if it comes
    /// from whom was asked.
    pub(crate) fn on_answer(
        &mut self,
        peer: PeerId,
        message: Message<'_>,
        fds: &mut Vec<Fd>,
    ) -> Option<Vec<u8>> {
        let Message::ImportAnswer {
            request,
            errno,
            slot,
            region,
        } = message
        else {
            return None;
        };
        if let Some((asked, answer)) = self.awaited.get_mut(&request)
            && *asked == peer
        {
            *answer = Some(Answer {
                errno: errno as i32,
                slot,
                region,
                fds: std::mem::take(fds),
            });
            return None;
        }
        let (_, object) = self
            .late
            .get(&request)
            .filter(|(asked, _)| *asked == peer)?;
        let object = match *object {
            Object::Mr { .. } => granted(slot, region.key),
            other => other,
        };
        self.late.remove(&request);
        (errno == 0).then(|| Message::Unimport { object }.encode())
    }

    /// A process is gone.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.processes.remove(&peer);
        self.late.retain(|_, (who, _)| *who != peer);
        self.domains.retain(|(who, _), _| *who != peer);
    }
}

/// A region that was imported, as [`Message::Unimport`] names it.
pub(crate) fn granted(slot: u32, key: u32) -> Object {
    Object::Mr {
        pd: slot,
        index: key,
    }
}
