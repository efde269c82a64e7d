//! Byte streams: every byte arrives once and in order, whatever the sizes; ends and errors are
//! told.

use std::future::Future;
use std::io::ErrorKind;
use std::time::Duration;

use rnic::CmConnector;
use rnic::aio::{ByteStream, CompletionQueue, Listener};
use smol::io::{AsyncReadExt, AsyncWriteExt};

use crate::futures::{on_tokio, queue};

/// Two ends, with so many buffers of such a size.
pub(crate) fn ends(
    cq: &CompletionQueue,
    left: (usize, usize),
    right: (usize, usize),
) -> [ByteStream; 2] {
    let gid = cq.context().loopback_gid().expect("an address");
    let pd = cq.context().alloc_pd().expect("pd");
    let [left, right] = [left, right].map(|(count, size)| {
        let builder = ByteStream::builder(cq, &pd).gid(&gid).buffers(count, size);
        builder.prepare().expect("a stream")
    });
    let (to_left, to_right) = (left.endpoint(), right.endpoint());
    [
        left.handshake(to_right).expect("handshake"),
        right.handshake(to_left).expect("handshake"),
    ]
}

/// The bytes are those that were sent.
#[track_caller]
fn arrived(got: &[u8], sent: &[u8], what: impl std::fmt::Debug) {
    let wrong = got.iter().zip(sent).position(|(got, sent)| got != sent);
    if let Some(at) = wrong {
        let [got, sent] = [got, sent].map(|all| &all[at..all.len().min(at + 16)]);
        panic!("{what:?}: {got:02x?} instead of {sent:02x?} from byte {at} on");
    }
    assert_eq!(got.len(), sent.len(), "bytes, {what:?}");
}

pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8)
        .collect()
}

async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    smol::future::zip(a, b).await
}

/// Pieces of odd lengths, buffers of unequal numbers and sizes, one task that writes and one that
/// reads.
#[test]
fn bytes_arrive_once_and_in_order() {
    let cq = queue();
    let sizes = [(1, 20), (2, 64), (16, 1000), (5, 4096)];
    for left in sizes {
        for right in sizes {
            let [mut writer, mut reader] = ends(&cq, left, right);
            let sent = pattern(20_000);
            let write = async {
                let mut rest = &sent[..];
                let mut len = 1;
                while !rest.is_empty() {
                    let piece = rest.len().min(len);
                    writer.write_all(&rest[..piece]).await.expect("written");
                    rest = &rest[piece..];
                    len = len * 7 % 4099;
                }
                writer.close().await.expect("closed");
                let after = writer.write(b"x").await.expect_err("it is closed");
                assert_eq!(after.kind(), ErrorKind::BrokenPipe);
            };
            let read = async {
                let mut got = Vec::new();
                reader.read_to_end(&mut got).await.expect("all of it");
                got
            };
            let ((), got) = on_tokio(both(write, read));
            arrived(&got, &sent, (left, right));
        }
    }
}

/// A reader that does not read makes the writer wait; nothing fails, and no packet is sent in vain.
#[test]
fn a_slow_reader_makes_the_writer_wait() {
    let cq = queue();
    let [writer, mut reader] = ends(&cq, (4, 100), (4, 100));
    on_tokio(async {
        let counters = writer.counters();
        let task = tokio::spawn(async move {
            let mut writer = writer;
            writer.write_all(&pattern(10_000)).await.expect("written");
            writer.flush().await.expect("flushed");
            writer
        });
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!task.is_finished(), "there is room for 400 bytes");
        let mut got = vec![0; 10_000];
        reader.read_exact(&mut got).await.expect("all of it");
        arrived(&got, &pattern(10_000), "a slow reader");
        let writer = task.await.expect("no panic");
        assert_eq!(counters.rnr_naks_received, 0);
        assert_eq!(writer.counters().rnr_naks_received, 0, "no RNR");
    });
}

/// Both directions at once, by halves in tasks of their own, of several threads.
#[test]
fn both_directions_at_once() {
    let cq = queue();
    let [left, right] = ends(&cq, (8, 1024), (4, 2048));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for end in [left, right] {
            let (mut reader, mut writer) = end.into_split();
            tasks.spawn(async move {
                for piece in pattern(1 << 20).chunks(3000) {
                    writer.write_all(piece).await.expect("written");
                }
                writer.close().await.expect("closed");
            });
            tasks.spawn(async move {
                let mut got = Vec::new();
                reader.read_to_end(&mut got).await.expect("all of it");
                arrived(&got, &pattern(1 << 20), "both directions");
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.expect("no panic");
        }
    });
}

/// One direction is closed, the other goes on.
#[test]
fn half_closed() {
    let cq = queue();
    let [mut left, mut right] = ends(&cq, (4, 100), (4, 100));
    on_tokio(async {
        left.write_all(b"question").await.expect("written");
        left.close().await.expect("closed");
        let mut question = String::new();
        right
            .read_to_string(&mut question)
            .await
            .expect("all of it");
        assert_eq!(question, "question");
        right.write_all(b"a longer answer").await.expect("written");
        right.close().await.expect("closed");
        let mut answer = String::new();
        left.read_to_string(&mut answer).await.expect("all of it");
        assert_eq!(answer, "a longer answer");
        assert_eq!(left.read(&mut [0; 4]).await.expect("still the end"), 0);
    });
}

