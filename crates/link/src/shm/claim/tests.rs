//! No interleaving lets a consumer take a byte for the message that was stored after a withdrawal.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use super::{stands, withdraw};

#[test]
fn what_was_stored_after_a_withdrawal_is_not_taken() {
    loom::model(|| {
        let world = Arc::new((AtomicU64::new(3), [AtomicU64::new(1), AtomicU64::new(1)]));
        let other = world.clone();
        let consumer = thread::spawn(move || {
            let (count, memory) = &*other;
            let copied = [1, 0].map(|i: usize| memory[i].load(Ordering::Relaxed));
            if stands(count, 3) {
                assert_eq!(copied, [1, 1], "the message");
            }
        });
        let (count, memory) = &*world;
        withdraw(count);
        for word in memory {
            word.store(2, Ordering::Relaxed);
        }
        consumer.join().unwrap();
    });
}
