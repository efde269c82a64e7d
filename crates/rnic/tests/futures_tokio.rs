//! Futures on tokio: its reactor, its traits, and what happens when it is gone.

use std::time::Duration;

use rnic::Context;
use rnic::aio::{self, CompletionQueue, Tokio};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::futures_stream::{ends, pattern};

/// tokio's traits, tokio's reactor, and a runtime that is shut down while streams live on.
#[test]
fn on_tokio_with_its_own_reactor() {
    let context = Context::open().expect("the device opens");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let cq = CompletionQueue::builder(&context, 1024).spin(Duration::ZERO);
    let cq = cq.reactor(Tokio::of(runtime.handle().clone()));
    let cq = cq.build().expect("a queue");
    let [mut left, right] = ends(&cq, (4, 1000), (4, 1000));
    let (mut right, mut left) = runtime.block_on(async move {
        let echo = tokio::spawn(async move {
            let mut right = right;
            let mut bytes = [0; 5000];
            right.read_exact(&mut bytes).await.expect("bytes");
            right.write_all(&bytes).await.expect("written");
            right.flush().await.expect("flushed");
            right
        });
        left.write_all(&pattern(5000)).await.expect("written");
        let mut bytes = [0; 5000];
        left.read_exact(&mut bytes).await.expect("bytes");
        assert!(bytes[..] == pattern(5000));
        (echo.await.expect("no panic"), left)
    });
    drop(runtime);
    let write = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(5));
        aio::block_on(async {
            left.write_all(&pattern(9000)).await.expect("written");
            left.shutdown().await.expect("closed");
        });
        left
    });
    let mut got = Vec::new();
    aio::block_on(right.read_to_end(&mut got)).expect("all of it");
    assert!(got == pattern(9000));
    drop(write.join().expect("no panic"));
}
