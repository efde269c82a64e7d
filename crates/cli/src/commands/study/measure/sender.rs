//! What posts the requests of a setup, and takes their completions.

use rnic::{Buffer, Completion, RemoteMemory, SendRequest};

use super::Side;
use super::rig::Rig;
use crate::commands::study::setup::{Operation, Setup};
use crate::platform::failure::{Failure, Result};

/// Posts messages of one setup. Every so many of them are signaled; each completion stands for
/// those before it.
pub struct Sender<'a> {
    rig: &'a Rig,
    setup: Setup,
    /// The peer's memory: as much as a message has.
    target: RemoteMemory,
    /// What is not under way, unless messages are inline or registered each.
    pool: Vec<Buffer>,
    inline: Vec<u8>,
    /// Of each queue pair, what was posted since its last signaled request.
    unsignaled: Vec<usize>,
    under_way: usize,
    list: Vec<SendRequest>,
}

/// What a message has in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Marks {
    /// Its first four bytes, if it has as many.
    pub number: u32,
    /// Its last byte, in a WRITE.
    pub last: Option<u8>,
}

impl<'a> Sender<'a> {
    pub fn new(side: &Side, rig: &'a Rig, setup: &Setup) -> Result<Sender<'a>> {
        let mut pool = Vec::new();
        if !setup.inline && !setup.register_each {
            for n in 0..setup.depth {
                let mut buffer = side.pd.buffer(setup.size)?;
                buffer.fill(n as u8);
                pool.push(buffer);
            }
        }
        Ok(Sender {
            rig,
            setup: *setup,
            target: side.remote.slice(0, setup.size as u64)?,
            pool,
            inline: vec![0; if setup.inline { setup.size } else { 0 }],
            unsignaled: vec![0; rig.queue_pairs()],
            under_way: 0,
            list: Vec::with_capacity(setup.batch),
        })
    }

    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// One more request for the next post.
    pub fn add(&mut self, side: &Side, qp: usize, marks: Marks) -> Result<()> {
        let request = match self.setup.inline {
            true => {
                mark(&mut self.inline, marks);
                match self.setup.operation {
                    Operation::Write => SendRequest::write_inline(&self.inline, self.target),
                    _ => SendRequest::send_inline(&self.inline),
                }
            }
            false => {
                let mut buffer = match self.setup.register_each {
                    true => side.pd.buffer(self.setup.size)?,
                    false => (self.pool.pop())
                        .ok_or_else(|| Failure::new("more requests than the depth allows"))?,
                };
                if self.setup.operation != Operation::Read {
                    mark(&mut buffer, marks);
                }
                match self.setup.operation {
                    Operation::Write => SendRequest::write(buffer, self.target),
                    Operation::Read => SendRequest::read(buffer, self.target),
                    _ => SendRequest::send(buffer),
                }
            }
        };
        let since = &mut self.unsignaled[qp];
        *since += 1;
        let request = match *since < self.setup.signal_every {
            true => request.unsignaled(),
            false => request.id(std::mem::take(since) as u64),
        };
        self.under_way += 1;
        self.list.push(request);
        Ok(())
    }

    /// Posts what was added.
    pub fn post(&mut self, qp: usize) -> Result<()> {
        self.rig.post_list(qp, &mut self.list)
    }

    /// One message, once there is room for it.
    pub fn send(&mut self, side: &Side, qp: usize, marks: Marks) -> Result<()> {
        while self.under_way >= self.setup.depth {
            let done = self.rig.completed()?;
            self.done(done);
        }
        self.add(side, qp, marks)?;
        self.post(qp)
    }

    /// Takes a completion; how many messages it stands for.
    pub fn done(&mut self, mut done: Completion) -> usize {
        let count = done.id() as usize;
        self.under_way = self.under_way.saturating_sub(count);
        let released = done.take_released().into_iter().map(|(_, buffer)| buffer);
        let buffers = released.chain(done.into_buffer());
        // Deregistered here, if they are not to be used again.
        if !self.setup.register_each {
            self.pool.extend(buffers);
        }
        count
    }

    /// Waits until everything has completed: the last request of each queue pair is signaled.
    /// Returns how many messages that took; `marks` are in them.
    pub fn finish(&mut self, side: &Side, marks: Marks) -> Result<u64> {
        let mut more = 0;
        for qp in 0..self.unsignaled.len() {
            if self.unsignaled[qp] == 0 {
                continue;
            }
            while self.under_way >= self.setup.depth {
                // Other queue pairs' are signaled by now, or this one's.
                let done = self.rig.completed()?;
                self.done(done);
            }
            let every = std::mem::replace(&mut self.setup.signal_every, 1);
            let added = self.add(side, qp, marks);
            self.setup.signal_every = every;
            added?;
            self.post(qp)?;
            more += 1;
        }
        while self.under_way > 0 {
            let done = self.rig.completed()?;
            self.done(done);
        }
        Ok(more)
    }
}

fn mark(bytes: &mut [u8], marks: Marks) {
    if let Some(first) = bytes.first_chunk_mut() {
        *first = marks.number.to_be_bytes();
    }
    if let (Some(last), Some(value)) = (bytes.last_mut(), marks.last) {
        *last = value;
    }
}
