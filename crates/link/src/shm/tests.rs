//! What is said of flows.

use std::ops::ControlFlow;

use super::*;
use rnic_skip::Folder;
use rnic_skip::{all_descriptors, alone};

#[test]
fn a_flow_is_understood_as_it_was_said() {
    let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
    for (src, dst) in [("127.0.0.1", "10.1.2.3"), ("fe80::1", "::1")] {
        let flow = Flow {
            src: ip(src),
            dst: ip(dst),
            scope_id: 3,
        };
        assert_eq!(Flow::decode(&flow.encode()), Some(flow));
    }
    assert_eq!(Flow::decode(&[0; FLOW_LEN - 1]), None);
}

#[test]
fn only_addresses_of_this_host_are_believed() {
    let flow = |src: &str, dst: &str| Flow {
        src: src.parse().expect("an address"),
        dst: dst.parse().expect("an address"),
        scope_id: 0,
    };
    assert!(flow("127.0.0.1", "127.0.0.2").is_of(&Surroundings::System));
    for (src, dst) in [
        ("192.0.2.1", "127.0.0.1"),
        ("127.0.0.1", "192.0.2.1"),
        ("::1", "127.0.0.1"),
        ("224.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),
    ] {
        assert!(!flow(src, dst).is_of(&Surroundings::System), "{src} {dst}");
    }
}

#[test]
fn whose_an_address_is_is_known_without_a_descriptor_left() {
    if !alone() {
        return;
    }
    sys::keep_spare();
    let all = all_descriptors();
    only_addresses_of_this_host_are_believed();
    drop(all);
}

#[test]
fn rings_that_come_all_at_once_are_all_taken() {
    let mut world = World::new();
    // More than may wait for the ring of a connection that has brought none.
    let peers: Vec<_> = (0..100).map(|_| world.bring()).collect();
    world.host.attend(&mut world.counters);
    assert_eq!((world.rings(), world.wrong()), (100, 0));
    drop(peers);
}

/// A process that listens for rings as number 1.
struct World {
    folder: Folder,
    dir: Fd,
    host: ShmPath,
    counters: LinkCounters,
}

impl World {
    fn new() -> World {
        let folder = Folder::new();
        let dir = sys::open_at(None, &folder.c_path(), libc::O_DIRECTORY, 0).expect("it is there");
        let host = ShmPath::open(&dir, folder.path(), 1, true, Surroundings::System)
            .expect("a meeting point");
        World {
            folder,
            dir,
            host,
            counters: LinkCounters::default(),
        }
    }

    /// A peer's ring and connection.
    fn bring(&self) -> (Producer, Fd) {
        let (producer, file) = Producer::create().expect("a ring");
        let connection = meeting::hand_out(&self.dir, self.folder.path(), 1, &file);
        (producer, connection.expect("a connection"))
    }

    fn rings(&self) -> usize {
        self.host.inbound.count()
    }

    fn wrong(&self) -> u64 {
        self.counters.host_rings_wrong
    }

    /// A thread that sleeps on the listener is woken.
    fn is_woken(&self) -> bool {
        sys::wait_readable(
            &Fd::duplicate_of(self.host.listener_fd()).expect("a copy"),
            0,
        )
    }
}

#[test]
fn where_all_places_are_taken_no_ring_is_made() {
    let mut world = World::new();
    let spec = crate::staging::path::tests::spec("127.0.0.1", "127.0.0.1", 0x5000);
    for peer in 2..RINGS as u32 + 2 {
        let (producer, file) = Producer::create().expect("a ring");
        let table = ring::grant_table_of(&file).expect("its grant table");
        let cma = Arc::new(CmaWindow::new(table, 0, Arc::default()));
        let out = &mut world.host.out;
        out.add(peer, producer, None, cma).expect("a place");
        let route = out.find(peer, Flow::of(&spec));
        route.flatten().expect("it is in use from now on");
    }
    // Neither to itself nor to another, which is the same process here.
    for own in [true, false] {
        let folder = (&world.dir, world.folder.path());
        assert_eq!(world.host.route(folder, 1, own, &spec), None);
        world.host.attend(&mut world.counters);
        assert_eq!(world.rings(), 0, "own: {own}");
    }
}

#[test]
fn only_nonsense_makes_a_ring_wrong() {
    if !alone() {
        return;
    }
    let mut world = World::new();
    let point = world.folder.path().join("host.1");
    let connect = || std::os::unix::net::UnixStream::connect(&point).expect("connected");
    // One that was killed before it said anything.
    drop(connect());
    // One whose ring there is no descriptor for.
    let peer = world.bring();
    let mut all = all_descriptors();
    all.pop();
    world.host.attend(&mut world.counters);
    drop(all);
    world.host.attend(&mut world.counters);
    assert_eq!((world.rings(), world.wrong()), (0, 0));
    drop(peer);
    let mut rude = connect();
    std::io::Write::write_all(&mut rude, b"GET / HTTP/1.1\r\n").expect("said");
    world.host.attend(&mut world.counters);
    assert_eq!((world.rings(), world.wrong()), (0, 1));
}

#[test]
fn who_comes_while_there_is_no_descriptor_wakes_nobody_in_vain_and_is_taken_later() {
    if !alone() {
        return;
    }
    let mut world = World::new();
    let peer = world.bring();
    assert!(world.is_woken());
    let mut all = all_descriptors();
    world.host.attend(&mut world.counters);
    // For the look alone.
    all.pop();
    assert!(!world.is_woken(), "it would be, without end");
    all.extend(all_descriptors());
    world.host.maintain();
    world.host.attend(&mut world.counters);
    all.pop();
    assert!(!world.is_woken());
    drop(all);
    world.host.maintain();
    world.host.attend(&mut world.counters);
    assert_eq!((world.rings(), world.wrong()), (1, 0));
    let another = world.bring();
    assert!(world.is_woken());
    drop((peer, another));
}

/// Not a test but a measurement: `cargo test --release -p rnic-link -- --ignored --nocapture
/// polls_beside_idle_rings`.
#[test]
#[ignore = "prints times"]
fn polls_beside_idle_rings() {
    let mut world = World::new();
    for idle in [0, 10, 50, 200] {
        let mut peers = Vec::new();
        while peers.len() <= idle {
            peers.push(world.bring());
        }
        world.host.attend(&mut world.counters);
        let mut poll = |now| {
            let (host, counters) = (&mut world.host, &mut world.counters);
            let deliver: &mut Deliver<'_> = &mut |_| ControlFlow::Continue(());
            host.receive(now, 64, &|_| true, counters, deliver)
        };
        // All are cold after that but the last, to which packets come.
        for now in 1..1000 {
            poll(now * 1_000_000);
        }
        let (producer, _) = peers.last_mut().expect("one");
        let flow = Flow::of(&crate::staging::path::tests::spec(
            "127.0.0.1",
            "127.0.0.1",
            0x5000,
        ));
        producer.push(ring::Kind::Flow { flow: 0 }, &flow.encode());
        let time = |work: &mut dyn FnMut()| {
            let times = (0..100).map(|_| {
                let start = std::time::Instant::now();
                (0..1000).for_each(|_| work());
                start.elapsed().as_nanos() / 1000
            });
            times.min().expect("some")
        };
        let polls = time(&mut || assert!(poll(1_000_000_000) < 2));
        let quick = time(&mut || assert!(world.host.is_still()));
        println!("{idle} idle rings: {polls} ns a poll, {quick} ns a quick poll");
        drop(peers);
        while world.rings() > 0 {
            world.host.attend(&mut world.counters);
        }
    }
}
