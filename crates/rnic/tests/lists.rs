//! Work requests of several buffers, requests that are posted together, and memory that the program
//! has made itself.

use std::ptr::NonNull;

use rnic::{Buffer, Error, SendRequest, StableMemory};

use crate::loopback::{pair, pair_with};

/// The bytes of a message leave several buffers, and land in several, cut elsewhere.
#[test]
fn a_message_is_gathered_and_scattered() {
    let (left, right) = pair_with(|b| b.max_send_sge(3), |b| b.max_recv_sge(4));
    let into = [1, 4, 2, 100].map(|len| right.pd.buffer(len).expect("memory"));
    right.qp.post_recv_scatter(into, 7).expect("posted");
    let request = SendRequest::send(left.buffer(b"one"))
        .and(left.buffer(b"xtwox"))
        .and_then(|request| request.range(1..4))
        .and_then(|request| request.and(left.buffer(b"three")));
    left.qp.post(request.expect("sound")).expect("posted");
    let sent: Vec<Vec<u8>> = (left.done().into_buffers().iter())
        .map(|buffer| buffer.to_vec())
        .collect();
    assert_eq!(sent, [&b"one"[..], b"xtwox", b"three"], "all come back");
    let received = right.done();
    assert_eq!((received.id(), received.byte_len()), (7, 11));
    let parts: Vec<&[u8]> = received.parts().collect();
    assert_eq!(parts, [&b"o"[..], b"netw", b"ot", b"hree"]);
    assert_eq!(received.data(), b"o");
    let lens: Vec<usize> = received.into_buffers().iter().map(|b| b.len()).collect();
    assert_eq!(lens, [1, 4, 2, 100]);
}

/// Pieces of no bytes are nothing to the device.
#[test]
fn empty_pieces_are_passed_over() {
    let (left, right) = pair_with(|b| b.max_send_sge(2), |b| b.max_recv_sge(3));
    let mut some = right.pd.buffer(8).expect("memory");
    let (rest, end) = (some.split_off(4), some.split_off(4));
    right
        .qp
        .post_recv_scatter([end, some, rest], 1)
        .expect("posted");
    let empty = SendRequest::send(left.buffer(b"xyz")).range(..0);
    let request = empty.and_then(|request| request.and(left.buffer(b"message")));
    left.qp.post(request.expect("sound")).expect("posted");
    left.done();
    let mut received = right.done();
    assert_eq!(received.parts().collect::<Vec<_>>(), [&b"mess"[..], b"age"]);
    assert_eq!(received.data(), b"mess");
    assert!(received.take_buffer().expect("the empty one").is_empty());
    assert_eq!(received.data(), b"mess");
    received.take_buffer().expect("the first four bytes");
    assert_eq!(received.data(), b"age", "what is left of the message");
}

/// So are those of WRITEs and READs; the peer's memory is one piece.
#[test]
fn a_write_gathers_and_a_read_scatters() {
    let (left, right) = pair_with(|b| b.max_send_sge(2), |b| b);
    let region = right.pd.writable(6).readable().build().expect("memory");
    let write = SendRequest::write(left.buffer(b"abc"), region.remote());
    let write = write.and(left.buffer(b"def")).expect("sound");
    left.qp.post(write).expect("posted");
    left.done();
    let mut bytes = [0; 6];
    region.copy_out(0, &mut bytes).expect("in range");
    assert_eq!(&bytes, b"abcdef");
    let read = SendRequest::read(left.buffer(&[0; 2]), region.remote());
    let read = read.and(left.buffer(&[0; 4])).expect("sound");
    left.qp.post(read).expect("posted");
    let mut done = left.done();
    assert_eq!(done.parts().collect::<Vec<_>>(), [&b"ab"[..], b"cdef"]);
    assert_eq!(done.take_buffer().expect("the first")[..], *b"ab");
    assert_eq!(done.take_buffer().expect("the second")[..], *b"cdef");
    assert!(done.take_buffer().is_none());
}

