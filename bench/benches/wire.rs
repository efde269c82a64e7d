//! What a packet costs before and after the protocol: decoding, writing headers, the ICRC.
#![allow(missing_docs, reason = "what the macros of criterion make has none")]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rnic_wire::{
    Aeth, Bth, Ext, Flow, IcrcContext, Opcode, Operation, Packet, PathMtu, Payload, Psn, Reth,
    Service, Syndrome, emit, pad_len,
};

fn packet(operation: Operation, payload: &[u8]) -> Vec<u8> {
    let packet = Packet {
        bth: Bth {
            opcode: Opcode::new(Service::Rc, operation),
            pad: pad_len(payload.len()),
            pkey: 0xffff,
            dest_qp: 0x12_3456,
            psn: Psn::new(7),
            ..Bth::default()
        },
        ext: Ext {
            reth: operation.has_reth().then(Reth::default),
            aeth: operation.has_aeth().then_some(Aeth {
                syndrome: Syndrome::Ack { credits: 31 },
                msn: 7,
            }),
            ..Ext::default()
        },
        payload: Payload::Here(payload),
    };
    let mut bytes = vec![0; packet.wire_len()];
    packet.emit(&mut bytes);
    bytes
}

fn decode(c: &mut Criterion) {
    let mut group = c.benchmark_group("decode");
    for (name, operation, len) in [
        ("SEND only, 10 B", Operation::SendOnly, 10),
        ("WRITE first, 1 KiB", Operation::WriteFirst, 1024),
        ("WRITE middle, 1 KiB", Operation::WriteMiddle, 1024),
        ("ACK", Operation::Acknowledge, 0),
    ] {
        let bytes = packet(operation, &vec![1; len]);
        group.bench_function(name, |b| {
            b.iter(|| Packet::parse(black_box(&bytes)).is_ok())
        });
        let front = &bytes[..bytes.len().min(rnic_wire::MAX_HEADER_LEN)];
        group.bench_function(format!("{name}, payload detached"), |b| {
            b.iter(|| Packet::parse_front(black_box(front), bytes.len(), PathMtu::M1024).is_ok())
        });
    }
}

fn headers(c: &mut Criterion) {
    let bytes = packet(Operation::Acknowledge, &[]);
    let ack = Packet::parse(&bytes).expect("a packet");
    let mut out = [0; 64];
    c.bench_function("headers of an ACK", |b| {
        b.iter(|| emit(black_box(&ack.bth), black_box(&ack.ext), &mut out))
    });
}

fn icrc(c: &mut Criterion) {
    let context = IcrcContext::new(&Flow {
        src: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
        dst: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
        src_port: 0xc000,
        dst_port: rnic_wire::ROCE_PORT,
    });
    let mut group = c.benchmark_group("ICRC");
    for len in [10usize, 256, 1024, 4096] {
        let mut bytes = packet(Operation::WriteMiddle, &vec![1; len]);
        bytes.extend([0; rnic_wire::ICRC_LEN]);
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(format!("take, {len} B"), |b| {
            b.iter(|| context.append(0, true, black_box(&mut bytes)))
        });
        group.bench_function(format!("check, {len} B"), |b| {
            b.iter(|| context.check(black_box(&bytes), 0).is_ok())
        });
    }
}

criterion_group!(parts, decode, headers, icrc);
criterion_main!(parts);
