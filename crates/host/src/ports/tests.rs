use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};

use proptest::prelude::*;

use super::*;
use rnic_skip::Folder;

/// A process, as far as this table can tell. Dropped it has ended, in whatever way.
struct Process {
    registry: Registry,
    ports: Ports,
    range: u32,
}

impl Process {
    fn start(folder: &Folder) -> Process {
        let mut registry = Registry::open(folder.path()).unwrap();
        let locked = registry.lock(Duration::from_secs(10)).unwrap();
        let range = registry.claim(&locked, None).unwrap().unwrap();
        let ports = Ports::open(&registry, range).unwrap();
        ports.purge(range).unwrap();
        drop(locked);
        Process {
            registry,
            ports,
            range,
        }
    }

    /// As by SIGKILL: the claims given are never dropped.
    fn kill(self, claims: Vec<PortClaim>) {
        std::mem::forget(claims);
        drop(self.registry);
    }

    fn set_ephemeral(&self, range: RangeInclusive<u16>) {
        self.ports.0.system.lock().unwrap().set_ephemeral(range);
    }

    fn bind(&self, addr: &str) -> Result<PortClaim, i32> {
        self.bind_with(addr, BindFlags::default())
    }

    fn bind_with(&self, addr: &str, flags: BindFlags) -> Result<PortClaim, i32> {
        let addr = addr.parse().unwrap();
        loop {
            let claim = self
                .ports
                .bind(PortSpace::Tcp, addr, flags, sys::random_u64);
            match claim.map_err(|e| e.raw_os_error().unwrap()) {
                // The process that has it goes on soon.
                Err(libc::EBUSY) => std::thread::yield_now(),
                done => return done,
            }
        }
    }

    fn listener(&self, addr: &str) -> Option<u32> {
        let addr: SocketAddr = addr.parse().unwrap();
        let service = ServiceId::new(PortSpace::Tcp, addr.port());
        self.ports.listener_of(service, Some(addr.ip()))
    }
}

fn file_of(folder: &Folder) -> std::path::PathBuf {
    let net = std::fs::read_dir(folder.path()).unwrap().next().unwrap();
    net.unwrap().path().join("ports")
}

const SHARED: BindFlags = BindFlags {
    reuse_addr: true,
    af_only: None,
};

const V6_ONLY: BindFlags = BindFlags {
    reuse_addr: false,
    af_only: Some(true),
};

const DUAL: BindFlags = BindFlags {
    reuse_addr: false,
    af_only: Some(false),
};

