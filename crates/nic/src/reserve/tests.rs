//! Blocks are disjoint, fit what they are for, and come back.

use super::*;

/// The tests share the arenas of the process.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

#[test]
fn blocks_fit_and_do_not_overlap() {
    let _alone = ALONE.lock();
    begin("test").expect("memory for a reserve");
    let mut blocks = Vec::new();
    for (size, align) in [
        (1, 1),
        (64, 64),
        (65, 8),
        (200, 256),
        (3000, 4096),
        (70_000, 16),
    ] {
        for _ in 0..3 {
            let layout = layout(size, align);
            let block = draw(layout);
            assert!(
                !block.is_null() && block.addr().is_multiple_of(align),
                "{size} {align}"
            );
            // SAFETY: a block of that size.
            unsafe { block.write_bytes(blocks.len() as u8, size) };
            blocks.push((block, layout));
        }
    }
    for (number, (block, layout)) in blocks.iter().enumerate() {
        // SAFETY: written above.
        let bytes = unsafe { std::slice::from_raw_parts(*block, layout.size()) };
        assert!(bytes.iter().all(|byte| *byte == number as u8), "{layout:?}");
    }
    for (block, layout) in blocks {
        // SAFETY: taken above.
        unsafe { Reserve.dealloc(block, layout) };
    }
    assert!(TAKEN.iter().all(|taken| taken.load(Ordering::Relaxed) == 0));
}

#[test]
fn what_is_too_large_is_refused() {
    assert!(draw(layout(2 << 20, 8)).is_null());
    assert!(draw(layout(64, 8192)).is_null());
}

#[test]
fn a_full_class_is_helped_by_the_next_and_seen() {
    let _alone = ALONE.lock();
    let begun = begin("test").expect("memory for a reserve");
    assert!(!begun.has_drawn());
    let small = layout(64, 8);
    let count = CLASSES[0].count * arenas().count() + 3;
    let blocks: Vec<_> = (0..count).map(|_| draw(small)).collect();
    assert!(begun.has_drawn() && is_short());
    assert!(blocks.iter().all(|block| !block.is_null()));
    let mut sorted = blocks.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), count);
    // There is memory, so the next object finds the reserve filled.
    begin("test").expect("another set of blocks");
    assert!(!is_short());
    for block in blocks {
        // SAFETY: taken above.
        unsafe { Reserve.dealloc(block, small) };
    }
}

#[test]
fn a_block_grows_within_itself_and_out_of_itself() {
    let _alone = ALONE.lock();
    begin("test").expect("memory for a reserve");
    let first = layout(100, 8);
    let block = draw(first);
    // SAFETY: a block of 100 bytes, which grows twice and is given back as what it became.
    unsafe {
        block.write_bytes(7, 100);
        assert_eq!(Reserve.realloc(block, first, 256), block);
        let moved = Reserve.realloc(block, layout(256, 8), 10_000);
        assert!(!moved.is_null() && moved != block);
        assert!((0..100).all(|at| moved.add(at).read() == 7));
        Reserve.dealloc(moved, layout(10_000, 8));
    }
    assert!(locate(block).is_some());
}

#[test]
fn threads_get_different_blocks() {
    let _alone = ALONE.lock();
    begin("test").expect("memory for a reserve");
    let layout = layout(1000, 8);
    let threads: Vec<_> = (1..=4u8)
        .map(|mark| {
            std::thread::spawn(move || {
                for _ in 0..2000 {
                    let block = draw(layout);
                    assert!(!block.is_null());
                    // SAFETY: a block of 1000 bytes, given back once.
                    unsafe {
                        block.write_bytes(mark, 1000);
                        let bytes = std::slice::from_raw_parts(block, 1000);
                        assert!(bytes.iter().all(|byte| *byte == mark));
                        Reserve.dealloc(block, layout);
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}
