//! The messages that end a connection (IBTA 12.6.10, 12.6.11).

use super::field::{array, be24, be32, put, put24};

/// Disconnect request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dreq {
    /// The sender's communication id.
    pub local_id: u32,
    /// The receiver's communication id.
    pub remote_id: u32,
    /// The receiver's QP, 24 bits; who has another ignores the message.
    pub remote_qpn: u32,
    /// Private data.
    pub private_data: [u8; 220],
}

impl Dreq {
    pub(super) fn parse(b: &[u8]) -> Dreq {
        Dreq {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            remote_qpn: be24(b, 8),
            private_data: array(b, 12),
        }
    }

    pub(super) fn emit(&self, out: &mut [u8]) {
        put(out, 0, self.local_id.to_be_bytes());
        put(out, 4, self.remote_id.to_be_bytes());
        put24(out, 8, self.remote_qpn);
        put(out, 12, self.private_data);
    }
}

/// Disconnect reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drep {
    /// The sender's communication id.
    pub local_id: u32,
    /// The receiver's communication id.
    pub remote_id: u32,
    /// Private data.
    pub private_data: [u8; 224],
}

impl Drep {
    pub(super) fn parse(b: &[u8]) -> Drep {
        Drep {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            private_data: array(b, 8),
        }
    }

    pub(super) fn emit(&self, out: &mut [u8]) {
        put(out, 0, self.local_id.to_be_bytes());
        put(out, 4, self.remote_id.to_be_bytes());
        put(out, 8, self.private_data);
    }
}
