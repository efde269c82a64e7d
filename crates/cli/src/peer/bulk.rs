//! A bulk transfer beside what is measured: RDMA WRITEs over a queue pair of its own, between the
//! same two processes.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use rnic::{
    Buffer, Completion, CompletionQueue, ProtectionDomain, QueuePair, Rc, RemoteMemory, SendRequest,
};

use super::waiting::poll_hard;
use crate::platform::failure::{Failure, Result};

/// As many WRITEs at once as fill the pipe. Whoever measures posts the next ones while it waits for
/// something: the program is one that does both in one thread.
pub struct Bulk {
    qp: QueuePair<Rc>,
    cq: CompletionQueue,
    target: RemoteMemory,
    /// Not under way.
    idle: RefCell<Vec<Buffer>>,
    depth: usize,
    started: Cell<Option<Instant>>,
    /// Bytes since then.
    moved: Cell<u64>,
}

/// How a bulk transfer went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moved {
    pub bytes: u64,
    pub bytes_per_second: f64,
}

impl Bulk {
    pub fn new(
        pd: &ProtectionDomain,
        cq: CompletionQueue,
        qp: QueuePair<Rc>,
        target: RemoteMemory,
    ) -> Result<Bulk> {
        let size = target.len as usize;
        let depth = usual_depth(size);
        let mut idle = Vec::new();
        for i in 0..depth {
            let mut buffer = pd.buffer(size)?;
            buffer.fill(i as u8);
            idle.push(buffer);
        }
        Ok(Bulk {
            qp,
            cq,
            target,
            idle: RefCell::new(idle),
            depth,
            started: Cell::new(None),
            moved: Cell::new(0),
        })
    }

    pub fn start(&self) -> Result<()> {
        self.moved.set(0);
        self.started.set(Some(Instant::now()));
        self.post()
    }

    fn post(&self) -> Result<()> {
        while let Some(buffer) = self.idle.borrow_mut().pop() {
            self.qp.post(SendRequest::write(buffer, self.target))?;
        }
        Ok(())
    }

    fn done(&self, completion: Completion) -> Result<()> {
        let buffer = completion.ok()?.into_buffer();
        let buffer = buffer.ok_or_else(|| Failure::new("a request without its buffer"))?;
        self.moved.set(self.moved.get() + self.target.len);
        self.idle.borrow_mut().push(buffer);
        Ok(())
    }

    pub fn is_going(&self) -> bool {
        self.started.get().is_some()
    }

    /// Goes on, if it was started.
    pub fn tend(&self) -> Result<()> {
        if !self.is_going() {
            return Ok(());
        }
        while let Some(completion) = self.cq.poll_one()? {
            self.done(completion)?;
        }
        self.post()
    }

    /// Posts no more, and waits for the last.
    pub fn stop(&self) -> Result<Moved> {
        let Some(started) = self.started.take() else {
            return Ok(Moved::default());
        };
        let (bytes, time) = (self.moved.get(), started.elapsed());
        while self.idle.borrow().len() < self.depth {
            self.done(poll_hard(&self.cq)?)?;
        }
        Ok(Moved {
            bytes,
            bytes_per_second: bytes as f64 / time.as_secs_f64(),
        })
    }
}

/// Operations at once that fill the pipe: no more than a few megabytes.
pub fn usual_depth(size: usize) -> usize {
    ((8 << 20) / size).clamp(4, 32)
}
