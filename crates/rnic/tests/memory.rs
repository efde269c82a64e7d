//! Memory that the program brings along: mappings, huge pages, files, ranges of anybody's; and by
//! which addresses peers name it.

use std::io::{Read, Seek, SeekFrom, Write};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use rnic::{
    Access, Error, HugePageSize, Mapping, RawMemory, RemoteMemory, SendRequest, SharedMapping,
    Status, WritableRegion,
};

use crate::loopback::{Side, pair};

/// A peer writes there, and reads the same back.
fn reach(peer: &Side, of: RemoteMemory) {
    let bytes: Vec<u8> = (0..of.len.min(200)).map(|n| n as u8 ^ 0x5a).collect();
    let write = SendRequest::write(peer.buffer(&bytes), of);
    peer.qp.post(write).expect("posted");
    peer.done();
    let into = peer.pd.buffer(bytes.len()).expect("memory");
    peer.qp.post(SendRequest::read(into, of)).expect("posted");
    assert_eq!(peer.done().data(), bytes);
}

fn has(region: &WritableRegion, offset: usize, bytes: &[u8]) {
    let mut found = vec![0; bytes.len()];
    region.copy_out(offset, &mut found).expect("in range");
    assert_eq!(found, bytes);
}

/// Pages of the kernel are a buffer, and a region; they come back as they were.
#[test]
fn an_anonymous_mapping_is_a_buffer_and_a_region() {
    let (left, right) = pair();
    let mut pages = Mapping::anonymous(10_000).expect("memory");
    pages[..5].copy_from_slice(b"pages");
    let lies_at = pages.as_ptr();
    let buffer = left.pd.adopt(pages).expect("registered");
    assert_eq!((buffer.as_ptr(), buffer.len()), (lies_at, 10_000));
    let into = right.pd.buffer(16).expect("memory");
    right.qp.post_recv(into, 1).expect("posted");
    let send = SendRequest::send(buffer).range(..5).expect("in range");
    left.qp.post(send).expect("posted");
    assert_eq!(right.done().data(), b"pages");
    let buffer = left.done().into_buffer().expect("comes back");
    let pages: Mapping = buffer.into_memory().expect("all of it");
    let region = right.pd.adopt_writable(pages).readable().build();
    let region = region.expect("registered");
    reach(&left, region.remote());
    // Another handle may be in use.
    let other = region.clone();
    let region = region.into_memory::<Mapping>().expect_err("shared");
    drop(other);
    let pages: Mapping = region.into_memory().expect("the only handle");
    assert_eq!(pages.as_ptr(), lies_at);
    let empty = Mapping::anonymous(0).expect_err("no bytes");
    assert!(matches!(empty, Error::InvalidArgument(_)), "{empty}");
}

/// There are none on most machines: then the error says which file to write what into. Where there
/// are, they are used.
#[test]
fn huge_pages_are_used_or_the_error_says_how_to_have_them() {
    let (left, right) = pair();
    for size in [HugePageSize::Default, HugePageSize::TwoMiB] {
        match Mapping::huge_pages(3 << 20, size) {
            Ok(pages) => {
                assert!(pages.len() >= 3 << 20);
                assert_eq!(pages.as_ptr() as usize % (2 << 20), 0);
                let region = right.pd.adopt_writable(pages).readable().build();
                reach(&left, region.expect("registered").remote());
            }
            Err(error) => {
                let said = error.to_string();
                assert!(said.contains("/sys/kernel/mm/hugepages"), "{said}");
                assert!(error.errno().is_some(), "{said}");
            }
        }
    }
    // More than any machine has: never a page that is not there.
    let error = Mapping::huge_pages(1 << 46, HugePageSize::TwoMiB);
    let said = error.expect_err("too many").to_string();
    assert!(said.contains("huge pages of 2048 kB"), "{said}");
}

/// A file without a name is one memory for all that map it: what a peer writes by one, the other has.
#[test]
fn a_memfd_is_shared_between_regions() {
    let (left, right) = pair();
    let memory = SharedMapping::memfd("rnic-test", 8192).expect("memory");
    let copy = memory.file().try_clone_to_owned().expect("a descriptor");
    let other = memory.file().try_clone_to_owned().expect("a descriptor");
    let region = right.pd.adopt_writable(memory).readable().build();
    let region = region.expect("registered");
    let second = SharedMapping::of_memfd(copy, 4096, 4096).expect("mapped");
    let second = left.pd.adopt_writable(second).build().expect("registered");
    let part = region.remote().slice(4096, 4).expect("in range");
    let write = SendRequest::write(left.buffer(b"both"), part);
    left.qp.post(write).expect("posted");
    left.done();
    has(&second, 0, b"both");
    has(&region, 4096, b"both");
    // It cannot be made smaller, so that no page of a region goes away.
    assert!(std::fs::File::from(other).set_len(1).is_err());
}

