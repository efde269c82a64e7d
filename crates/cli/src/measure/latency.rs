//! Single operations, one after the other.

use std::time::{Duration, Instant};

use rnic::{Buffer, SendRequest, WritableRegion};

use super::{Operation, Sender, poll};
use crate::failure::{Failure, Result};
use crate::node::{PATIENCE, Station};

/// Both sides' part; the leading one gets the times in nanoseconds.
pub fn run(
    station: &mut Station,
    operation: Operation,
    size: usize,
    rounds: usize,
    lead: bool,
) -> Result<Vec<f64>> {
    match operation {
        Operation::Send => sends(station, size, rounds, lead),
        Operation::Write => writes(station, size, rounds, lead),
        Operation::Read if lead => reads(station, size, rounds),
        Operation::Read => {
            serve(station)?;
            Ok(Vec::new())
        }
    }
}

/// Receives that are posted at any time.
const RECEIVES: usize = 16;

fn sends(station: &mut Station, size: usize, rounds: usize, lead: bool) -> Result<Vec<f64>> {
    let mut sender = Sender::new(station, size)?;
    for _ in 0..RECEIVES.min(rounds) {
        station.qp.post_recv(station.pd.buffer(size)?, 0)?;
    }
    let mut left = rounds - RECEIVES.min(rounds);
    station.exchange.barrier()?;
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let start = Instant::now();
        if lead {
            sender.post(station, None, 0)?;
        }
        let got = poll(&station.recv_cq)?;
        if !lead {
            sender.post(station, None, 0)?;
        } else {
            times.push(start.elapsed().as_nanos() as f64 / 2.0);
        }
        repost(station, got.into_buffer(), &mut left)?;
    }
    sender.finish(station)?;
    station.exchange.barrier()?;
    Ok(times)
}

fn repost(station: &Station, buffer: Option<Buffer>, left: &mut usize) -> Result<()> {
    if let (Some(buffer), true) = (buffer, *left > 0) {
        *left -= 1;
        station.qp.post_recv(buffer, 0)?;
    }
    Ok(())
}

/// Each side writes into the other's memory and watches the last byte of its own.
fn writes(station: &mut Station, size: usize, rounds: usize, lead: bool) -> Result<Vec<f64>> {
    let mut sender = Sender::new(station, size)?;
    let to = station.remote.slice(0, size as u64)?;
    station.region.copy_in(size - 1, &[0])?;
    station.exchange.barrier()?;
    let mut times = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let mark = (round % 255) as u8 + 1;
        let start = Instant::now();
        if lead {
            sender.post(station, Some(to), mark)?;
        }
        watch(station, &station.region, size - 1, mark)?;
        if lead {
            times.push(start.elapsed().as_nanos() as f64 / 2.0);
        } else {
            sender.post(station, Some(to), mark)?;
        }
    }
    sender.finish(station)?;
    station.exchange.barrier()?;
    Ok(times)
}

/// Waits until a byte has this value. Polling a completion queue meanwhile drives the NIC.
fn watch(station: &Station, region: &WritableRegion, at: usize, value: u8) -> Result<()> {
    let mut start = None;
    loop {
        for _ in 0..64 {
            if region.load_u8(at)? == value {
                return Ok(());
            }
            if let Some(unexpected) = station.recv_cq.poll_one()? {
                unexpected.ok()?;
            }
        }
        let waited = start.get_or_insert_with(Instant::now).elapsed();
        if waited > PATIENCE {
            return Err(Failure::new(format!(
                "the peer's write has not arrived in {PATIENCE:?}"
            )));
        }
        if waited > super::SPIN {
            // The peer may need this processor.
            std::thread::sleep(Duration::from_micros(20));
        }
    }
}

fn reads(station: &mut Station, size: usize, rounds: usize) -> Result<Vec<f64>> {
    let from = station.remote.slice(0, size as u64)?;
    let mut buffer = station.pd.buffer(size)?;
    station.exchange.barrier()?;
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let start = Instant::now();
        station.qp.post(SendRequest::read(buffer, from))?;
        let done = poll(&station.send_cq)?;
        times.push(start.elapsed().as_nanos() as f64);
        buffer = done
            .into_buffer()
            .ok_or_else(|| Failure::new("a READ without its buffer"))?;
    }
    dismiss(station)?;
    Ok(times)
}

/// Answers one-sided operations, by polling, from the barrier that starts the test until [`dismiss`].
pub fn serve(station: &mut Station) -> Result<()> {
    station.qp.post_recv_empty(0)?;
    station.exchange.barrier()?;
    poll(&station.recv_cq)?;
    station.exchange.barrier()?;
    Ok(())
}

/// Ends the peer's [`serve`].
pub fn dismiss(station: &mut Station) -> Result<()> {
    station.qp.post(SendRequest::send_inline(&[]))?;
    poll(&station.send_cq)?;
    station.exchange.barrier()?;
    Ok(())
}