#[test]
fn who_may_stand_beside_whom() {
    let folder = Folder::new();
    let (a, b) = (Process::start(&folder), Process::start(&folder));
    let plain = BindFlags::default();
    let (same, any) = (Some(libc::EADDRINUSE), Some(libc::EADDRNOTAVAIL));
    for (first, first_flags, second, second_flags, refused) in [
        ("10.0.0.1:7471", plain, "10.0.0.1:7471", plain, same),
        ("10.0.0.1:7471", plain, "10.0.0.1:7472", plain, None),
        ("10.0.0.1:7471", plain, "10.0.0.2:7471", plain, None),
        ("10.0.0.1:7471", plain, "0.0.0.0:7471", plain, any),
        ("0.0.0.0:7471", plain, "10.0.0.1:7471", plain, any),
        ("0.0.0.0:7471", plain, "0.0.0.0:7471", plain, any),
        ("0.0.0.0:7471", plain, "[::]:7471", V6_ONLY, None),
        ("0.0.0.0:7471", plain, "[::]:7471", DUAL, any),
        ("0.0.0.0:7471", DUAL, "[::]:7471", V6_ONLY, any),
        ("0.0.0.0:7471", plain, "[::1]:7471", V6_ONLY, None),
        ("0.0.0.0:7471", plain, "[::1]:7471", DUAL, any),
        ("[::]:7471", DUAL, "10.0.0.1:7471", plain, any),
        ("[::]:7471", DUAL, "[::]:7471", DUAL, any),
        ("[::]:7471", V6_ONLY, "10.0.0.1:7471", plain, None),
        ("[::]:7471", V6_ONLY, "[::1]:7471", V6_ONLY, any),
        ("[::1]:7471", DUAL, "[::1]:7471", DUAL, same),
        ("[::1]:7471", DUAL, "127.0.0.1:7471", plain, None),
        ("127.0.0.1:7471", plain, "127.0.0.1:7471", plain, same),
        ("127.0.0.1:7471", plain, "0.0.0.0:7471", plain, any),
        (
            "[::ffff:10.0.0.1]:7471",
            plain,
            "10.0.0.1:7471",
            plain,
            same,
        ),
        (
            "[fe80::1%2]:7471",
            V6_ONLY,
            "[fe80::1%3]:7471",
            V6_ONLY,
            None,
        ),
        (
            "[fe80::1%2]:7471",
            V6_ONLY,
            "[fe80::1%2]:7471",
            V6_ONLY,
            same,
        ),
        ("10.0.0.1:7471", SHARED, "10.0.0.1:7471", plain, same),
        ("10.0.0.1:7471", plain, "10.0.0.1:7471", SHARED, same),
        ("10.0.0.1:7471", SHARED, "10.0.0.1:7471", SHARED, None),
        ("0.0.0.0:7471", SHARED, "10.0.0.1:7471", SHARED, None),
        ("0.0.0.0:7471", SHARED, "10.0.0.1:7471", plain, any),
        ("0.0.0.0:7471", plain, "10.0.0.1:7471", SHARED, any),
        ("0.0.0.0:7471", SHARED, "0.0.0.0:7471", plain, any),
    ] {
        let what = format!("{first} {first_flags:?}, {second} {second_flags:?}");
        // In one process and in two.
        for other in [&a, &b] {
            let mut claim = a.bind_with(first, first_flags).expect(&what);
            let beside = other.bind_with(second, second_flags);
            assert_eq!(beside.err(), refused, "{what}");
            // The same once the first one listens, unless both shared it until then.
            claim.listen().expect(&what);
            let beside = other.bind_with(second, second_flags).err();
            let shared = first_flags.reuse_addr && second_flags.reuse_addr;
            if !shared {
                assert_eq!(beside, refused, "{what}, listening");
            }
            drop(claim);
            drop(b.bind_with(second, second_flags).expect(&what));
        }
    }
}

#[test]
fn each_port_space_is_its_own() {
    let folder = Folder::new();
    let a = Process::start(&folder);
    let addr = "0.0.0.0:7471".parse().unwrap();
    let claims: Vec<PortClaim> = PortSpace::ALL
        .iter()
        .map(|space| {
            a.ports
                .bind(*space, addr, BindFlags::default(), sys::random_u64)
                .unwrap()
        })
        .collect();
    assert!(claims.iter().all(|claim| claim.addr() == addr));
}

#[test]
fn listening_ends_the_sharing() {
    let folder = Folder::new();
    let (a, b) = (Process::start(&folder), Process::start(&folder));
    let mut first = a.bind_with("10.0.0.1:7471", SHARED).unwrap();
    let mut second = b.bind_with("10.0.0.1:7471", SHARED).unwrap();
    let taken = first.listen().unwrap_err().raw_os_error();
    assert_eq!(taken, Some(libc::EADDRINUSE));
    assert_eq!(a.listener("10.0.0.1:7471"), None);
    drop(first);
    second.listen().unwrap();
    assert_eq!(a.listener("10.0.0.1:7471"), Some(b.range));
    assert_eq!(
        a.bind_with("10.0.0.1:7471", SHARED).unwrap_err(),
        libc::EADDRINUSE
    );
    assert_eq!(
        second.set_reuse_addr(true).unwrap_err().raw_os_error(),
        Some(libc::EINVAL)
    );
    drop(second);
    assert_eq!(a.listener("10.0.0.1:7471"), None);
    // As a wildcard shares it, nobody can listen for one address either, nor the other way round.
    for [first, second] in [
        ["0.0.0.0:7471", "10.0.0.1:7471"],
        ["10.0.0.1:7471", "0.0.0.0:7471"],
    ] {
        let mut first = a.bind_with(first, SHARED).unwrap();
        let second = b.bind_with(second, SHARED).unwrap();
        let taken = first.listen().unwrap_err().raw_os_error();
        assert_eq!(taken, Some(libc::EADDRNOTAVAIL));
        assert_eq!(
            first.set_reuse_addr(false).unwrap_err().raw_os_error(),
            Some(libc::EINVAL)
        );
        drop(second);
        first.listen().unwrap();
        let refused = b.bind_with("10.0.0.1:7471", SHARED).map(drop);
        assert!(refused.is_err(), "nobody shares what is listened for");
    }
    // Where an address and a wildcard share it, the address is what is taken.
    let sharing = [
        a.bind_with("10.0.0.1:7471", SHARED).unwrap(),
        a.bind_with("0.0.0.0:7471", SHARED).unwrap(),
    ];
    assert_eq!(b.bind("10.0.0.1:7471").unwrap_err(), libc::EADDRINUSE);
    assert_eq!(b.bind("10.0.0.2:7471").unwrap_err(), libc::EADDRNOTAVAIL);
    drop(sharing);
    // The option may come after the claim, and go while nobody else makes use of it.
    let mut first = a.bind("10.0.0.1:7471").unwrap();
    assert!(b.bind_with("10.0.0.1:7471", SHARED).is_err());
    first.set_reuse_addr(true).unwrap();
    let second = b.bind_with("10.0.0.1:7471", SHARED).unwrap();
    assert!(first.set_reuse_addr(false).is_err());
    drop(second);
    first.set_reuse_addr(false).unwrap();
    assert!(b.bind_with("10.0.0.1:7471", SHARED).is_err());
}

