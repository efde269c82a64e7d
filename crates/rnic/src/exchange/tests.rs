use super::*;

fn pair() -> (Exchange, Exchange) {
    let (tell, told) = std::sync::mpsc::channel();
    let listener = std::thread::spawn(move || {
        Exchange::listen("127.0.0.1:0", |addr| tell.send(addr).unwrap())
    });
    let caller = Exchange::connect(told.recv().unwrap(), Duration::from_secs(60)).unwrap();
    (listener.join().unwrap().unwrap(), caller)
}

#[test]
fn messages_and_barriers_pass() {
    let (mut a, mut b) = pair();
    let other = std::thread::spawn(move || {
        let got = b.swap(b"from b").unwrap();
        b.barrier().unwrap();
        got
    });
    assert_eq!(a.swap(b"from a").unwrap(), b"from b");
    a.barrier().unwrap();
    assert_eq!(other.join().unwrap(), b"from a");
}

#[test]
fn an_end_that_is_closed_shows_even_behind_what_was_not_read() {
    let (a, mut b) = pair();
    assert!(!a.is_closed() && !b.is_closed());
    b.send(b"last words").unwrap();
    assert!(!a.is_closed());
    drop(b);
    // The kernel says so once the other end's packets are here.
    let deadline = Instant::now() + Duration::from_secs(60);
    while !a.is_closed() {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    let (reader, writer) = io::pipe().unwrap();
    let exchange = Exchange::over(reader, io::sink()).unwrap();
    assert!(!exchange.is_closed());
    drop(writer);
    assert!(exchange.is_closed());
    assert!(!Exchange::new(io::empty(), io::sink()).is_closed());
}

#[test]
fn a_stranger_is_refused_without_allocating_what_he_asks_for() {
    let mut exchange = Exchange::new(&b"\xff\xff\xff\xffxxxx"[..], io::sink());
    let text = exchange.recv().unwrap_err().to_string();
    assert!(text.contains("waiting for the peer"), "{text}");
    let mut exchange = Exchange::new(&b"\0\0\0\x05ab"[..], io::sink());
    assert!(exchange.recv().is_err(), "cut off");
}

/// One listener, many clients: each gets its own exchange.
#[test]
fn a_server_of_many_accepts_by_itself() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let clients: Vec<_> = (0..3u8)
        .map(|n| {
            std::thread::spawn(move || {
                let mut exchange = Exchange::connect(addr, Duration::from_secs(60)).unwrap();
                exchange.swap(&[n]).unwrap()
            })
        })
        .collect();
    for _ in &clients {
        let mut exchange = Exchange::from_tcp(listener.accept().unwrap().0).unwrap();
        let heard = exchange.recv().unwrap();
        exchange.send(&[heard[0] + 10]).unwrap();
    }
    for (n, client) in clients.into_iter().enumerate() {
        assert_eq!(client.join().unwrap(), [n as u8 + 10]);
    }
}

/// The longest time there is may be given, as for ever.
#[test]
fn a_call_may_take_for_ever() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    Exchange::connect(addr, Duration::MAX).unwrap();
}

#[test]
fn nobody_listening_is_an_error_that_names_the_address() {
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let text = Exchange::connect(free, Duration::ZERO)
        .unwrap_err()
        .to_string();
    assert!(text.contains("127.0.0.1"), "{text}");
}
