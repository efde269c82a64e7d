use super::*;

fn pair() -> (Exchange, Exchange) {
    let (tell, told) = std::sync::mpsc::channel();
    let listener = std::thread::spawn(move || {
        Exchange::listen("127.0.0.1:0", |addr| tell.send(addr).unwrap())
    });
    let caller = Exchange::connect(told.recv().unwrap(), Duration::from_secs(10)).unwrap();
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
fn a_stranger_is_refused_without_allocating_what_he_asks_for() {
    let mut exchange = Exchange::new(&b"\xff\xff\xff\xffxxxx"[..], io::sink());
    let text = exchange.recv().unwrap_err().to_string();
    assert!(text.contains("waiting for the peer"), "{text}");
    let mut exchange = Exchange::new(&b"\0\0\0\x05ab"[..], io::sink());
    assert!(exchange.recv().is_err(), "cut off");
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
