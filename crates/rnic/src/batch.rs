//! Requests that are posted together.

use crate::error::Error;
use crate::post::SendRequest;
use crate::qp::{Connected, QueuePair};

/// Requests for one queue pair, which are posted as one list when it is committed: one call, and
/// one doorbell of a card. Nothing is posted before, and nothing of a batch that is dropped.
///
/// ```
/// # use rnic::{QueuePair, RemoteMemory, SendRequest};
/// # fn f(qp: &QueuePair, to: RemoteMemory) -> rnic::Result<()> {
/// let mut batch = qp.batch();
/// batch.push(SendRequest::write_inline(b"key", to.slice(0, 3)?).unsignaled());
/// batch.push(SendRequest::send_inline(b"done"));
/// batch.commit()?;
/// # Ok(())
/// # }
/// ```
/// A batch that is committed takes no more:
/// ```compile_fail,E0382
/// # use rnic::{QueuePair, SendRequest};
/// # fn f(qp: &QueuePair) {
/// let mut batch = qp.batch();
/// batch.commit();
/// batch.push(SendRequest::send_inline(b"too late"));
/// # }
/// ```
/// And it does not outlive the handle that it was made by:
/// ```compile_fail,E0505
/// # use rnic::{QueuePair, SendRequest};
/// # fn f(qp: QueuePair) {
/// let mut batch = qp.batch();
/// drop(qp);
/// batch.commit();
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a batch does nothing until it is committed"]
pub struct Batch<'a, T: Connected> {
    qp: &'a QueuePair<T>,
    requests: Vec<SendRequest>,
}

impl<'a, T: Connected> Batch<'a, T> {
    pub(crate) fn new(qp: &'a QueuePair<T>) -> Batch<'a, T> {
        Batch {
            qp,
            requests: Vec::new(),
        }
    }

    /// Adds a request behind the others.
    pub fn push(&mut self, request: SendRequest) -> &mut Self {
        self.requests.push(request);
        self
    }

    /// Requests in it.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Posts all in order (`ibv_post_send`).
    ///
    /// # Errors
    /// Why the first of those that come back cannot be posted. Those before it are.
    pub fn commit(mut self) -> Result<(), BatchError> {
        let posted = self.qp.post_list(&mut self.requests);
        posted.map_err(|error| BatchError {
            error,
            requests: self.requests,
        })
    }
}

/// Not all requests of a batch could be posted; the others come back.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct BatchError {
    /// Why the first of them cannot be posted; see [`Error::is_queue_full`].
    #[source]
    pub error: Error,
    /// Those that are not posted, in order.
    pub requests: Vec<SendRequest>,
}

/// For `?`. The requests go, and their buffers are freed: whoever wants to post them again takes
/// them out of the error first.
impl From<BatchError> for Error {
    fn from(error: BatchError) -> Error {
        error.error
    }
}