#[test]
fn requests_find_their_listener() {
    let folder = Folder::new();
    let (a, b) = (Process::start(&folder), Process::start(&folder));
    let listen = |of: &Process, addr: &str, flags| {
        let mut claim = of.bind_with(addr, flags).unwrap();
        claim.listen().unwrap();
        claim
    };
    let plain = BindFlags::default();
    let _claims = [
        listen(&a, "10.0.0.1:1111", plain),
        listen(&b, "10.0.0.2:1111", plain),
        listen(&a, "0.0.0.0:2222", plain),
        listen(&b, "[::]:2222", V6_ONLY),
        listen(&a, "[::]:3333", DUAL),
        listen(&b, "[fe80::1%2]:4444", plain),
    ];
    let _bound = b.bind("0.0.0.0:5555").unwrap();
    for (addr, listener) in [
        ("10.0.0.1:1111", Some(a.range)),
        ("10.0.0.2:1111", Some(b.range)),
        ("10.0.0.3:1111", None),
        ("10.0.0.1:2222", Some(a.range)),
        ("[2001:db8::1]:2222", Some(b.range)),
        ("[::ffff:10.0.0.1]:2222", Some(a.range)),
        ("10.0.0.1:3333", Some(a.range)),
        ("[::1]:3333", Some(a.range)),
        ("[fe80::1]:4444", Some(b.range)),
        ("10.0.0.1:5555", None),
        ("10.0.0.1:6666", None),
    ] {
        assert_eq!(a.listener(addr), listener, "{addr}");
        assert_eq!(b.listener(addr), listener, "{addr}");
    }
    let without_address = ServiceId::new(PortSpace::Tcp, 2222);
    assert!(a.ports.listener_of(without_address, None).is_some());
    let other_space = ServiceId::new(PortSpace::Udp, 2222);
    assert_eq!(a.ports.listener_of(other_space, None), None);
    for nonsense in [0, u64::MAX, without_address.0 | 1 << 32] {
        assert_eq!(a.ports.listener_of(ServiceId(nonsense), None), None);
    }
}

#[test]
fn ephemeral_ports_are_nobody_elses_and_can_all_be_had() {
    let folder = Folder::new();
    let processes = [Process::start(&folder), Process::start(&folder)];
    // Over the edge of a row of buckets.
    let range = 2040..=2200;
    for process in &processes {
        process.set_ephemeral(range.clone());
    }
    let named = processes[0].bind("10.9.9.9:2050").unwrap();
    let claims: Vec<PortClaim> = (1..range.len())
        .map(|i| processes[i % 2].bind("0.0.0.0:0").unwrap())
        .collect();
    let mut ports: Vec<u16> = claims.iter().map(|claim| claim.addr().port()).collect();
    let in_order = ports.is_sorted();
    ports.push(named.addr().port());
    ports.sort_unstable();
    assert!(ports.into_iter().eq(range), "not each port once");
    assert!(!in_order, "the next port can be told");
    let error = processes[0].bind("10.0.0.1:0").unwrap_err();
    assert_eq!(error, libc::EADDRNOTAVAIL);
    drop(named);
    let last = processes[1].bind("[::1]:0").unwrap();
    assert_eq!(last.addr(), "[::1]:2050".parse().unwrap());
    // What the dead had is free at once.
    let [a, b] = processes;
    let (of_a, of_b): (Vec<_>, Vec<_>) = claims
        .into_iter()
        .partition(|c| u32::from(c.slot.owner) == a.range);
    let n = of_a.len();
    a.kill(of_a);
    let again: Vec<_> = (0..n).map(|_| b.bind("0.0.0.0:0").unwrap()).collect();
    assert_eq!(b.bind("0.0.0.0:0").unwrap_err(), libc::EADDRNOTAVAIL);
    drop((of_b, again));
}

