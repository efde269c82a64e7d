//! tokio waits for the descriptors.

use std::io;

use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;
use ::tokio::runtime::Handle;
use ::tokio::task::AbortHandle;

use super::reactor::{Reactor, Source, Watch};

/// A [`Reactor`] of tokio: descriptors are watched by a runtime's own driver, so that no other
/// thread is woken for a completion. When the runtime is shut down, the default reactor goes on.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use rnic::aio::{CompletionQueue, Tokio};
///
/// let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
/// let context = rnic::Context::open()?;
/// let cq = runtime.block_on(async {
///     CompletionQueue::builder(&context, 256).reactor(Tokio::current()).build()
/// })?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Tokio {
    handle: Handle,
}

impl Tokio {
    /// The runtime that this is called in.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn current() -> Tokio {
        Tokio::of(Handle::current())
    }

    /// This runtime. It needs its I/O driver (`enable_io`): without, tokio panics when a descriptor
    /// is to be watched.
    pub fn of(handle: Handle) -> Tokio {
        Tokio { handle }
    }
}

impl Reactor for Tokio {
    fn watch(&self, source: Source) -> io::Result<Watch> {
        let _inside = self.handle.enter();
        #[allow(
            deprecated,
            reason = "not for a descriptor that stays open as long as its source"
        )]
        let fd = AsyncFd::with_interest(source, Interest::READABLE)?;
        let task = self.handle.spawn(async move {
            while let Ok(mut ready) = fd.readable().await {
                // Told again of what comes from now on: all that there is, is taken.
                ready.clear_ready();
                if !fd.get_ref().readable() {
                    break;
                }
            }
        });
        Ok(Watch::new(Aborts(task.abort_handle())))
    }
}

struct Aborts(AbortHandle);

impl Drop for Aborts {
    fn drop(&mut self) {
        self.0.abort();
    }
}
