//! What may be taken out of the engine one at a time, to measure what it pays.
//!
//! Such builds have `--cfg ablate`; `bench/run --ablate` makes one. In all others nothing is ever
//! out, and the compiler drops the question.

macro_rules! policies {
    ($($(#[$doc:meta])* $policy:ident = $name:literal;)+) => {
        /// A policy of the engine, in which it trades one thing for another.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Policy {
            $($(#[$doc])* $policy),+
        }

        impl Policy {
            /// All of them.
            pub const ALL: &[Policy] = &[$(Policy::$policy),+];

            /// As `RNIC_ABLATE` names it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Policy::$policy => $name),+
                }
            }
        }
    };
}

policies! {
    /// A poll mostly looks at memory alone, and not at socket, clock and timers.
    QuickPoll = "quick-poll";
    /// Short messages wait for others over the network (`engine/batching/doorbell.rs`).
    Doorbell = "doorbell";
    /// Batches end with the request that is signaled.
    SignaledBatch = "signaled-batch";
    /// RDMA WRITEs and READs through memory wait for others.
    OneSidedBatch = "one-sided-batch";
    /// A stream of UC WRITEs through memory goes by packets.
    UcWrites = "uc-writes";
    /// A lone ACK waits for others while the application polls.
    AckCoalescing = "ack-coalescing";
    /// The ACK of a WRITE waits for the application's answer.
    AckPiggyback = "ack-piggyback";
    /// The second half of a round waits until a message was taken that satisfies the caller.
    PutOff = "put-off";
    /// Threads stay awake for a moment before they sleep.
    HaltPolling = "halt-polling";
    /// The background thread leaves the engine to an application that polls.
    Election = "election";
    /// An application that polls puts the watchdog off.
    Alarm = "alarm";
    /// Threads that poll in vain offer their core where cores are short.
    Yielding = "yielding";
    /// Long messages are divided while others have short ones.
    Fairness = "fairness";
    /// Short messages leave without a turn of the engine.
    FastPost = "fast-post";
    /// Answers that are all there is to send leave without one.
    FastReply = "fast-reply";
    /// Where many send to one host and it loses packets, they take turns.
    Incast = "incast";
    /// Services without acknowledgements wait for room in receive buffers of their own host.
    LocalPause = "local-pause";
    /// A timer does not end while what may stop it waits to be taken in.
    ReceiveHorizon = "receive-horizon";
    /// Packets of services without acknowledgements wait for a receive.
    ReceiveHold = "receive-hold";
}

/// Whether `RNIC_ABLATE` takes this policy out.
#[inline(always)]
pub fn is_out(policy: Policy) -> bool {
    #[cfg(ablate)]
    {
        static OUT: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
        let out = OUT.get_or_init(|| {
            let names = std::env::var("RNIC_ABLATE").unwrap_or_default();
            let is_named = |policy: &&Policy| names.split(',').any(|name| name == policy.name());
            let named = Policy::ALL.iter().filter(is_named);
            named.fold(0, |out, policy| out | 1 << *policy as u64)
        });
        out & (1 << policy as u64) != 0
    }
    #[cfg(not(ablate))]
    {
        let _ = policy;
        false
    }
}
