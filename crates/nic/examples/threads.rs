//! Messages in several threads at once, each with two queue pairs and a completion queue of its
//! own: what shards of the engine are worth on a machine.
//!
//! `threads KIND SIZE BATCH ROUNDS THREADS`: as `messages`, in each thread. Compare `RNIC_SHARDS=1`
//! with as many shards as threads; cores must be there for all of them.

mod rounds;

use std::sync::Barrier;
use std::time::Instant;

use rnic_nic::Context;
use rounds::{Ends, Work, round};

/// One thread's work, from when all are ready: nanoseconds for `rounds` rounds.
fn time(context: &Context, all: &Barrier, work: Work, rounds: u64) -> u64 {
    let ends = Ends::new(context, work);
    // The memory, the path and the shard's ring.
    for _ in 0..rounds.min(100) {
        round(&ends);
    }
    all.wait();
    let begun = Instant::now();
    for _ in 0..rounds {
        round(&ends);
    }
    let took = begun.elapsed().as_nanos() as u64;
    ends.end();
    took
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, otherwise: u64| {
        words
            .get(at)
            .map_or(otherwise, |word| word.parse().expect("a number"))
    };
    let (size, batch, rounds) = (number(1, 64), number(2, 16), number(3, 20_000));
    let threads = number(4, 2);
    let sends = words.first().is_none_or(|kind| kind != "write");
    let context = Context::open().expect("a device");
    let all = Barrier::new(threads as usize);
    let took: Vec<u64> = std::thread::scope(|scope| {
        let work = || time(&context, &all, Work { sends, size, batch }, rounds);
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let ended = running
            .into_iter()
            .map(|thread| thread.join().expect("it ends"));
        ended.collect()
    });
    let slowest = took.iter().copied().max().unwrap_or(1).max(1);
    let messages = threads * rounds * batch;
    println!(
        "{:.2} million messages of {size} bytes a second in {threads} threads, {batch} in a list",
        messages as f64 * 1000.0 / slowest as f64
    );
}
