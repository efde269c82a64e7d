//! Many operations at once.

use std::time::Instant;

use super::latency::{dismiss, request, serve};
use super::{Operation, poll};
use crate::peer::node::Station;
use crate::platform::failure::{Failure, Result};

/// Receives posted by the peer of a SEND test, up to this many bytes of them.
const RECEIVES: std::ops::RangeInclusive<usize> = 2..=64;
const RECEIVE_BYTES: usize = 32 << 20;

/// The leading side; bytes per second.
pub fn lead(
    station: &mut Station,
    operation: Operation,
    size: usize,
    count: usize,
    depth: usize,
) -> Result<f64> {
    let target = station.remote.slice(0, size as u64)?;
    let mut idle = Vec::new();
    for i in 0..depth.min(count) {
        let mut buffer = station.pd.buffer(size)?;
        buffer.fill(i as u8);
        idle.push(buffer);
    }
    station.exchange.barrier()?;
    let start = Instant::now();
    let (mut posted, mut completed) = (0, 0);
    while completed < count {
        while posted < count
            && let Some(buffer) = idle.pop()
        {
            station.qp.post(request(operation, buffer, target))?;
            posted += 1;
        }
        let done = poll(station, &station.send_cq)?;
        completed += 1;
        idle.push(
            done.into_buffer()
                .ok_or_else(|| Failure::new("a request without its buffer"))?,
        );
    }
    let rate = (count * size) as f64 / start.elapsed().as_secs_f64();
    if operation == Operation::Send {
        station.exchange.barrier()?;
    } else {
        dismiss(station)?;
    }
    Ok(rate)
}

/// The following side.
pub fn follow(
    station: &mut Station,
    operation: Operation,
    size: usize,
    count: usize,
) -> Result<()> {
    if operation != Operation::Send {
        return serve(station);
    }
    let receives = (RECEIVE_BYTES / size)
        .clamp(*RECEIVES.start(), *RECEIVES.end())
        .min(count);
    for _ in 0..receives {
        station.qp.post_recv(station.pd.buffer(size)?, 0)?;
    }
    station.exchange.barrier()?;
    let mut left = count - receives;
    for _ in 0..count {
        let got = poll(station, &station.recv_cq)?;
        if let (Some(buffer), true) = (got.into_buffer(), left > 0) {
            left -= 1;
            station.qp.post_recv(buffer, 0)?;
        }
    }
    station.exchange.barrier()?;
    Ok(())
}
