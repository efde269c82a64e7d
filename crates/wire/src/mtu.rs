//! Path MTU: the most payload one packet carries.

/// Path MTU. The discriminant is the code in `ibv_qp_attr::path_mtu` and in connection-manager
/// messages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the number is the payload in bytes")]
pub enum PathMtu {
    M256 = 1,
    M512 = 2,
    M1024 = 3,
    M2048 = 4,
    M4096 = 5,
}

impl PathMtu {
    /// All of them, smallest first.
    pub const ALL: [PathMtu; 5] = [
        PathMtu::M256,
        PathMtu::M512,
        PathMtu::M1024,
        PathMtu::M2048,
        PathMtu::M4096,
    ];

    /// Payload in bytes.
    #[inline]
    pub const fn bytes(self) -> usize {
        128 << self as u8
    }

    /// From an `enum ibv_mtu` value.
    #[inline]
    pub const fn from_ibv(code: u32) -> Option<PathMtu> {
        match code {
            1 => Some(PathMtu::M256),
            2 => Some(PathMtu::M512),
            3 => Some(PathMtu::M1024),
            4 => Some(PathMtu::M2048),
            5 => Some(PathMtu::M4096),
            _ => None,
        }
    }

    /// The `enum ibv_mtu` value.
    #[inline]
    pub const fn to_ibv(self) -> u32 {
        self as u32
    }

    /// The largest that fits a network interface of this MTU once 80 bytes are set aside for IP,
    /// UDP and RoCE headers, which is how Soft-RoCE chooses; [`PathMtu::M256`] where none fits.
    pub fn largest_for_netdev(mtu: u32) -> PathMtu {
        let room = mtu.saturating_sub(80) as usize;
        Self::ALL
            .into_iter()
            .rev()
            .find(|mtu| mtu.bytes() <= room)
            .unwrap_or(PathMtu::M256)
    }
}

#[cfg(test)]
mod tests;
