use super::*;

/// A block of pcapng.
fn block(big: bool, kind: u32, body: &[u8]) -> Vec<u8> {
    let word = |n: u32| {
        if big {
            n.to_be_bytes()
        } else {
            n.to_le_bytes()
        }
    };
    let padded = body.len().div_ceil(4) * 4;
    let len = word(padded as u32 + 12);
    let mut out = [word(kind), len].concat();
    out.extend(body);
    out.resize(8 + padded, 0);
    out.extend(len);
    out
}

struct Words(bool);

impl Words {
    fn u32(&self, n: u32) -> [u8; 4] {
        if self.0 {
            n.to_be_bytes()
        } else {
            n.to_le_bytes()
        }
    }
    fn u16(&self, n: u16) -> [u8; 2] {
        if self.0 {
            n.to_be_bytes()
        } else {
            n.to_le_bytes()
        }
    }
}

fn section(big: bool) -> Vec<u8> {
    let w = Words(big);
    let body = [&w.u32(0x1a2b_3c4d)[..], &w.u16(1), &w.u16(0), &[0xff; 8]].concat();
    block(big, 0x0a0d_0d0a, &body)
}

fn interface(big: bool, link: u16, resolution: Option<u8>) -> Vec<u8> {
    let w = Words(big);
    let mut body = [&w.u16(link)[..], &w.u16(0), &w.u32(0)].concat();
    if let Some(resolution) = resolution {
        body.extend(w.u16(9));
        body.extend(w.u16(1));
        body.extend([resolution, 0, 0, 0]);
        body.extend([0; 4]);
    }
    block(big, 1, &body)
}

fn enhanced(big: bool, interface: u32, ticks: u64, wire: u32, data: &[u8]) -> Vec<u8> {
    let w = Words(big);
    let words = [
        interface,
        (ticks >> 32) as u32,
        ticks as u32,
        data.len() as u32,
        wire,
    ];
    let mut body: Vec<u8> = words.iter().flat_map(|&n| w.u32(n)).collect();
    body.extend(data);
    block(big, 6, &body)
}

type Seen = (u64, u64, u16, u32, u32, Vec<u8>);

fn all(file: &[u8]) -> (Vec<Seen>, Result<(), CaptureError>) {
    let mut decoder = Decoder::new();
    decoder.feed(file);
    let mut frames = Vec::new();
    loop {
        match decoder.next_frame() {
            Ok(Some(f)) => frames.push((
                f.number,
                f.time_ns,
                f.link_type,
                f.interface,
                f.wire_len,
                f.bytes.to_vec(),
            )),
            Ok(None) => return (frames, decoder.finish()),
            Err(error) => return (frames, Err(error)),
        }
    }
}

#[test]
fn pcap_of_either_order_and_resolution() {
    for (magic, ns) in [(0xa1b2_c3d4u32, 7_000), (0xa1b2_3c4d, 7)] {
        for big in [true, false] {
            let w = Words(big);
            let mut file = w.u32(magic).to_vec();
            file.extend([w.u16(2), w.u16(4)].concat());
            for n in [0, 0, 65_535, 101, 5, 7, 3, 9] {
                file.extend(w.u32(n));
            }
            file.extend(b"abc");
            let (frames, end) = all(&file);
            let time = 5_000_000_000 + ns;
            assert_eq!(
                frames,
                [(1, time, 101, 0, 9, b"abc".to_vec())],
                "{magic:x} {big}"
            );
            assert_eq!(end, Ok(()));
        }
    }
}

#[test]
fn pcapng_of_either_order_with_interfaces_and_resolutions() {
    for big in [true, false] {
        let mut file = section(big);
        file.extend(interface(big, 1, None));
        file.extend(interface(big, 276, Some(9)));
        // Powers of two.
        file.extend(interface(big, 113, Some(0x80 | 10)));
        file.extend(enhanced(big, 0, 3, 4, b"abcd"));
        file.extend(enhanced(big, 1, 3, 9, b"abcde"));
        // Something else in between: name resolution.
        file.extend(block(big, 4, &[0; 4]));
        file.extend(enhanced(big, 2, 1024 * 5 + 512, 1, b"x"));
        // A new section of the other order, with its own interfaces.
        file.extend(section(!big));
        file.extend(interface(!big, 101, Some(6)));
        file.extend(enhanced(!big, 0, 1 << 33, 2, b"yz"));
        let w = Words(!big);
        file.extend(block(!big, 3, &[&w.u32(3)[..], b"uvw"].concat()));
        let (frames, end) = all(&file);
        assert_eq!(end, Ok(()));
        assert_eq!(
            frames,
            [
                (1, 3_000, 1, 0, 4, b"abcd".to_vec()),
                (2, 3, 276, 1, 9, b"abcde".to_vec()),
                (3, 5_500_000_000, 113, 2, 1, b"x".to_vec()),
                (4, (1 << 33) * 1000, 101, 0, 2, b"yz".to_vec()),
                (5, 0, 101, 0, 3, b"uvw".to_vec()),
            ],
            "{big}"
        );
    }
}

#[test]
fn what_is_no_capture_is_said() {
    assert_eq!(all(b"").1, Err(CaptureError::NotACapture));
    assert_eq!(
        all(b"hello world, this is text").1,
        Err(CaptureError::NotACapture)
    );
    assert_eq!(
        all(&[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 9, 9, 9, 9]).1,
        Err(CaptureError::NotACapture)
    );
}

#[test]
fn the_end_within_a_record_and_absurd_lengths() {
    let mut file = section(false);
    file.extend(interface(false, 1, None));
    let whole = file.len();
    file.extend(enhanced(false, 0, 3, 4, b"abcd"));
    let cut = &file[..file.len() - 3];
    assert_eq!(
        all(cut).1,
        Err(CaptureError::CutShort {
            left: cut.len() - whole
        })
    );
    // A block of 2 GiB.
    file.truncate(whole);
    file.extend([6, 0, 0, 0, 0, 0, 0, 0x80]);
    assert_eq!(
        all(&file).1,
        Err(CaptureError::Corrupt {
            offset: whole as u64
        })
    );
    // An interface that was not described.
    file.truncate(whole);
    file.extend(enhanced(false, 7, 3, 4, b"abcd"));
    assert_eq!(
        all(&file).1,
        Err(CaptureError::Corrupt {
            offset: whole as u64
        })
    );
    // A pcap record of 4 GiB.
    let mut file = 0xa1b2_c3d4u32.to_le_bytes().to_vec();
    file.extend([2, 0, 4, 0]);
    for n in [0, 0, 65_535, 1, 5, 7, u32::MAX, 9u32] {
        file.extend(n.to_le_bytes());
    }
    assert_eq!(all(&file).1, Err(CaptureError::Corrupt { offset: 24 }));
}
