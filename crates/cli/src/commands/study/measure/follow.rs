//! The following side: it answers, or serves what is done to its memory.

use std::time::{Duration, Instant};

use rnic::Completion;

use super::Side;
use super::rig::{Rig, WHILE};
use super::sender::{Marks, Sender};
use crate::commands::study::setup::{Flow, Operation, Setup};
use crate::peer::waiting::PEER_TIMEOUT;
use crate::platform::failure::{Failure, Result};

/// The last byte of the last WRITE.
pub const END: u8 = 255;

/// Until the leader's last message; how many there were before it.
pub fn serve(side: &Side, rig: &Rig, setup: &Setup) -> Result<u64> {
    let answers = setup.flow == Flow::PingPong;
    let mut sender = match answers {
        true => Some(Sender::new(side, rig, setup)?),
        false => None,
    };
    if let (Some(sender), Operation::Write) = (&mut sender, setup.operation) {
        return write_back(side, rig, setup, sender);
    }
    let mut received = 0;
    loop {
        let Some(message) = rig.wait(&rig.recv_cq)? else {
            if side.exchange.is_closed() {
                return Err(rnic::Error::Timeout(WHILE).into());
            }
            continue;
        };
        if rig.message_len(&message) == 0 {
            break;
        }
        received += 1;
        if let Some(sender) = &mut sender {
            let marks = Marks {
                number: number_of(&message).unwrap_or_default(),
                last: None,
            };
            sender.send(side, rig.queue_pair_of(&message), marks)?;
        }
        rig.post_again(message)?;
    }
    Ok(received)
}

/// The first four bytes of a message.
pub fn number_of(message: &Completion) -> Option<u32> {
    message
        .message()
        .first_chunk()
        .map(|first| u32::from_be_bytes(*first))
}

fn write_back(side: &Side, rig: &Rig, setup: &Setup, sender: &mut Sender<'_>) -> Result<u64> {
    let mut seen = 0;
    for received in 0.. {
        let before = seen;
        seen = watch(side, rig, setup.size - 1, |byte| byte != before)?;
        let marks = Marks {
            number: 0,
            last: Some(seen),
        };
        sender.send(side, 0, marks)?;
        if seen == END {
            sender.finish(side, marks)?;
            return Ok(received);
        }
    }
    Ok(0)
}

/// Waits until a byte of this side's region is as expected. Polling a completion queue meanwhile
/// drives the NIC.
pub fn watch(side: &Side, rig: &Rig, at: usize, expected: impl Fn(u8) -> bool) -> Result<u8> {
    /// Longer than any gap between two WRITEs of a peer that runs.
    const LONG: Duration = Duration::from_millis(2);
    let mut start = None;
    loop {
        for _ in 0..64 {
            let byte = side.region.load_u8(at)?;
            if expected(byte) {
                return Ok(byte);
            }
            if let Some(unexpected) = rig.recv_cq.poll_one()? {
                unexpected.ok()?;
                return Err(Failure::new("a message that nobody waits for"));
            }
        }
        let waited = start.get_or_insert_with(Instant::now).elapsed();
        if waited > PEER_TIMEOUT || (waited > LONG && side.exchange.is_closed()) {
            return Err(rnic::Error::Timeout(waited).into());
        }
        if waited > LONG {
            // What failed completes in the send queue, which nobody looks at here. The peer may
            // need this processor.
            std::thread::sleep(Duration::from_micros(20));
        }
    }
}
