//! What may become of a packet on a bad wire, in a switch's memory, or in a faulty card.
//!
//! A CRC finds each change of a single bit and each short burst with certainty, so these say little
//! about a receiver. Longer changes are found with the probability that its width promises, if the
//! receiver makes full use of it.

use rnic_wire::Bth;

use super::Generator;

/// A kind of corruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Corruption {
    /// One bit, anywhere.
    Bit,
    /// Two to four bytes, anywhere, each to another value.
    Bytes,
    /// Up to 64 bytes in a row, the first and the last of which change.
    Burst,
    /// One to three bytes of the BTH and what follows it first: opcode, destination, PSN, lengths,
    /// keys.
    Headers,
    /// Two different 16-bit words change places, which a UDP checksum does not see, whatever summed
    /// up.
    Swap,
    /// The end is cut off.
    Cut,
}

impl Corruption {
    /// All of them.
    pub const ALL: [Corruption; 6] = [
        Corruption::Bit,
        Corruption::Bytes,
        Corruption::Burst,
        Corruption::Headers,
        Corruption::Swap,
        Corruption::Cut,
    ];
    /// Of 16 corrupted packets so many are of each kind.
    const WEIGHTS: [usize; 6] = [2, 5, 3, 3, 2, 1];

    fn choose(generator: &mut Generator) -> Corruption {
        let mut left = generator.below(Corruption::WEIGHTS.iter().sum());
        for (kind, weight) in Corruption::ALL.into_iter().zip(Corruption::WEIGHTS) {
            if left < weight {
                return kind;
            }
            left -= weight;
        }
        Corruption::Bytes
    }

    /// Corrupts a packet, BTH up to and including the ICRC, in one of the ways; gives which, and
    /// how many bytes are left. The same seed does the same.
    pub fn strike(packet: &mut [u8], seed: u64) -> (Corruption, usize) {
        let mut generator = Generator::new(seed);
        let kind = Corruption::choose(&mut generator);
        (kind, kind.apply(packet, &mut generator))
    }

    /// Corrupts a packet in this way; how many bytes are left.
    pub fn strike_as(self, packet: &mut [u8], seed: u64) -> usize {
        self.apply(packet, &mut Generator::new(seed))
    }

    fn apply(self, packet: &mut [u8], generator: &mut Generator) -> usize {
        let len = packet.len();
        if len == 0 {
            return 0;
        }
        match self {
            Corruption::Bit => packet[generator.below(len)] ^= 1 << generator.below(8),
            Corruption::Bytes => {
                let count = 2 + generator.below(3);
                change_apart(packet, count, generator);
            }
            Corruption::Burst => {
                let burst = (2 + generator.below(63)).min(len);
                let start = generator.below(len - burst + 1);
                let (first, last) = (start, start + burst - 1);
                for (at, byte) in packet.iter_mut().enumerate().take(last + 1).skip(first) {
                    match at == first || at == last {
                        true => *byte ^= not_zero(generator),
                        false => *byte ^= generator.next() as u8,
                    }
                }
            }
            Corruption::Headers => {
                let count = 1 + generator.below(3);
                let front = len.min(Bth::LEN + 16);
                change_apart(&mut packet[..front], count, generator);
            }
            Corruption::Swap => {
                let words = (len / 2).max(1);
                let word = |at: usize| packet.get(2 * at..2 * at + 2);
                let (a, start) = (generator.below(words), generator.below(words));
                let mut others = (start..words).chain(0..start);
                let Some(b) = others.find(|&b| word(b) != word(a)) else {
                    // As in a packet of zeros.
                    return Corruption::Bytes.apply(packet, generator);
                };
                packet.swap(2 * a, 2 * b);
                packet.swap(2 * a + 1, 2 * b + 1);
            }
            Corruption::Cut => return generator.below(len),
        }
        len
    }
}

/// Changes so many different bytes, or all if there are fewer.
fn change_apart(bytes: &mut [u8], count: usize, generator: &mut Generator) {
    let mut changed = [usize::MAX; 4];
    for n in 0..count.min(bytes.len()).min(changed.len()) {
        let at = loop {
            let at = generator.below(bytes.len());
            if !changed.contains(&at) {
                break at;
            }
        };
        changed[n] = at;
        bytes[at] ^= not_zero(generator);
    }
}

fn not_zero(generator: &mut Generator) -> u8 {
    1 + generator.below(255) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn noise(len: usize) -> Vec<u8> {
        let mut generator = Generator::new(len as u64);
        (0..len).map(|_| generator.next() as u8).collect()
    }

    /// Positions that differ, in what is left.
    fn differing(a: &[u8], b: &[u8]) -> Vec<usize> {
        (0..b.len()).filter(|&at| a[at] != b[at]).collect()
    }

    /// Each kind changes what it says and always something, wherever in the packet that is.
    #[test]
    fn each_kind_does_what_it_says() {
        for kind in Corruption::ALL {
            let mut places = BTreeSet::new();
            for len in [16, 17, 44, 300] {
                let clean = noise(len);
                for seed in 0..2000 {
                    let mut packet = clean.clone();
                    let left = kind.strike_as(&mut packet, seed);
                    packet.truncate(left);
                    let at = differing(&clean, &packet);
                    places.extend(at.iter().filter(|_| len == 44).copied());
                    assert!(left < len || !at.is_empty(), "{kind:?} {seed} {len}");
                    match kind {
                        Corruption::Bit => {
                            assert_eq!(at.len(), 1);
                            assert_eq!((clean[at[0]] ^ packet[at[0]]).count_ones(), 1);
                        }
                        Corruption::Bytes => assert!((2..=4).contains(&at.len())),
                        Corruption::Burst => assert!(at[at.len() - 1] - at[0] < 64),
                        Corruption::Headers => {
                            assert!((1..=3).contains(&at.len()) && at[at.len() - 1] < 28);
                        }
                        Corruption::Swap => {
                            let sum = |bytes: &[u8]| -> u32 {
                                let words = bytes.chunks_exact(2);
                                words.map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum()
                            };
                            assert_eq!(sum(&clean), sum(&packet));
                        }
                        Corruption::Cut => assert!(left < len && at.is_empty()),
                    }
                }
            }
            let all = match kind {
                Corruption::Headers => 28,
                Corruption::Cut => 0,
                _ => 44,
            };
            assert_eq!(places.len(), all, "{kind:?} everywhere, the ICRC included");
        }
    }

    #[test]
    fn all_kinds_come_and_the_same_ones_for_the_same_seed() {
        let clean = noise(44);
        let mut kinds = BTreeSet::new();
        for seed in 0..500 {
            let (mut a, mut b) = (clean.clone(), clean.clone());
            let done = Corruption::strike(&mut a, seed);
            assert_eq!((done, &a), (Corruption::strike(&mut b, seed), &b));
            kinds.insert(format!("{:?}", done.0));
        }
        assert_eq!(kinds.len(), Corruption::ALL.len());
    }

    #[test]
    fn nothing_is_too_short() {
        for kind in Corruption::ALL {
            for len in 0..8 {
                for seed in 0..100 {
                    let mut packet = vec![0; len];
                    assert!(kind.strike_as(&mut packet, seed) <= len);
                }
            }
        }
    }
}