#[test]
fn more_buffers_than_a_queue_takes_come_back() {
    let (left, right) = pair();
    // A device may take more than it was asked for.
    let most = left.qp.cap();
    let mut many = SendRequest::send(left.buffer(b"one"));
    for _ in 0..most.max_send_sge {
        many = many.and(left.buffer(b"two")).expect("sound");
    }
    let refused = left.qp.post(many).expect_err("one too many");
    assert!(
        matches!(refused.error, Error::InvalidArgument(_)),
        "{refused}"
    );
    assert!(refused.to_string().contains("max_send_sge"), "{refused}");
    let count = most.max_send_sge as usize + 1;
    assert_eq!(refused.request.into_buffers().len(), count);
    let count = right.qp.cap().max_recv_sge as usize + 1;
    let into = (0..count).map(|_| right.pd.buffer(4).expect("memory"));
    let refused = right.qp.post_recv_scatter(into, 1);
    let refused = refused.expect_err("one too many");
    assert!(refused.to_string().contains("max_recv_sge"), "{refused}");
    assert_eq!(refused.buffers.len(), count);
}

#[test]
fn what_takes_one_buffer_or_none_takes_no_other() {
    let (left, right) = pair();
    let inline = SendRequest::send_inline(b"inline").and(left.buffer(b"more"));
    let refused = inline.expect_err("it is inline");
    assert!(matches!(refused.error, Error::InvalidArgument(_)));
    // Nothing is lost: neither the request nor what was to be added.
    let buffer = refused.buffer.expect("comes back");
    assert_eq!(buffer[..], *b"more");
    left.qp.post(*refused.request).expect("as it was");
    let region = right.pd.writable(8).atomic().build().expect("memory");
    let add = SendRequest::fetch_add(left.buffer(&[0; 8]), region.remote(), 1);
    let refused = add.and(left.buffer(&[1; 8])).expect_err("one buffer");
    assert!(matches!(refused.error, Error::InvalidArgument(_)));
    assert_eq!(refused.buffer.expect("comes back")[..], [1; 8]);
    assert_eq!(refused.request.into_buffers().len(), 1);
}

#[test]
fn a_range_that_leaves_the_buffer_gives_the_request_back() {
    let (left, right) = pair();
    let buffer = right.pd.buffer(16).expect("memory");
    right.qp.post_recv(buffer, 1).expect("posted");
    let request = SendRequest::send(left.buffer(b"whole")).range(1..);
    let refused = request.and_then(|r| r.range(3..9)).expect_err("too long");
    assert!(
        matches!(refused.error, Error::OutOfRange { .. }),
        "{refused}"
    );
    left.qp.post(*refused.request).expect("as it was");
    assert_eq!(right.done().data(), b"hole");
}

/// Buffers of unsignaled requests come back with the completion that vouches for them, all of them.
#[test]
fn buffers_of_unsignaled_requests_come_back() {
    let (left, right) = pair_with(|b| b.max_send_sge(2), |b| b);
    for id in 0..2 {
        let buffer = right.pd.buffer(16).expect("memory");
        right.qp.post_recv(buffer, id).expect("posted");
    }
    let first = SendRequest::send(left.buffer(b"one")).and(left.buffer(b"two"));
    let first = first.expect("sound").id(5).unsignaled();
    left.qp.post(first).expect("posted");
    left.qp
        .post(SendRequest::send_inline(b"end"))
        .expect("posted");
    let released = left.done().take_released();
    let released: Vec<_> = released.iter().map(|(id, b)| (*id, b.to_vec())).collect();
    assert_eq!(released, [(5, b"one".to_vec()), (5, b"two".to_vec())]);
    assert_eq!(right.done().data(), b"onetwo");
}

#[test]
fn a_batch_is_posted_when_it_is_committed() {
    let (left, right) = pair();
    for id in 0..3 {
        let buffer = right.pd.buffer(16).expect("memory");
        right.qp.post_recv(buffer, id).expect("posted");
    }
    let mut dropped = left.qp.batch();
    dropped.push(SendRequest::send_inline(b"never"));
    assert_eq!(dropped.len(), 1);
    drop(dropped);
    let mut batch = left.qp.batch();
    assert!(batch.is_empty());
    for text in [b"one", b"two"] {
        batch.push(SendRequest::send_inline(text));
    }
    batch.commit().expect("posted");
    assert_eq!(right.done().data(), b"one");
    assert_eq!(right.done().data(), b"two");
    left.done();
    left.done();
}

