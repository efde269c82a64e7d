//! Asynchronous events (`ibv_get_async_event(3)`).

/// Asynchronous events of a queue pair (`enum ibv_event_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QpEvent {
    /// IBV_EVENT_QP_FATAL.
    Fatal,
    /// IBV_EVENT_QP_REQ_ERR: invalid request, local work queue error.
    RequestError,
    /// IBV_EVENT_QP_ACCESS_ERR: local access violation.
    AccessError,
    /// IBV_EVENT_COMM_EST: first packet received in RTR.
    CommunicationEstablished,
    /// IBV_EVENT_SQ_DRAINED.
    SendQueueDrained,
    /// IBV_EVENT_QP_LAST_WQE_REACHED.
    LastWqeReached,
}

/// An asynchronous event (`ibv_get_async_event(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// Of a queue pair, named by its cookie.
    Qp {
        /// Its cookie.
        cookie: u64,
        /// What happened.
        event: QpEvent,
    },
    /// IBV_EVENT_CQ_ERR of the completion queue with this cookie.
    Cq {
        /// Its cookie.
        cookie: u64,
    },
    /// IBV_EVENT_SRQ_LIMIT_REACHED of the shared receive queue with this cookie.
    SrqLimit {
        /// Its cookie.
        cookie: u64,
    },
    /// The port came up.
    PortActive(u8),
    /// The port went down.
    PortError(u8),
    /// The GID table changed.
    GidChange(u8),
    /// The device is gone.
    DeviceFatal,
}