#[test]
fn a_killed_process_has_no_ports() {
    let folder = Folder::new();
    let (a, b) = (Process::start(&folder), Process::start(&folder));
    let mut claim = a.bind("0.0.0.0:7471").unwrap();
    claim.listen().unwrap();
    assert!(b.ports.range_is_alive(a.range) && a.ports.range_is_alive(a.range));
    assert_eq!(b.listener("10.0.0.1:7471"), Some(a.range));
    let range = a.range;
    a.kill(vec![claim]);
    assert!(!b.ports.range_is_alive(range));
    assert_eq!(b.listener("10.0.0.1:7471"), None);
    b.bind("10.0.0.1:7471").unwrap().listen().unwrap();
    for never in [0, RANGES - 1, RANGES, u32::MAX] {
        assert!(!b.ports.range_is_alive(never));
    }
}

#[test]
fn who_inherits_a_range_inherits_no_ports() {
    let folder = Folder::new();
    let (a, b) = (Process::start(&folder), Process::start(&folder));
    let claims = ["0.0.0.0:7471", "10.0.0.1:9999", "[::1]:65535"].map(|addr| {
        let mut claim = a.bind(addr).unwrap();
        claim.listen().unwrap();
        claim
    });
    let _lasting = b.bind("10.0.0.1:40000").unwrap();
    let range = a.range;
    a.kill(claims.into());
    // A new process, and all ranges but that one taken.
    let heir = loop {
        let next = Process::start(&folder);
        if next.range == range {
            break next;
        }
    };
    assert!(b.ports.range_is_alive(range));
    assert_eq!(b.listener("10.0.0.1:7471"), None);
    for addr in ["10.0.0.1:7471", "10.0.0.1:9999", "[::1]:65535"] {
        drop(b.bind(addr).unwrap());
    }
    assert_eq!(heir.bind("10.0.0.1:40000").unwrap_err(), libc::EADDRINUSE);
}

#[test]
fn a_port_has_room_for_many_and_says_when_not() {
    let folder = Folder::new();
    let (a, b) = (Process::start(&folder), Process::start(&folder));
    let mut claims: Vec<_> = (0..SLOTS)
        .map(|_| a.bind_with("10.0.0.1:7471", SHARED).unwrap())
        .collect();
    let full = b.bind_with("10.0.0.1:7471", SHARED).unwrap_err();
    assert_eq!(full, libc::ENOMEM);
    claims.pop();
    drop(b.bind_with("10.0.0.1:7471", SHARED).unwrap());
    a.kill(claims);
    drop(b.bind("10.0.0.1:7471").unwrap());
}

