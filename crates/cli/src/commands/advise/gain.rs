//! What a change would gain: on a card, by its cost model, and on rnic, by what this machine does.

use serde::Serialize;

use super::judge::{Change, Move};
use super::measure::{self, Cells};
use crate::commands::study::card::Card;
use crate::commands::study::model;
use crate::commands::study::questions::Metric;
use crate::commands::study::setup::{Operation, Setup, Waiting};
use crate::platform::failure::Result;

/// Before and after, and how many times as good.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gain {
    pub before: f64,
    pub after: f64,
    pub unit: &'static str,
    pub factor: f64,
}

impl Gain {
    /// `None` of figures that are none.
    fn new(before: f64, after: f64, metric: Metric) -> Option<Gain> {
        let factor = match metric {
            Metric::Latency | Metric::Processor => before / after,
            Metric::Messages | Metric::Bytes => after / before,
        };
        factor.is_finite().then_some(Gain {
            before,
            after,
            unit: metric.unit(),
            factor,
        })
    }
}

/// What the model of a card says.
pub fn by_card(card: &Card, change: &Change) -> Option<Gain> {
    let value = |setup| model::value(card, setup, change.metric);
    Gain::new(value(&change.before)?, value(&change.after)?, change.metric)
}

/// What rnic does on this machine: what a message takes less with the change is taken from what it
/// took in the program, `own`, in the unit of the metric. The program may do other things than
/// messages, and no change makes it faster than the messages alone.
pub fn here(cells: &mut Cells, change: &Change, own: Option<f64>) -> Result<Option<Gain>> {
    change.before.check()?;
    change.after.check()?;
    let metric = change.metric;
    let (before, after) = cells.compare(change.before, change.after, metric)?;
    let Some(own) = own else {
        return Ok(Gain::new(before, after, metric));
    };
    // Times add up, rates do not.
    let time = |value: f64| match metric {
        Metric::Latency | Metric::Processor => value,
        Metric::Messages | Metric::Bytes => 1.0 / value,
    };
    let changed = (time(own) - time(before) + time(after)).max(time(after).min(time(own)));
    Ok(Gain::new(own, time(changed), metric))
}

/// A message of so many bytes by SEND, waited for as rnic's threads do.
fn message(size: usize, waiting: Waiting) -> Setup {
    let mut setup = Setup::ping_pong(Operation::Send, size);
    setup.waiting = waiting;
    setup.inline = size <= 64;
    setup
}

/// What rsockets take for a message, in SENDs: they copy twice and look at a bell besides. rstream
/// shows about so many on rnic.
const SHIM: f64 = 2.0;

/// Of a program that leaves TCP: for one turn, a byte's share, or a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Leaving {
    /// On rnic, from figures of this machine.
    pub here: Option<Gain>,
    /// On a card, by its model, with TCP as it is here.
    pub card: Option<Gain>,
}

/// What a program gains that leaves TCP. `None` where the figures do not tell.
pub fn of_leaving(card: &Card, cells: &mut Cells, how: Move) -> Result<Leaving> {
    match how {
        Move::Turns {
            period_us,
            out,
            back,
            shim,
        } => {
            let times = if shim { SHIM } else { 1.0 };
            let tcp = measure::tcp_trip_us(out, back)?.min(period_us);
            let both = |of: &mut dyn FnMut(usize) -> Result<f64>| -> Result<f64> {
                Ok(of(out)? + of(back)?)
            };
            let rnic =
                both(&mut |size| cells.value(message(size, Waiting::Adaptive), Metric::Latency))?;
            let by_model = both(&mut |size| {
                let setup = message(size, Waiting::Busy);
                Ok(model::value(card, &setup, Metric::Latency).unwrap_or(f64::NAN))
            })?;
            let gain =
                |trip: f64| Gain::new(period_us, period_us - tcp + times * trip, Metric::Latency);
            Ok(Leaving {
                here: gain(rnic),
                card: gain(by_model),
            })
        }
        Move::Bytes { share, size } => {
            let tcp = measure::tcp_bytes(size)?;
            let mut setup = Setup::stream(Operation::Write, size, 16);
            setup.signal_every = 4;
            let rnic = cells.value(setup, Metric::Bytes)?;
            let by_model = model::value(card, &setup, Metric::Bytes).unwrap_or(f64::NAN);
            let gain = |rate: f64| {
                let factor = 1.0 / (1.0 - share + share * tcp / rate);
                Gain::new(tcp, tcp * factor, Metric::Bytes)
            };
            Ok(Leaving {
                here: gain(rnic),
                card: gain(by_model),
            })
        }
        Move::Calls {
            turn_us,
            calls_us,
            size,
        } => {
            let mut setup = Setup::stream(Operation::Send, size, 16);
            setup.signal_every = 8;
            setup.inline = size <= 64;
            // A message out and one in.
            let rnic = 2e6 / cells.value(setup, Metric::Messages)?;
            let by_model = 2e6 / model::value(card, &setup, Metric::Messages).unwrap_or(f64::NAN);
            let gain =
                |calls: f64| Gain::new(turn_us, turn_us - calls_us + calls, Metric::Processor);
            Ok(Leaving {
                here: gain(rnic),
                card: gain(by_model),
            })
        }
    }
}
