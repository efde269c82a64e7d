//! Queues, as the engine works on them and programs hold them: queue pairs, completion queues and
//! channels, shared receive queues, XRC domains.
//!
//! What is here is shared by both sides: the engine ([`crate::engine`]) fills and drains it, and
//! the handles of a program ([`mod@crate::objects`]) lead to it. It lies below both and knows
//! neither: what it asks of the device stands in [`owner`].

mod channel;
mod cq;
mod cq_moderation;
mod cq_ring;
mod cq_tasks;
mod domain;
mod events;
mod owner;
mod qp;
mod qp_attr;
mod shard_set;
mod signals;
mod slots;
mod srq;
pub(crate) mod usage;

pub(crate) use channel::{ChannelShared, events_so_far, waiting_for_channels};
pub use cq::CqOptions;
pub(crate) use cq::{CqShared, Facts as CqFacts, Standing as CqStanding};
pub use cq_moderation::MAX_CQ_PERIOD;
pub(crate) use cq_tasks::CqTasks;
pub(crate) use domain::{Domain, Domains, Target};
pub(crate) use events::AsyncEvents;
pub(crate) use owner::{DeviceUpcalls, Owner};
pub(crate) use qp::{Listener, QpShared, ReceiveSource};
pub(crate) use qp_attr::service;
pub use rnic_types::{AsyncEvent, QpAttr, QpAttrMask, QpCap, QpState, QpType, Stamp};
pub(crate) use shard_set::{Places, ShardSet};
pub(crate) use signals::Signals;
pub(crate) use slots::{Freed, Slots};
pub(crate) use srq::{Queue, SrqShared, XrcPart};