/// Of a file that may be made smaller, or of a range behind its end, there is no safe mapping.
#[test]
fn files_that_may_shrink_are_not_mapped_by_safe_code() {
    let (name, memory) = ("rnic-test", SharedMapping::memfd("rnic-test", 4096));
    let memory = memory.expect("memory");
    let behind = memory.file().try_clone_to_owned().expect("a descriptor");
    let error = SharedMapping::of_memfd(behind, 4096, 1).expect_err("behind its end");
    assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
    let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
    let mut file = std::fs::File::options();
    let file = file.read(true).write(true).create(true).truncate(true);
    let mut file = file.open(&path).expect("a file");
    std::fs::remove_file(&path).expect("its name goes");
    file.write_all(&[7; 8192]).expect("written");
    let copy = file.try_clone().expect("a descriptor").into();
    let error = SharedMapping::of_memfd(copy, 0, 4096).expect_err("it may shrink");
    assert!(error.to_string().contains("F_SEAL_SHRINK"), "{error}");

    // By unsafe code it is, and what a peer writes is in the file.
    let (left, right) = pair();
    let copy = file.try_clone().expect("a descriptor").into();
    // SAFETY: nobody but this test has the file, and it does not make it smaller.
    let mapped = unsafe { SharedMapping::of_file(copy, 4096, 4096) };
    let region = right
        .pd
        .adopt_writable(mapped.expect("mapped"))
        .readable()
        .build();
    let region = region.expect("registered");
    has(&region, 4095, &[7]);
    let part = region.remote().slice(10, 4).expect("in range");
    let write = SendRequest::write(left.buffer(b"file"), part);
    left.qp.post(write).expect("posted");
    left.done();
    let mapped: SharedMapping = region.into_memory().expect("the only handle");
    drop(mapped);
    file.seek(SeekFrom::Start(4106)).expect("sought");
    let mut bytes = [0; 4];
    file.read_exact(&mut bytes).expect("read");
    assert_eq!(&bytes, b"file");
}

/// A range of memory that somebody else owns, for as long as the program answers for it.
#[test]
fn a_borrowed_range_is_registered_by_contract() {
    let (left, right) = pair();
    let mut bytes = vec![0u8; 4096];
    let first = NonNull::from(&mut bytes[..]).cast();
    // SAFETY: nobody uses the bytes until they are back.
    let range = unsafe { RawMemory::new(first, 64) };
    let buffer = right.pd.adopt(range).expect("registered");
    right.qp.post_recv(buffer, 3).expect("posted");
    let send = SendRequest::send_inline(b"into a range").unsignaled();
    left.qp.post(send).expect("posted");
    let buffer = right.done().into_buffer().expect("comes back");
    let range: RawMemory = buffer.into_memory().expect("all of it");
    assert_eq!((range.first(), range.len()), (first, 64));
    assert_eq!(&bytes[..12], b"into a range");
}

/// Peers name memory by whatever address the program likes, at the same place of a page.
#[test]
fn memory_goes_by_an_address_of_the_programs_choice() {
    for iova in [0, 4096, 0x7000_0000_0000] {
        let (left, right) = pair();
        let region = right.pd.writable(8192).readable().iova(iova).build();
        let region = region.expect("registered");
        assert_eq!(region.remote().addr, iova);
        reach(&left, region.remote());
        let last = region.remote().slice(8184, 8).expect("in range");
        reach(&left, last);
        let addr = iova + 8192;
        let behind = RemoteMemory { addr, ..last };
        let read = SendRequest::read(left.buffer(&[0; 8]), behind);
        left.qp.post(read).expect("posted");
        assert_eq!(left.next().status(), Status::RemoteAccessError);
    }
}

