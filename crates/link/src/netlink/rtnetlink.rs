//! Messages of rtnetlink(7), written and taken apart.

use std::io;

use rnic_sys as sys;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
pub(crate) const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;
/// nlmsghdr(7).
const HEADER_LEN: usize = 16;

/// A question or an order, as it is written.
pub(crate) struct Request(Vec<u8>);

impl Request {
    /// Without attributes yet. `body`: the struct of this kind.
    pub(crate) fn new(kind: u16, flags: u16, body: &[u8]) -> Request {
        let mut message = vec![0; HEADER_LEN];
        message[4..6].copy_from_slice(&kind.to_ne_bytes());
        message[6..8].copy_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
        message.extend_from_slice(body);
        Request(message)
    }

    /// With one attribute more, rtattr.
    pub(crate) fn with(mut self, kind: u16, value: &[u8]) -> Request {
        put(&mut self.0, kind, value);
        self
    }

    /// The whole message.
    pub(crate) fn bytes(mut self) -> Vec<u8> {
        let len = self.0.len() as u32;
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        self.0
    }

    /// Asks, and gives the answer.
    pub(crate) fn ask(self) -> io::Result<Vec<u8>> {
        sys::ask_netlink(&self.bytes())
    }

    /// Has something done. The kernel's refusal is an error.
    pub(crate) fn apply(mut self) -> io::Result<()> {
        let flags = u16::from_ne_bytes([self.0[6], self.0[7]]) | NLM_F_ACK;
        self.0[6..8].copy_from_slice(&flags.to_ne_bytes());
        match split::<4>(&self.ask()?) {
            // struct nlmsgerr
            Some((NLMSG_ERROR, error, _)) => match i32::from_ne_bytes(*error) {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(error.wrapping_neg())),
            },
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// The value of an attribute that consists of others.
pub(crate) fn attributes(values: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, value) in values {
        put(&mut bytes, *kind, value);
    }
    bytes
}

/// Each begins at a multiple of four bytes.
fn put(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(value);
    message.resize(message.len().next_multiple_of(4), 0);
}

/// Type, body and attributes of an answer.
pub(crate) fn split<const BODY: usize>(answer: &[u8]) -> Option<(u16, &[u8; BODY], &[u8])> {
    let (header, rest) = answer.split_at_checked(HEADER_LEN)?;
    let len = u32::from_ne_bytes(header[..4].try_into().ok()?) as usize;
    let rest = rest.get(..len.checked_sub(HEADER_LEN)?)?;
    let (body, attributes) = rest.split_first_chunk::<BODY>()?;
    Some((u16::from_ne_bytes([header[4], header[5]]), body, attributes))
}

/// Message by message. What breaks off is the last.
pub(crate) struct Messages<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let len = self.0.first_chunk::<4>()?;
        let len = (u32::from_ne_bytes(*len) as usize).max(HEADER_LEN);
        let (message, rest) = self.0.split_at(len.next_multiple_of(4).min(self.0.len()));
        self.0 = rest;
        Some(message)
    }
}

/// rtattr by rtattr.
pub(crate) struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let [l0, l1, k0, k1, ..] = *self.0 else {
            return None;
        };
        let len = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = self.0.get(4..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((u16::from_ne_bytes([k0, k1]), value))
    }
}

#[cfg(test)]
mod tests {
    //! What the kernel answers is taken apart with care.

    use super::*;

    #[test]
    fn attributes_end_where_the_message_does() {
        let mut bytes = Vec::new();
        for (kind, value) in [(4u16, &[1u8, 0, 0, 0][..]), (5, &[10, 0, 0, 1]), (9, &[7])] {
            bytes.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
            bytes.extend_from_slice(&kind.to_ne_bytes());
            bytes.extend_from_slice(value);
        }
        let all: Vec<_> = Attributes(&bytes).collect();
        assert_eq!(
            all,
            [(4, &[1, 0, 0, 0][..]), (5, &[10, 0, 0, 1]), (9, &[7])]
        );
        for end in 0..bytes.len() {
            assert!(Attributes(&bytes[..end]).count() < 3);
        }
        assert_eq!(Attributes(&[0, 0, 1, 0]).count(), 0, "no length");
        assert!(split::<12>(&bytes).is_none());
    }

    #[test]
    fn attributes_within_another_are_read_back() {
        let within = attributes(&[(6, &[1, 2, 3, 4]), (7, b"ab\0")]);
        let request = Request::new(7, 0, &[0; 8]).with(2, &within);
        let (kind, value) = Attributes(&request.0[HEADER_LEN + 8..])
            .next()
            .expect("one");
        assert_eq!(kind, 2);
        let within: Vec<_> = Attributes(value).collect();
        assert_eq!(within, [(6, &[1, 2, 3, 4][..]), (7, b"ab\0")]);
        assert_eq!(request.0.len() % 4, 0);
    }

    proptest::proptest! {
        /// Whatever comes by the socket: each walk ends, and what it gives lies in the message,
        /// part behind part.
        #[test]
        fn anything_is_taken_apart(bytes in proptest::collection::vec(0u8..40, 0..200)) {
            let mut rest = &bytes[..];
            for message in Messages(&bytes) {
                assert!(!message.is_empty());
                assert_eq!(message, &rest[..message.len()]);
                rest = &rest[message.len()..];
                if let Some((_, body, attributes)) = split::<12>(message) {
                    assert!(body.len() + attributes.len() + HEADER_LEN <= message.len());
                    let values: usize = Attributes(attributes).map(|(_, value)| value.len() + 4).sum();
                    assert!(values <= attributes.len());
                }
            }
            let end: usize = Messages(&bytes).map(<[u8]>::len).sum();
            assert!(bytes.len() - end < 4, "what breaks off is the last");
            assert!(Attributes(&bytes).count() <= bytes.len() / 4);
        }
    }

    #[test]
    fn a_refusal_is_an_error() {
        // No interface has this number.
        let mut body = [0; 16];
        body[4..8].copy_from_slice(&i32::MAX.to_ne_bytes());
        const RTM_SETLINK: u16 = 19;
        let refused = Request::new(RTM_SETLINK, 0, &body).apply();
        let error = refused.expect_err("nobody may, or there is none");
        assert!(
            [libc::ENODEV, libc::EPERM]
                .map(Some)
                .contains(&error.raw_os_error()),
            "{error}"
        );
    }
}
