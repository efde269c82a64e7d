//! What parts of the device cost: the check of memory accesses, and completion queues.
#![allow(missing_docs, reason = "what the macros of criterion make has none")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rnic_nic::parts::{Completer, Memory};
use rnic_nic::{Completion, CompletionOpcode, Context, Immediate, Status};

fn memory(c: &mut Criterion) {
    let mut group = c.benchmark_group("memory");
    for regions in [1, 10_000] {
        let table = Memory::new(regions);
        let mut nth = 0;
        // Neighbours in the list are no neighbours in the table.
        let mut next = || {
            nth += 1;
            nth
        };
        group.bench_function(format!("check of a peer's WRITE, {regions} regions"), |b| {
            b.iter(|| assert!(table.check_remote(next(), 8)));
        });
        for len in [8, 4096 - 64] {
            let data = vec![1; len];
            group.bench_function(
                format!("WRITE of {len} B, checked and stored, {regions} regions"),
                |b| b.iter(|| assert!(table.write_remote(next(), &data))),
            );
        }
        let mut packet = [0; 8];
        group.bench_function(
            format!("8 B into a packet, checked, {regions} regions"),
            |b| b.iter(|| assert!(table.read_local(next(), &mut packet))),
        );
    }
}

fn completions(c: &mut Criterion) {
    let context = Context::open().expect("a device");
    let cq = context.create_cq(1024, None, 0).expect("a queue");
    let completer = Completer::new(&cq);
    let completion = Completion {
        wr_id: 1,
        status: Status::Success,
        opcode: CompletionOpcode::Recv,
        byte_len: 8,
        vendor_err: 0,
        qpn: 1,
        src_qpn: 1,
        immediate: Immediate::None,
        grh: None,
        pkey_index: 0,
        solicited: false,
    };
    let mut group = c.benchmark_group("completion queue");
    for count in [1, 16] {
        group.throughput(Throughput::Elements(count));
        group.bench_function(format!("{count} completed and polled"), |b| {
            b.iter(|| {
                for _ in 0..count {
                    completer.push(completion);
                }
                let polled = cq.poll(16, &mut |_| {}).expect("poll");
                assert_eq!(polled as u64, count);
            });
        });
    }
    group.throughput(Throughput::Elements(1));
    group.bench_function("an empty one polled, engine included", |b| {
        b.iter(|| assert_eq!(cq.poll(16, &mut |_| {}).expect("poll"), 0));
    });
}

criterion_group!(parts, memory, completions);
criterion_main!(parts);