#[test]
fn one_of_many_at_once_gets_the_port() {
    const ROUNDS: u16 = 200;
    let folder = Folder::new();
    let processes: Vec<Process> = (0..2).map(|_| Process::start(&folder)).collect();
    // Two threads of each of two processes.
    let start = std::sync::Barrier::new(4);
    let won: Vec<Vec<Option<PortClaim>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|i| {
                let (process, start) = (&processes[i % 2], &start);
                scope.spawn(move || {
                    start.wait();
                    (0..ROUNDS)
                        .map(|port| process.bind(&format!("10.0.0.1:{}", 2000 + port)).ok())
                        .collect()
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    for round in 0..ROUNDS.into() {
        let winners = won.iter().filter(|claims| claims[round].is_some());
        assert_eq!(winners.count(), 1, "round {round}");
    }
    // All are given back at the same time, and nothing is left.
    std::thread::scope(|scope| {
        for claims in won {
            scope.spawn(|| drop(claims));
        }
    });
    let bytes = std::fs::read(file_of(&folder)).unwrap();
    assert!(bytes[HEADER_LEN..].iter().all(|byte| *byte == 0));
}

#[test]
fn privileged_ports_need_the_capability() {
    let folder = Folder::new();
    let a = Process::start(&folder);
    let start: u16 = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start")
        .map_or(1024, |text| text.trim().parse().unwrap());
    let addr = format!("10.0.0.1:{start}");
    drop(a.bind(&addr).unwrap());
    if start < 2 {
        return;
    }
    let privileged = format!("10.0.0.1:{}", start - 1);
    if sys::effective_uid() == 0 {
        drop(a.bind(&privileged).unwrap());
    }
    // A thread without privilege: the raw call changes that of its caller only.
    let refused = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if sys::effective_uid() == 0 {
                // SAFETY: takes no pointer.
                let ret = unsafe { libc::syscall(libc::SYS_setresuid, -1, 65534, -1) };
                assert_eq!(ret, 0);
            }
            a.bind(&privileged).err()
        });
        thread.join().unwrap()
    });
    assert_eq!(refused, Some(libc::EACCES));
}

#[test]
fn a_spoilt_file_is_no_disaster() {
    let folder = Folder::new();
    let a = Process::start(&folder);
    let path = file_of(&folder);
    let good = std::fs::read(&path).unwrap();
    for spoilt in [
        Vec::new(),
        vec![0xff; 5000],
        vec![0xff; FILE_LEN],
        vec![1; FILE_LEN + 100],
    ] {
        std::fs::write(&path, &good).unwrap();
        let mut claim = a.bind("10.0.0.1:7471").unwrap();
        let lost = a.bind("10.0.0.1:7472").unwrap();
        std::fs::write(&path, &spoilt).unwrap();
        assert_eq!(a.listener("10.0.0.1:7471"), None);
        a.ports.purge(a.range).unwrap();
        // It is not taken for another's: a process that listens is in the table again.
        claim.listen().unwrap();
        assert_eq!(a.listener("10.0.0.1:7471"), Some(a.range));
        let b = Process::start(&folder);
        assert_eq!(b.bind("10.0.0.1:7471").unwrap_err(), libc::EADDRINUSE);
        let others = b.bind("10.0.0.1:7472").unwrap();
        drop(lost);
        assert_eq!(b.bind("10.0.0.1:7472").unwrap_err(), libc::EADDRINUSE);
        drop((claim, others));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), FILE_LEN as u64);
        drop(b.bind("10.0.0.1:0").unwrap());
    }
    // Removed: a process that has it open goes on, one that comes makes a new one.
    std::fs::remove_file(&path).unwrap();
    let claim = a.bind("10.0.0.1:7471").unwrap();
    assert!(Process::start(&folder).bind("10.0.0.1:7472").is_ok());
    drop(claim);
}

#[test]
fn ranges_of_ports_are_checked() {
    assert_eq!(system::parse_range("32768\t60999\n"), Some(32768..=60999));
    assert_eq!(system::parse_range("1 65535"), Some(1..=65535));
    for nonsense in ["", "5", "60999 32768", "0 10", "1 65536", "-1 5", "a b"] {
        assert_eq!(system::parse_range(nonsense), None, "{nonsense}");
    }
}

/// Not a test but a measurement: `cargo test --release -p rnic-link -- --ignored --nocapture
/// claims_per_second`.
#[test]
#[ignore = "prints times"]
fn claims_per_second() {
    let folder = Folder::new();
    let a = Process::start(&folder);
    let kept: Vec<_> = (0..20_000).map(|_| a.bind("0.0.0.0:0").unwrap()).collect();
    const N: u32 = 20_000;
    let time = |what: &str, f: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..N).for_each(|_| f());
        println!("{what}: {:?}", start.elapsed() / N);
    };
    let any: SocketAddr = (Ipv4Addr::UNSPECIFIED, 0).into();
    let named: SocketAddr = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 7471, 0, 0).into();
    let flags = BindFlags {
        af_only: Some(true),
        ..BindFlags::default()
    };
    let bind = |addr| {
        drop(
            a.ports
                .bind(PortSpace::Tcp, addr, flags, sys::random_u64)
                .unwrap(),
        )
    };
    time("an ephemeral port, claimed and freed", &mut || bind(any));
    time("a named port, claimed and freed", &mut || bind(named));
    let mut listener = a
        .ports
        .bind(PortSpace::Tcp, named, flags, sys::random_u64)
        .unwrap();
    listener.listen().unwrap();
    let id = ServiceId::new(PortSpace::Tcp, 7471);
    time("who listens", &mut || {
        assert!(a.ports.listener_of(id, Some(named.ip())).is_some());
    });
    time("is it alive", &mut || {
        assert!(a.ports.range_is_alive(a.range));
    });
    let start = Instant::now();
    a.ports.purge(RANGES - 2).unwrap();
    println!(
        "purge of {} claims' table: {:?}",
        kept.len(),
        start.elapsed()
    );
}

