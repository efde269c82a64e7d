//! All topics, in order.

use super::topic::{Kind, Topic};

/// Everything, by kind.
pub fn all() -> impl Iterator<Item = &'static Topic> {
    super::status::TOPICS
        .iter()
        .chain(super::errno::TOPICS)
        .chain(super::event::TOPICS)
        .chain(super::state::TOPICS)
        .chain(super::nak::TOPICS)
        .chain(super::vendor::TOPICS)
        .chain(super::request::TOPICS)
        .chain(super::cm::TOPICS)
        .chain(super::reject::TOPICS)
        .chain(super::fabric::TOPICS)
        .chain(super::ucx::TOPICS)
        .chain(super::program::topics())
}

/// The topics of a number. An RNR NAK carries its timer in the number, an ACK its credits.
pub fn numbered(kind: Kind, number: u32) -> impl Iterator<Item = &'static Topic> {
    let number = match (kind, number) {
        (Kind::Nak, 0x20..=0x3f) => 0x20,
        // The NAK code alone, without the type bits of the syndrome.
        (Kind::Nak, 0..=4) => number + 0x60,
        _ => number,
    };
    all()
        .filter(move |topic| topic.kind == kind && topic.number == number)
        .filter(|topic| topic.kind != Kind::Program)
}
