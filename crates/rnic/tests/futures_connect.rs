//! Connections by the connection manager, and events of the device, as futures and streams.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use futures_core::Stream;
use rnic::aio::{CompletionQueue, DeviceEvents, Listener};
use rnic::{AsyncEvent, CmConnector, CmError, Context, Error, Rc, SendRequest};

use crate::futures::{on_tokio, pair_on, queue};

async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    poll_fn(|cx| Pin::new(&mut *stream).poll_next(cx)).await
}

/// A server and its clients in tasks of one thread, with one completion queue for all.
#[test]
fn many_clients_of_a_listener() {
    if !crate::device().connection_manager {
        return;
    }
    const CLIENTS: usize = 20;
    let context = Context::open().expect("the device opens");
    let pd = context.alloc_pd().expect("pd");
    let cq = CompletionQueue::new(&context, 64 * CLIENTS as u32).expect("a queue");
    let ip = context.loopback_gid().expect("an address").addr;
    let build = {
        let (cq, pd) = (cq.clone(), pd.clone());
        move || {
            let qp = cq.create_qp::<Rc>(&pd).max_send_wr(8).max_recv_wr(8);
            qp.receives(4, 64).build().expect("a queue pair")
        }
    };
    on_tokio(async move {
        let mut listener = Listener::<Rc>::bind(&cq, (ip, 0)).expect("listens");
        let address = listener.local_addr().expect("an address");
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..CLIENTS {
            let build = build.clone();
            tasks.spawn(async move {
                let connector = CmConnector::new(address).expect("an address");
                let connector = connector.private_data(&[n as u8]);
                let connection = build().connect(&connector).await.expect("connects");
                assert_eq!(connection.private_data()[..2], [n as u8, b'!']);
                connection.send_inline(&[n as u8; 9]).await.expect("sent");
                let echo = connection.recv().await.expect("an echo");
                assert_eq!(&echo[..], [n as u8; 9]);
                connection.disconnect();
                connection.disconnected().await.expect("it ends");
            });
        }
        for _ in 0..CLIENTS {
            let request = next(&mut listener).await.expect("no end");
            let request = request.expect("a request");
            let build = build.clone();
            tasks.spawn(async move {
                let name = request.private_data()[0];
                let accepted = request.accept_with(build(), &[name, b'!']).await;
                let connection = accepted.expect("accepted");
                let message = connection.recv().await.expect("a message");
                let answer = SendRequest::send_inline(&message);
                connection.request(answer).await.expect("sent");
                connection.recv().await.expect_err("the peer disconnects");
                connection.disconnected().await.expect("it ends");
                assert!(connection.is_disconnected());
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.expect("no panic");
        }
    });
}

/// A refusal, and attempts that are given up, are errors of the futures that wait and of no other.
#[test]
fn refused_and_given_up() {
    if !crate::device().connection_manager {
        return;
    }
    let cq = queue();
    let pd = cq.context().alloc_pd().expect("pd");
    let ip = cq.context().loopback_gid().expect("an address").addr;
    let build = || cq.create_qp::<Rc>(&pd).build().expect("a queue pair");
    on_tokio(async {
        let listener = Listener::<Rc>::bind(&cq, (ip, 0)).expect("listens");
        let connector = CmConnector::new(listener.local_addr().expect("an address"));
        let connector = connector.expect("an address");
        let refuse = async {
            let request = listener.accept().await.expect("a request");
            request.reject(b"closed today").expect("refuses");
        };
        let (connected, ()) = tokio::join!(build().connect(&connector), refuse);
        let error = connected.expect_err("refused");
        match &error {
            Error::Connect(CmError::Rejected { private_data, .. }) => {
                assert!(private_data.starts_with(b"closed today\0"));
            }
            other => panic!("{other}"),
        }
        let error = std::io::Error::from(error);
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
        let soon = Duration::from_millis(20);
        let in_vain = tokio::time::timeout(soon, build().connect(&connector)).await;
        assert!(in_vain.is_err(), "nobody accepts");
        // The request that was given up may be there, and is refused by being dropped.
        let accept = async {
            loop {
                let request = listener.accept().await.expect("a request");
                let accepted = request.accept(build()).await;
                if let Ok(connection) = accepted {
                    return connection;
                }
            }
        };
        let (connected, _accepted) = tokio::join!(build().connect(&connector), accept);
        connected.expect("connects");
    });
}

/// A receive that waits learns of a peer that went away, although none is posted that could be
/// flushed first.
#[test]
fn the_end_of_a_connection_ends_recv() {
    if !crate::device().connection_manager {
        return;
    }
    let cq = queue();
    let pd = cq.context().alloc_pd().expect("pd");
    let ip = cq.context().loopback_gid().expect("an address").addr;
    let build = || cq.create_qp::<Rc>(&pd).receives(2, 64).build().expect("qp");
    on_tokio(async {
        let listener = Listener::<Rc>::bind(&cq, (ip, 0)).expect("listens");
        let connector = CmConnector::new(listener.local_addr().expect("an address"));
        let connector = connector.expect("an address");
        let accept = async {
            let request = listener.accept().await.expect("a request");
            request.accept(build()).await.expect("accepted")
        };
        let (client, server) = tokio::join!(build().connect(&connector), accept);
        let client = client.expect("connects");
        let waits = tokio::spawn({
            let qp = server.qp().clone();
            async move { qp.recv().await.map(drop) }
        });
        client.send_inline(b"last").await.expect("sent");
        waits.await.expect("no panic").expect("the last message");
        drop(client);
        server.recv().await.expect_err("the peer is gone");
        server.disconnected().await.expect("it ends");
    });
}

#[test]
fn events_of_the_device_are_a_stream() {
    if !crate::device().failure_events {
        return;
    }
    let cq = queue();
    let [left, right] = pair_on([&cq, &cq], |builder| builder);
    // Of the context that the queue was made by.
    let mut events = DeviceEvents::new(cq.context()).expect("watched");
    let region = right.pd.writable(64).build().expect("memory");
    let mut wrong = region.remote();
    wrong.rkey ^= 0xff00;
    on_tokio(async {
        let write = left.qp.write(left.buffer(b"no"), wrong);
        write.await.expect_err("no such key");
        // The side whose memory was meant is told.
        let event = next(&mut events).await.expect("no end").expect("an event");
        assert!(matches!(event, AsyncEvent::Qp { .. }), "{event:?}");
    });
}
