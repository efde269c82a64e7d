//! Messages and attributes of netlink(7): read as the kernel reads them, and written.
//!
//! What programs send is hostile: lengths that lie end the reading.

/// A header: length, type, flags, sequence number, port.
pub const HEADER: usize = 16;
/// Header of an attribute: length and type.
const ATTRIBUTE: usize = 4;
/// Bits of an attribute's type that are flags.
const TYPE_FLAGS: u16 = 0xc000;

pub const NLM_F_REQUEST: u16 = 1;
pub const NLM_F_MULTI: u16 = 2;
pub const NLM_F_ACK: u16 = 4;
/// Both of them: all objects are asked for.
pub const NLM_F_DUMP: u16 = 0x300;
/// Of errors: the request's payload was left out; attributes follow.
const NLM_F_CAPPED: u16 = 0x100;
const NLM_F_ACK_TLVS: u16 = 0x200;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Types below are netlink's own.
pub const NLMSG_MIN_TYPE: u16 = 16;
/// Of an error: why, in words.
const NLMSGERR_ATTR_MSG: u16 = 1;

fn align(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub kind: u16,
    pub flags: u16,
    pub sequence: u32,
    /// Header and payload.
    whole: &'a [u8],
}

impl<'a> Request<'a> {
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    pub fn attributes(&self) -> Attributes<'a> {
        Attributes(&self.whole[HEADER..])
    }
}

/// The requests of a datagram, up to the first whose length lies.
pub fn requests(datagram: &[u8]) -> impl Iterator<Item = Request<'_>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let header = rest.get(..HEADER)?;
        let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|i| header[at + i]));
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let len = word(0) as usize;
        if len < HEADER {
            return None;
        }
        let whole = rest.get(..len)?;
        rest = rest.get(align(len)..).unwrap_or_default();
        Some(Request {
            kind: half(4),
            flags: half(6),
            sequence: word(8),
            whole,
        })
    })
}

/// Attributes of a request.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    fn iter(self) -> impl Iterator<Item = (u16, &'a [u8])> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let [l0, l1, t0, t1] = *rest.first_chunk::<ATTRIBUTE>()?;
            let len = usize::from(u16::from_ne_bytes([l0, l1]));
            let payload = rest.get(ATTRIBUTE..len)?;
            rest = rest.get(align(len)..).unwrap_or_default();
            Some((u16::from_ne_bytes([t0, t1]) & !TYPE_FLAGS, payload))
        })
    }

    /// The last one of that type.
    fn get(self, kind: u16) -> Option<&'a [u8]> {
        let all = self.iter().filter(|(of, _)| *of == kind);
        all.last().map(|(_, payload)| payload)
    }

    pub fn has(self, kind: u16) -> bool {
        self.get(kind).is_some()
    }

    /// A number; of one that is too short, the errno.
    pub fn number(self, kind: u16) -> Result<Option<u32>, i32> {
        let Some(payload) = self.get(kind) else {
            return Ok(None);
        };
        let bytes = payload.first_chunk::<4>().ok_or(libc::ERANGE)?;
        Ok(Some(u32::from_ne_bytes(*bytes)))
    }

    /// A text, which ends with NUL.
    pub fn text(self, kind: u16) -> Result<Option<&'a [u8]>, i32> {
        let Some(payload) = self.get(kind) else {
            return Ok(None);
        };
        let end = payload.iter().position(|byte| *byte == 0);
        let end = end.ok_or(libc::EINVAL)?;
        Ok(Some(&payload[..end]))
    }
}

/// Whom answers are for.
#[derive(Clone, Copy, Debug)]
pub struct To {
    pub sequence: u32,
    /// The asker's own.
    pub port: u32,
}

/// A datagram that is being written.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    message: usize,
}

/// Where an attribute begins that has others in it.
#[derive(Clone, Copy, Debug)]
pub struct Nest(usize);

impl Writer {
    pub fn begin(kind: u16, flags: u16, to: To) -> Writer {
        let mut writer = Writer::default();
        writer.header(kind, flags, to);
        writer
    }

    fn header(&mut self, kind: u16, flags: u16, to: To) {
        self.message = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&flags.to_ne_bytes());
        self.bytes.extend_from_slice(&to.sequence.to_ne_bytes());
        self.bytes.extend_from_slice(&to.port.to_ne_bytes());
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Takes back what was written since it had this length.
    pub fn cut(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    pub fn bytes(&mut self, kind: u16, payload: &[u8]) {
        let len = (ATTRIBUTE + payload.len()) as u16;
        self.bytes.extend_from_slice(&len.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(payload);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(align(self.bytes.len()), 0);
    }

    pub fn u8(&mut self, kind: u16, value: u8) {
        self.bytes(kind, &[value]);
    }

    pub fn u32(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_ne_bytes());
    }

    pub fn u64(&mut self, kind: u16, value: u64) {
        self.bytes(kind, &value.to_ne_bytes());
    }

    pub fn text(&mut self, kind: u16, text: &str) {
        let payload: Vec<u8> = text.bytes().chain([0]).collect();
        self.bytes(kind, &payload);
    }

    /// What is written until [`Writer::end_nest`] lies in this attribute.
    pub fn nest(&mut self, kind: u16) -> Nest {
        let at = self.bytes.len();
        self.bytes(kind, &[]);
        Nest(at)
    }

    pub fn end_nest(&mut self, nest: Nest) {
        let len = (self.bytes.len() - nest.0) as u16;
        self.bytes[nest.0..nest.0 + 2].copy_from_slice(&len.to_ne_bytes());
    }

    /// The datagram.
    pub fn end(mut self) -> Vec<u8> {
        let len = (self.bytes.len() - self.message) as u32;
        let at = self.message;
        self.bytes[at..at + 4].copy_from_slice(&len.to_ne_bytes());
        self.bytes
    }
}

/// The end of what was asked for as a whole.
pub fn done(to: To) -> Vec<u8> {
    let mut writer = Writer::begin(NLMSG_DONE, NLM_F_MULTI, to);
    writer.bytes.extend_from_slice(&0i32.to_ne_bytes());
    writer.end()
}

/// How a socket wants to be told of errors: options of netlink(7).
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// NETLINK_CAP_ACK: without the request's payload.
    pub cap_ack: bool,
    /// NETLINK_EXT_ACK: with words.
    pub ext_ack: bool,
}

/// What became of a request: 0, or an errno and why.
pub fn acknowledgement(
    request: &Request<'_>,
    to: To,
    errno: i32,
    why: &str,
    options: Options,
) -> Vec<u8> {
    let whole = errno != 0 && !options.cap_ack;
    let words = options.ext_ack && errno != 0 && !why.is_empty();
    let mut flags = 0;
    if errno == 0 || options.cap_ack {
        flags |= NLM_F_CAPPED;
    }
    if words {
        flags |= NLM_F_ACK_TLVS;
    }
    let mut writer = Writer::begin(NLMSG_ERROR, flags, to);
    writer.bytes.extend_from_slice(&(-errno).to_ne_bytes());
    let cited = match whole {
        true => request.whole,
        false => &request.whole[..HEADER],
    };
    writer.bytes.extend_from_slice(cited);
    writer.pad();
    if words {
        writer.text(NLMSGERR_ATTR_MSG, why);
    }
    writer.end()
}

#[cfg(test)]
impl<'a> Attributes<'a> {
    /// The attributes in each attribute of an attribute.
    pub fn nested(self, kind: u16) -> impl Iterator<Item = Attributes<'a>> {
        let table = Attributes(self.get(kind).unwrap_or_default());
        table.iter().map(|(_, entry)| Attributes(entry))
    }
}
