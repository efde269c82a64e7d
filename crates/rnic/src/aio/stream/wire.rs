//! What the two ends of a byte stream say to each other, in immediate data and in the first
//! message.
//!
//! Each message is a SEND with immediate (IBTA vol. 1, 9.4.1): the upper byte says what it is, and
//! the lower three how many receives the sender has posted again since it said so last (big
//! endian).
//! - DATA: bytes of the stream. It takes a credit.
//! - CREDIT: no bytes.
//! - END: no bytes; no DATA follows.
//! - HELLO: the first message of each side; its receives, see [`Hello`].

/// Most receives that one message can say: 24 bits.
pub(super) const MOST: usize = 0xff_ffff;

/// Receives beside those for DATA. Between two looks of a peer it is sent one HELLO, one END, and
/// two CREDITs at most: each of those is for half of its DATA receives or more, and it cannot use
/// more than all of them before it looks.
pub(super) const CONTROL: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    Credit,
    End,
    Hello,
}

pub(super) fn encode(kind: Kind, credits: usize) -> [u8; 4] {
    let kind = match kind {
        Kind::Data => 0,
        Kind::Credit => 1,
        Kind::End => 2,
        Kind::Hello => 3,
    };
    let [_, a, b, c] = (credits.min(MOST) as u32).to_be_bytes();
    [kind, a, b, c]
}

/// `None`: it is no message of a stream.
pub(super) fn decode(imm: [u8; 4]) -> Option<(Kind, usize)> {
    let [kind, a, b, c] = imm;
    let kind = match kind {
        0 => Kind::Data,
        1 => Kind::Credit,
        2 => Kind::End,
        3 => Kind::Hello,
        _ => return None,
    };
    Some((kind, u32::from_be_bytes([0, a, b, c]) as usize))
}

/// The receives of one side for DATA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// How many.
    pub(super) count: u32,
    /// Bytes of each.
    pub(super) size: u32,
}

const MAGIC: [u8; 8] = *b"rnicbyte";
pub(super) const HELLO_LEN: usize = 20;
const VERSION: u32 = 1;

impl Hello {
    pub(super) fn to_bytes(self) -> [u8; HELLO_LEN] {
        let mut bytes = [0; HELLO_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.count.to_be_bytes());
        bytes[16..].copy_from_slice(&self.size.to_be_bytes());
        bytes
    }

    /// Of a message of at least as many bytes; what a later version says behind them means nothing.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Hello> {
        let bytes: &[u8; HELLO_LEN] = bytes.first_chunk()?;
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let hello = Hello {
            count: word(12),
            size: word(16),
        };
        let sound = bytes[..8] == MAGIC && word(8) == VERSION && hello.count > 0 && hello.size > 0;
        sound.then_some(hello)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written is read, and nothing else.
    #[test]
    fn messages_are_read_as_they_were_written() {
        for kind in [Kind::Data, Kind::Credit, Kind::End, Kind::Hello] {
            for credits in [0, 1, 255, 256, MOST] {
                assert_eq!(decode(encode(kind, credits)), Some((kind, credits)));
            }
        }
        assert_eq!(decode([4, 0, 0, 0]), None);
        let hello = Hello {
            count: 16,
            size: 4096,
        };
        let bytes = hello.to_bytes();
        assert_eq!(Hello::from_bytes(&bytes), Some(hello));
        for at in 0..12 {
            let mut wrong = bytes;
            wrong[at] ^= 1;
            assert_eq!(Hello::from_bytes(&wrong), None, "byte {at}");
        }
        assert_eq!(Hello::from_bytes(&bytes[..19]), None);
        let none = Hello { count: 0, ..hello };
        assert_eq!(Hello::from_bytes(&none.to_bytes()), None);
    }
}