#[test]
fn a_region_counts_from_zero() {
    let (left, right) = pair();
    let region = right
        .pd
        .writable(5000)
        .readable()
        .atomic()
        .zero_based()
        .build();
    let region = region.expect("registered");
    assert_eq!(region.remote().addr, 0);
    reach(&left, region.remote());
    if crate::device().atomics {
        region.store_u64(16, 5, Ordering::SeqCst).expect("in range");
        let word = region.remote().slice(16, 8).expect("in range");
        let add = SendRequest::fetch_add(left.buffer(&[0; 8]), word, 2);
        left.qp.post(add).expect("posted");
        assert_eq!(left.done().original_value(), Some(5));
        assert_eq!(region.load_u64(16, Ordering::SeqCst).expect("in range"), 7);
    }
    let bytes = right.buffer(b"only to read");
    let shared = right.pd.share_at(bytes, 0).expect("shared");
    let into = left.pd.buffer(8).expect("memory");
    let part = shared.remote().slice(5, 7).expect("in range");
    assert_eq!(part.addr, 5);
    let read = SendRequest::read(into, part).range(..7).expect("in range");
    left.qp.post(read).expect("posted");
    assert_eq!(left.done().data(), b"to read");
}

/// An address at another place of its page is refused, and what was given comes back.
#[test]
fn an_address_that_does_not_fit_gives_the_memory_back() {
    let (left, _right) = pair();
    let pages = Mapping::anonymous(4096).expect("memory");
    let refused = left.pd.adopt_writable(pages).iova(100).build();
    let refused = refused.expect_err("not at a page");
    assert_eq!(refused.error.errno(), Some(libc::EINVAL), "{refused}");
    assert_eq!(refused.memory.len(), 4096);
    let refused = left.pd.share_at(left.buffer(b"mine"), 8);
    let refused = refused.expect_err("not at a page");
    assert_eq!(refused.memory[..], *b"mine");
}

/// What is no dmabuf, no range or no right is refused by name. One that is takes a driver that
/// gives it out.
#[test]
fn what_is_no_dmabuf_is_refused() {
    let (left, _right) = pair();
    let file = std::fs::File::open("/dev/null").expect("there is one");
    let refused = left
        .pd
        .register_dmabuf(&file, 0..4096, 0, Access::REMOTE_WRITE);
    let refused = refused.expect_err("no dmabuf");
    assert!(
        refused.to_string().contains("ibv_reg_dmabuf_mr"),
        "{refused}"
    );
    assert!(refused.errno().is_some(), "{refused}");
    #[allow(clippy::reversed_empty_ranges, reason = "what is tested")]
    for none in [0..0, 8..4] {
        let refused = left.pd.register_dmabuf(&file, none, 0, Access::REMOTE_READ);
        let refused = refused.expect_err("no bytes");
        assert!(matches!(refused, Error::InvalidArgument(_)), "{refused}");
    }
}

/// Words of memory that begins anywhere are at multiples of eight of the address; an order that
/// there is not is an error and no panic.
#[test]
fn words_and_orders_that_there_are_not_are_refused() {
    let (left, _right) = pair();
    let region = left.pd.writable(64).build().expect("memory");
    for order in [Ordering::Release, Ordering::AcqRel] {
        let refused = region.load_u64(0, order).expect_err("no order of a load");
        assert!(matches!(refused, Error::InvalidArgument(_)), "{refused}");
    }
    for order in [Ordering::Acquire, Ordering::AcqRel] {
        let refused = region.store_u64(0, 1, order).expect_err("of a store");
        assert!(matches!(refused, Error::InvalidArgument(_)), "{refused}");
    }
    for order in [Ordering::Relaxed, Ordering::SeqCst] {
        region.store_u64(8, 3, order).expect("of both");
        assert_eq!(region.load_u64(8, order).expect("of both"), 3);
    }
    let mut words = [0u64; 8];
    let first: NonNull<u8> = NonNull::from(&mut words[..]).cast();
    // SAFETY: the array has 64 bytes.
    let odd = unsafe { first.add(3) };
    // SAFETY: nobody uses the array until the region is gone.
    let range = unsafe { RawMemory::new(odd, 40) };
    let region = left.pd.adopt_writable(range).build().expect("registered");
    let refused = region.load_u64(0, Ordering::SeqCst).expect_err("odd");
    assert!(matches!(refused, Error::InvalidArgument(_)), "{refused}");
    region
        .store_u64(5, u64::MAX, Ordering::SeqCst)
        .expect("aligned");
    assert_eq!(region.load_u8(4).expect("in range"), 0);
    assert_eq!(region.load_u8(5).expect("in range"), 0xff);
    region.copy_in(0, b"0123456789").expect("in range");
    has(&region, 0, b"0123456789\xff\xff\xff\0");
    drop(region);
    assert_eq!(words[1].to_ne_bytes(), *b"56789\xff\xff\xff");
}
