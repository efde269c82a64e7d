use rnic_wire::ip::IpUdp;

use super::*;
use crate::staging::framing::{Numbering, seal};
use crate::staging::path::tests::route;
use rnic_skip::Folder;

fn records(file: &[u8]) -> Vec<Vec<u8>> {
    assert_eq!(file[..HEADER_LEN], file_header());
    let mut rest = &file[HEADER_LEN..];
    let mut out = Vec::new();
    while !rest.is_empty() {
        let word = |at: usize| u32::from_ne_bytes(rest[at..at + 4].try_into().unwrap());
        let len = word(8) as usize;
        assert_eq!(word(8), word(12));
        assert!(word(4) < 1_000_000_000);
        let (link, ip) = rest[16..16 + len].split_at(SLL_LEN);
        let sent = link == sll_header(Way::Sent, ip[0] >> 4 == 6);
        assert!(sent || link == sll_header(Way::Received, ip[0] >> 4 == 6));
        out.push(ip.to_vec());
        rest = &rest[16 + len..];
    }
    out
}

fn ones_complement_sum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|c| u32::from(c[0]) << 8 | u32::from(*c.get(1).unwrap_or(&0)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[test]
fn sent_and_received_packets_are_whole_ip_packets() {
    let folder = Folder::new();
    let path = folder.path().join("a.pcap");
    let route = route("127.0.0.1", "127.0.0.1", 0x5000);
    let mut run: Vec<u8> = (0..3 * 48).map(|i| i as u8).collect();
    seal(&mut run, 48, &route.icrc, Numbering::Batch);
    {
        let mut capture = Capture::open(&path).unwrap();
        for (k, packet) in run.chunks(48).enumerate() {
            capture.sent(&route, k as u16, packet);
        }
        let header = |ip_id| IcrcOk { ip_id, df: true };
        capture.received(&route.flow, header(2), None, &run[96..]);
        capture.received(&route.flow, header(0), None, b"no packet at all");
        capture.write_out();
    }
    let records = records(&std::fs::read(&path).unwrap());
    assert_eq!(records.len(), 5);
    for (record, (id, bytes)) in records.iter().zip([
        (0, &run[..48]),
        (1, &run[48..96]),
        (2, &run[96..]),
        (2, &run[96..]),
        (0, b"no packet at all"),
    ]) {
        let (headers, payload) = IpUdp::parse(record).expect("an IP packet");
        assert_eq!(
            (headers.flow, headers.ip_id, headers.dont_fragment),
            (route.flow, id, true)
        );
        assert_eq!(payload, bytes);
        assert_ne!(headers.hop_limit, 0);
        assert_eq!(
            ones_complement_sum(&record[..20]),
            0xffff,
            "header checksum"
        );
        if bytes.len() == 48 {
            assert!(rnic_wire::check(&headers.flow, payload, id).is_ok_and(|ok| ok.ip_id == id));
        }
    }
}

#[test]
fn several_captures_share_a_file() {
    let folder = Folder::new();
    let path = folder.path().join("a.pcap");
    let route = route("127.0.0.1", "127.0.0.1", 0x5000);
    std::thread::scope(|scope| {
        for t in 0..4u8 {
            let (path, route) = (&path, &route);
            scope.spawn(move || {
                let mut capture = Capture::open(path).unwrap();
                for i in 0..200 {
                    capture.sent(route, 0, &vec![t; 16 + i]);
                    capture.write_out();
                }
            });
        }
    });
    let records = records(&std::fs::read(&path).unwrap());
    assert_eq!(records.len(), 800);
    for record in records {
        let (_, payload) = IpUdp::parse(&record).expect("an IP packet");
        assert!(payload.iter().all(|b| *b == payload[0]));
    }
}

#[test]
fn a_file_of_something_else_is_not_touched() {
    let folder = Folder::new();
    let path = folder.path().join("letter.txt");
    std::fs::write(&path, "Dear Sir or Madam, this is a letter.").unwrap();
    let error = Capture::open(&path).unwrap_err();
    assert!(
        error.to_string().contains("no capture of this program"),
        "{error}"
    );
    assert!(std::fs::read_to_string(&path).unwrap().starts_with("Dear"));
    assert!(Capture::open(&folder.path().join("no/such/folder.pcap")).is_err());
}

/// A capture is of no use for a question about DSCP, ECN or hops if it shows defaults.
#[test]
fn received_packets_have_the_marks_that_they_came_with() {
    let folder = Folder::new();
    let path = folder.path().join("a.pcap");
    let marks = IpMarks {
        traffic_class: 0x6b,
        hop_limit: 9,
    };
    let v4 = route("127.0.0.1", "127.0.0.1", 0x5000).flow;
    let v6 = Flow {
        src: "fd00::1".parse().unwrap(),
        dst: "fd00::2".parse().unwrap(),
        ..v4
    };
    {
        let mut capture = Capture::open(&path).unwrap();
        let header = IcrcOk { ip_id: 0, df: true };
        capture.received(&v4, header, Some(marks), &[0; 48]);
        capture.received(&v6, header, Some(marks), &[0; 48]);
        capture.write_out();
    }
    let records = records(&std::fs::read(&path).unwrap());
    assert_eq!(records.len(), 2);
    for record in records {
        let (headers, _) = IpUdp::parse(&record).expect("an IP packet");
        assert_eq!((headers.traffic_class, headers.hop_limit), (0x6b, 9));
    }
}

#[test]
fn multicast_has_the_hop_limit_of_the_wire() {
    let folder = Folder::new();
    let path = folder.path().join("a.pcap");
    let route = route("127.0.0.1", "224.0.0.5", 0xff_ffff);
    {
        let mut capture = Capture::open(&path).unwrap();
        capture.sent(&route, 0, &[0; 48]);
        let flow = Flow {
            src: "fd00::1".parse().unwrap(),
            dst: "ff15::5".parse().unwrap(),
            ..route.flow
        };
        let header = IcrcOk { ip_id: 0, df: true };
        capture.received(&flow, header, None, &[0; 48]);
        capture.write_out();
    }
    for record in records(&std::fs::read(&path).unwrap()) {
        let (headers, _) = IpUdp::parse(&record).expect("an IP packet");
        // What ip(7) and ipv6(7) say of sockets that were not told another one.
        assert_eq!(headers.hop_limit, 1);
    }
}

#[test]
fn a_file_whose_lock_nobody_lets_go_of_is_given_up() {
    let folder = Folder::new();
    let path = folder.path().join("a.pcap");
    let first = Capture::open(&path).unwrap();
    assert!(sys::try_lock_file(&first.file).unwrap());
    let error = Capture::open_file(&path, Duration::ZERO).unwrap_err();
    assert!(error.to_string().contains("holds its lock"), "{error}");
    sys::unlock_file(&first.file);
    Capture::open_file(&path, Duration::ZERO).unwrap();
}
