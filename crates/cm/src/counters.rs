//! What an endpoint counts.

/// How often things happened that nobody is told about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Payloads that are no message of the connection manager, or none that is understood.
    pub malformed: u64,
    /// Messages that came again.
    pub duplicates: u64,
    /// Messages for a connection that does not exist, or that do not fit its state, or name another
    /// queue pair.
    pub unexpected: u64,
    /// Messages of ours that were sent again because no answer had come.
    pub retransmits: u64,
    /// Requests that the endpoint or its host refused before they became a connection.
    pub refused: u64,
    /// Requests dropped because too many were unanswered, or because the host wanted to.
    pub dropped: u64,
    /// Answers not given because too many were not drained.
    pub replies_dropped: u64,
    /// Connections that turned out to be stale.
    pub stale: u64,
    /// Connections and refusals forgotten before their time was over.
    pub time_wait_overflow: u64,
}
