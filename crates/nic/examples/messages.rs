//! Messages between two queue pairs of one process, over and over: what the device costs, for a
//! profiler.
//!
//! `messages KIND SIZE BATCH ROUNDS`: each round posts BATCH work requests of KIND (send, write)
//! and SIZE bytes in one list and polls until all their completions are there. Under `valgrind
//! --tool=callgrind --toggle-collect='messages::rounds::round*'` the instructions of ROUNDS rounds
//! are those of BATCH * ROUNDS messages.

mod rounds;

use std::time::Instant;

use rnic_nic::Context;
use rounds::{Ends, Work, round};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, otherwise: u64| {
        words
            .get(at)
            .map_or(otherwise, |word| word.parse().expect("a number"))
    };
    let (size, batch, rounds) = (number(1, 10), number(2, 1), number(3, 1000));
    let sends = words.first().is_none_or(|kind| kind != "write");
    let context = Context::open().expect("a device");
    let ends = Ends::new(&context, Work { sends, size, batch });
    let begun = Instant::now();
    for _ in 0..rounds {
        round(&ends);
    }
    let ns = begun.elapsed().as_nanos() as u64 / (rounds * batch).max(1);
    println!("{ns} ns per message of {size} bytes, {batch} in a list");
    ends.end();
}
