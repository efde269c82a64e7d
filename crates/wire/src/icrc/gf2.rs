//! CRC-32 as arithmetic on polynomials over GF(2) modulo P, in the reflected form: the top bit of a
//! register is x^0.

/// The CRC-32 polynomial.
pub(super) const P: u32 = 0xedb8_8320;
/// x^0.
pub(super) const ONE: u32 = 0x8000_0000;

/// Times x.
const fn next(register: u32) -> u32 {
    register >> 1 ^ P & (register & 1).wrapping_neg()
}

/// The register `bytes` zero bytes later: times x^(8 * bytes).
pub(super) const fn forward(mut register: u32, bytes: u32) -> u32 {
    let mut i = 0;
    while i < bytes * 8 {
        register = next(register);
        i += 1;
    }
    register
}

/// The register `bytes` zero bytes earlier: times x^(-8 * bytes).
pub(super) const fn back(mut register: u32, bytes: u32) -> u32 {
    let mut i = 0;
    while i < bytes * 8 {
        register = if register & ONE != 0 {
            (register ^ P) << 1 | 1
        } else {
            register << 1
        };
        i += 1;
    }
    register
}

/// What four bits that are shifted out of a register leave in it.
static SHIFTED_OUT: [u32; 16] = {
    let mut table = [0; 16];
    let mut bits = 0;
    while bits < 16 {
        table[bits] = next(next(next(next(bits as u32))));
        bits += 1;
    }
    table
};

/// The product, four bits of `a` at a time: each packet whose identification was not expected needs
/// one.
pub(super) fn multiply(a: u32, b: u32) -> u32 {
    // Of four bits of a register the highest is x^0.
    let (x, x2) = (next(b), next(next(b)));
    let x3 = next(x2);
    let mut times = [0; 16];
    for (bits, product) in times.iter_mut().enumerate() {
        let takes = |bit: usize| ((bits >> bit & 1) as u32).wrapping_neg();
        *product = takes(3) & b ^ takes(2) & x ^ takes(1) & x2 ^ takes(0) & x3;
    }
    // From the highest power on, which the lowest bits are.
    (0..8).fold(0, |product: u32, four| {
        let shifted = product >> 4 ^ SHIFTED_OUT[product as usize & 0xf];
        shifted ^ times[(a >> (4 * four)) as usize & 0xf]
    })
}

/// What a 16-bit big endian field adds to the CRC of the headers.
pub(super) struct Field {
    high: [u32; 256],
    low: [u32; 256],
}

impl Field {
    /// Of a field that is followed by `behind` bytes of header.
    const fn new(behind: u32) -> Field {
        let mut field = Field {
            high: [0; 256],
            low: [0; 256],
        };
        let mut byte = 0;
        while byte < 256 {
            field.high[byte] = forward(byte as u32, behind + 2);
            field.low[byte] = forward(byte as u32, behind + 1);
            byte += 1;
        }
        field
    }

    /// Of two fields that always hold the same.
    const fn plus(mut self, other: &Field) -> Field {
        let mut byte = 0;
        while byte < 256 {
            self.high[byte] ^= other.high[byte];
            self.low[byte] ^= other.low[byte];
            byte += 1;
        }
        self
    }

    #[inline]
    pub(super) fn of(&self, value: u16) -> u32 {
        let [high, low] = value.to_be_bytes();
        self.high[usize::from(high)] ^ self.low[usize::from(low)]
    }
}

/// UDP length: checksum behind it.
pub(super) static UDP_LEN: Field = Field::new(2);
/// IPv4 total length: 16 bytes of IPv4 header and the UDP header behind it.
pub(super) static V4_TOTAL_LEN: Field = Field::new(16 + 8);
/// IPv4 identification.
pub(super) static V4_ID: Field = Field::new(14 + 8);
/// IPv6 payload length, which is the UDP length.
pub(super) static V6_BOTH_LEN: Field = Field::new(34 + 8).plus(&Field::new(2));
/// IPv4 DF: the byte of the flags with 13 bytes of IPv4 header and the UDP header behind it.
pub(super) const V4_DF: u32 = forward(0x40, 1 + 13 + 8);

/// What to add to the register before the BTH in order to add the index to byte 4 of it.
pub(super) static BYTE_4_LATER: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = back(byte as u32, 4);
        byte += 1;
    }
    table
};

/// Bytes of IPv4 and UDP header from behind the identification on.
const BEHIND_ID: u32 = 14 + 8;

/// Moves a difference of ICRCs back to behind the identification, where the DF bit is a difference
/// in the first byte to come, and then four bytes further, as a register takes up what it sees four
/// bytes early.
pub(super) const fn back_to_id_slow(len: u32) -> u32 {
    back(ONE, BEHIND_ID + len + 4)
}

/// The DF bit, moved like that.
pub(super) const DF_AT_ID: u32 = back(0x40, 4);

/// Path MTU 4096 and all headers.
const TABLE_LEN: usize = 4200;

static BACK: [u32; TABLE_LEN / 4 + 1] = {
    let mut table = [0; TABLE_LEN / 4 + 1];
    table[0] = back_to_id_slow(0);
    let mut i = 1;
    while i < table.len() {
        table[i] = back(table[i - 1], 4);
        i += 1;
    }
    table
};

/// Factor that moves a difference of the ICRCs of two packets of `len` bytes (BTH up to the last
/// pad byte) back to behind the identification.
#[inline]
pub(super) fn back_to_id(len: usize) -> u32 {
    match BACK.get(len / 4) {
        Some(&factor) => back(factor, (len % 4) as u32),
        None => {
            let last = BACK.len() - 1;
            multiply(BACK[last], back_power((len - 4 * last) as u32))
        }
    }
}

/// x^(-8 * bytes) by squaring.
pub(super) fn back_power(mut bytes: u32) -> u32 {
    let (mut power, mut square) = (ONE, back(ONE, 1));
    while bytes != 0 {
        if bytes & 1 != 0 {
            power = multiply(power, square);
        }
        square = multiply(square, square);
        bytes >>= 1;
    }
    power
}