fn any_slot() -> impl Strategy<Value = Slot> {
    let addr = prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from),
        Just(IpAddr::from([0; 4])),
        Just(IpAddr::from([0; 16])),
    ];
    (1u32.., addr, any::<(u32, u16, bool, bool, bool)>()).prop_map(
        |(service, addr, (scope, owner, reuse, af_only, listening))| Slot {
            service,
            addr,
            scope,
            owner,
            reuse,
            af_only,
            listening,
        },
    )
}

proptest! {
    #[test]
    fn slots_survive_and_broken_ones_do_not(slot in any_slot(), place in any::<u32>()) {
        let bytes = slot.encode(place);
        prop_assert_eq!(Slot::decode(&bytes, place), Some(slot));
        prop_assert_eq!(Slot::decode(&bytes, place ^ 1), None);
        for bit in 0..8 * SLOT_LEN {
            let mut broken = bytes;
            broken[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Slot::decode(&broken, place), None, "bit {}", bit);
        }
    }

    #[test]
    fn half_of_one_slot_and_half_of_another_is_none(a in any_slot(), b in any_slot(), cut in 1usize..8) {
        let (mut torn, b) = (a.encode(7), b.encode(7));
        torn[4 * cut..].copy_from_slice(&b[4 * cut..]);
        let seen = Slot::decode(&torn, 7);
        prop_assert!(seen.is_none() || torn == a.encode(7) || torn == b);
    }

    #[test]
    fn garbage_is_never_taken_for_a_claim(bytes in any::<[u8; SLOT_LEN]>(), place in any::<u32>()) {
        prop_assert_eq!(Slot::decode(&bytes, place), None);
    }

    #[test]
    fn collisions_are_mutual(a in any_slot(), b in any_slot()) {
        let b = Slot { service: a.service, ..b };
        prop_assert_eq!(a.collision(&b), b.collision(&a));
    }
}

/// The words why a request was refused say which ports do listen, and which process has the port
/// that is taken.
#[test]
fn a_census_shows_the_living_and_their_ports() {
    let folder = Folder::new();
    let (a, b, c) = (
        Process::start(&folder),
        Process::start(&folder),
        Process::start(&folder),
    );
    assert_eq!(a.ports.listeners(), []);
    let mut high = a.bind("10.0.0.1:65535").unwrap();
    high.listen().unwrap();
    let mut low = b.bind("0.0.0.0:7471").unwrap();
    low.listen().unwrap();
    let only_bound = b.bind("10.0.0.1:7472").unwrap();
    let mut of_the_dead = c.bind("10.0.0.1:7473").unwrap();
    of_the_dead.listen().unwrap();
    c.kill(vec![of_the_dead]);
    let listening = a.ports.listeners();
    let shown: Vec<_> = listening
        .iter()
        .map(|port| (port.service & 0xffff, port.addr.to_string(), port.range))
        .collect();
    assert_eq!(
        shown,
        [
            (7471, "0.0.0.0".to_owned(), b.range),
            (65535, "10.0.0.1".to_owned(), a.range),
        ]
    );
    let holders = |port| a.ports.holders(service(PortSpace::Tcp, port).into());
    let [holder] = holders(7472)[..] else {
        panic!("{:?}", holders(7472));
    };
    assert_eq!((holder.range, holder.listening), (b.range, false));
    assert_eq!(holders(7473), [], "its process is dead");
    drop(only_bound);
    assert_eq!(holders(7472), []);
}
