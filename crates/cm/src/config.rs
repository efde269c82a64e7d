//! What an endpoint is told once.

/// Who an endpoint is, its timeouts and its bounds. The defaults are Linux's.
///
/// Timeouts are 5-bit codes, 4.096 us x 2^code, which Linux and this crate take for 2^(code - 8) ms
/// ([`timeout_ns`](rnic_wire::cm::timeout_ns)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The upper 12 bits of all communication ids, by which the processes that share QP 1 tell
    /// theirs apart.
    pub range: u16,
    /// Seed of what has to be hard to guess or different after a restart: first communication id,
    /// transaction ids.
    pub seed: u64,
    /// GUID of the channel adapter.
    pub guid: u64,
    /// How long either connection manager may take to answer; 20: 4.1 s. Stands in each REQ for
    /// both ends, and is the timeout of SIDR requests.
    pub response_timeout: u8,
    /// How long a packet may be on its way; 18: 1 s. A REQ or DREQ of the active side is repeated
    /// after twice this and the response timeout: 6.1 s.
    pub packet_life: u8,
    /// How long the application may take to answer a REQ or REP, as told to a peer that repeats it
    /// (MRA); 24: 65.5 s.
    pub service_timeout: u8,
    /// How long a queue pair may take to acknowledge, as told in each REP; 15.
    pub target_ack_delay: u8,
    /// How often a message is repeated, 15 at most; 15: REQ and SIDR_REQ are sent 16 times in all.
    pub max_retries: u8,
    /// Requests, and service ID resolutions, that the application has not answered yet: more than
    /// this are dropped.
    pub max_requests: usize,
    /// Connections in time-wait, and refusals kept for peers that repeat their request; and as many
    /// that the application has destroyed and the peer did not confirm yet. Beyond this the oldest
    /// ones are forgotten early.
    pub max_time_wait: usize,
    /// REQs and DREQs of ours without an answer beyond which the next ones wait: for an answer, or
    /// for a millisecond each.
    pub request_window: usize,
    /// Undrained MADs beyond which no answer is given to what a peer will say again.
    pub max_replies: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            range: 0,
            seed: 0,
            guid: 0,
            response_timeout: 20,
            packet_life: 18,
            service_timeout: 24,
            target_ack_delay: 15,
            max_retries: 15,
            max_requests: 4096,
            max_time_wait: 16384,
            request_window: 32,
            max_replies: 1024,
        }
    }
}