/// What is behind a request that cannot be posted comes back with it.
#[test]
fn a_batch_gives_back_what_it_did_not_post() {
    let (left, right) = pair();
    let buffer = right.pd.buffer(16).expect("memory");
    right.qp.post_recv(buffer, 1).expect("posted");
    let mut batch = left.qp.batch();
    batch.push(SendRequest::send_inline(b"one"));
    batch.push(SendRequest::send_inline(&[0; 1 << 20]));
    batch.push(SendRequest::send(left.buffer(b"two")));
    let refused = batch.commit().expect_err("too much inline data");
    assert!(
        matches!(refused.error, Error::InvalidArgument(_)),
        "{refused}"
    );
    assert_eq!(refused.requests.len(), 2);
    assert_eq!(right.done().data(), b"one");
}

/// Where the bytes of a buffer lie.
fn place(buffer: &Buffer) -> *const u8 {
    buffer.as_ptr()
}

#[test]
fn memory_of_the_program_is_used_where_it_lies() {
    let (left, right) = pair();
    let message = b"from a vector".to_vec();
    let lies_at = message.as_ptr();
    let into = right.pd.adopt(vec![0; 64]).expect("registered");
    right.qp.post_recv(into, 1).expect("posted");
    let message = left.pd.adopt(message).expect("registered");
    assert_eq!(place(&message), lies_at);
    left.qp.post(SendRequest::send(message)).expect("posted");
    let sent = left.done().into_buffer().expect("comes back");
    let sent: Vec<u8> = sent.into_memory().expect("all of it, and in no use");
    assert_eq!((sent.as_ptr(), &sent[..]), (lies_at, &b"from a vector"[..]));
    let received = right.done();
    assert_eq!(received.data(), b"from a vector");
    let buffer = received.into_buffer().expect("comes back");
    let bytes: Vec<u8> = buffer.into_memory().expect("all of it");
    assert_eq!(bytes.len(), 64);
}

/// Memory does not leave a buffer that is in use, nor as what it is not.
#[test]
fn memory_comes_back_whole_and_as_it_was() {
    let (left, _right) = pair();
    let mut buffer = left.pd.adopt(vec![1; 10]).expect("registered");
    let rest = buffer.split_off(4);
    let buffer = buffer.into_memory::<Vec<u8>>().expect_err("a part of it");
    let whole = buffer.unsplit(rest).expect("neighbours");
    let region = left.pd.share(whole).expect("registered once more");
    let whole = region.reclaim().expect("the only handle");
    let whole = whole.into_memory::<Page>().expect_err("another type");
    assert_eq!(whole.into_memory::<Vec<u8>>().expect("whole"), [1; 10]);
    let own = left.pd.buffer(8).expect("memory");
    assert_eq!(own.into_memory::<Vec<u8>>().expect_err("its own").len(), 8);
    let empty = left.pd.adopt(Vec::new()).expect_err("no bytes");
    assert!(matches!(empty.error, Error::InvalidArgument(_)), "{empty}");
    assert!(empty.memory.is_empty());
}

/// A type of the program's own.
#[test]
fn memory_of_any_kind_can_be_adopted() {
    let (left, right) = pair();
    let into = right.pd.buffer(8192).expect("memory");
    right.qp.post_recv(into, 1).expect("posted");
    let page = left.pd.adopt(Page(vec![3; 4096])).expect("registered");
    left.qp.post(SendRequest::send(page)).expect("posted");
    assert_eq!(right.done().data(), [3; 4096]);
    let page = left.done().into_buffer().expect("comes back");
    let page: Page = page.into_memory().expect("all of it");
    assert_eq!(page.0.len(), 4096);
}

/// Memory of another kind.
#[derive(Debug)]
struct Page(Vec<u8>);

// SAFETY: a vector's.
unsafe impl StableMemory for Page {
    fn bytes(&mut self) -> (NonNull<u8>, usize) {
        self.0.bytes()
    }
}