/// A stream that is dropped is closed, and what was written arrives.
#[test]
fn dropping_a_stream_loses_nothing() {
    let cq = queue();
    for _ in 0..20 {
        let [mut left, mut right] = ends(&cq, (4, 1000), (4, 1000));
        on_tokio(async {
            left.write_all(&pattern(3500)).await.expect("written");
            drop(left);
            let mut got = Vec::new();
            right.read_to_end(&mut got).await.expect("all of it");
            arrived(&got, &pattern(3500), "dropped");
        });
    }
    // All queue pairs are gone in the end: there is room for one of half the queue, which a device
    // may make a little deeper than it was asked for. Those of all streams have more.
    let start = std::time::Instant::now();
    let capacity = cq.capacity();
    loop {
        let pd = cq.context().alloc_pd().expect("pd");
        let gid = cq.context().loopback_gid().expect("an address");
        let qp = cq.create_qp::<rnic::Rc>(&pd).gid(&gid);
        match qp.max_send_wr(capacity / 2).max_recv_wr(1).build() {
            Ok(_) => break,
            // The device may have no queue of such a depth.
            Err(error) if !error.to_string().contains("make it larger") => break,
            Err(error) => assert!(start.elapsed() < Duration::from_secs(60), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Owned buffers: the receiver reads them where they landed, the sender gets its own back.
#[test]
fn without_a_copy() {
    let cq = queue();
    let [mut left, mut right] = ends(&cq, (4, 1000), (4, 500));
    let pd = cq.context().alloc_pd().expect("pd");
    // Buffers of another protection domain are refused by the device.
    let foreign = pd.buffer_from(&pattern(10)).expect("memory");
    on_tokio(async {
        let own = left.pd().buffer_from(&pattern(3210)).expect("memory");
        let at = own.as_ptr();
        let read = async {
            let mut got = Vec::new();
            while got.len() < 3210 {
                let chunk = right.read_message().await.expect("bytes").expect("no end");
                assert!(chunk.len() <= 500);
                got.extend_from_slice(&chunk);
            }
            got
        };
        let (sent, got) = both(left.write_buffer(own), read).await;
        let sent = sent.expect("sent");
        assert_eq!((sent.as_ptr(), sent.len()), (at, 3210), "the same buffer");
        assert!(got == pattern(3210));
        // What a read has left is a chunk's beginning.
        left.write_all(b"0123456789").await.expect("written");
        let mut four = [0; 4];
        right.read_exact(&mut four).await.expect("bytes");
        let rest = right.read_message().await.expect("bytes").expect("no end");
        assert_eq!(&rest[..], b"456789");
        drop(rest);
        let error = left
            .write_buffer(foreign)
            .await
            .expect_err("of another domain");
        let exact = crate::device().exact_failures;
        let why = error.error.to_string();
        assert!(!exact || why.contains("protection"), "{why}");
    });
}

/// A peer that is gone without a word is an error, for a reader and for a writer.
#[test]
fn a_peer_that_vanishes_is_an_error() {
    if !crate::device().connection_manager {
        return;
    }
    let cq = queue();
    let pd = cq.context().alloc_pd().expect("pd");
    let ip = cq.context().loopback_gid().expect("an address").addr;
    on_tokio(async {
        let listener = Listener::bind(&cq, (ip, 0)).expect("listens");
        let address = listener.local_addr().expect("an address");
        let connector = CmConnector::new(address).expect("an address");
        // A peer that is no stream, and goes away.
        let accept = async {
            let request = listener.accept().await.expect("a request");
            let qp = cq
                .create_qp::<rnic::Rc>(&pd)
                .receives(8, 64)
                .build()
                .expect("qp");
            let connection = request.accept(qp).await.expect("accepted");
            connection.recv().await.expect("its greeting");
        };
        let client = ByteStream::connect(&connector, &cq, &pd);
        let (client, ()) = both(client, accept).await;
        let mut client = client.expect("connects");
        let error = client.read(&mut [0; 8]).await.expect_err("it is gone");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
        let error = client.write(b"x").await.expect_err("it is gone");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    });
}

/// Messages that are none of a stream break it, and nothing else.
#[test]
fn nonsense_of_a_peer_is_an_error() {
    let cq = queue();
    let gid = cq.context().loopback_gid().expect("an address");
    let pd = cq.context().alloc_pd().expect("pd");
    let hello = |count: u32| {
        let mut bytes = b"rnicbyte".to_vec();
        bytes.extend([1, count, 64].map(u32::to_be_bytes).concat());
        bytes
    };
    let wrong: [(&[u8], Option<[u8; 4]>); 6] = [
        (b"no immediate", None),
        (b"", Some([9, 0, 0, 0])),
        (b"short", Some([3, 0, 0, 0])),
        (&hello(0), Some([3, 0, 0, 0])),
        // Bytes before the greeting, or credits that nobody took.
        (b"", Some([1, 0, 0, 7])),
        (b"", Some([1, 0xff, 0xff, 0xff])),
    ];
    for (bytes, imm) in wrong {
        let stream = ByteStream::builder(&cq, &pd).gid(&gid).prepare();
        let stream = stream.expect("a stream");
        let qp = cq.create_qp::<rnic::Rc>(&pd).gid(&gid).receives(8, 64);
        let qp = qp.build().expect("qp");
        let (to_stream, to_qp) = (stream.endpoint(), qp.endpoint());
        let mut stream = stream.handshake(to_qp).expect("handshake");
        let qp = qp.handshake(to_stream).expect("handshake");
        on_tokio(async {
            let mut request = rnic::SendRequest::send_inline(bytes);
            if let Some(imm) = imm {
                request = request.imm(imm);
            }
            qp.request(request).await.expect("sent");
            let error = stream.read(&mut [0; 8]).await.expect_err("nonsense");
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        });
    }
}
