//! What is granted is found, and nothing else; what is revoked is not reached any more, in any
//! interleaving.

#[cfg(not(loom))]
mod plain {
    use proptest::prelude::*;

    use super::super::*;
    use crate::shm::ring::{Producer, grant_table_of};

    fn tables() -> (GrantTable, GrantTable) {
        let (_ring, file) = Producer::create().expect("a ring");
        let table = || grant_table_of(&file).expect("its grant table");
        (table(), table())
    }

    fn grant(key: u32) -> Grant {
        let name = GrantName {
            src_qpn: 5,
            dest_qpn: 9,
            key,
        };
        Grant {
            name,
            mtu: PathMtu::M1024,
            pkey: 0xffff,
            iova: 0x1000,
            base: 0x7000_0000,
            len: 100,
            read: true,
            write: false,
        }
    }

    fn first_place(grant: &Grant) -> u16 {
        GrantTable::places(&grant.name).next().expect("some place")
    }

    #[test]
    fn only_what_is_granted_is_found() {
        let (own, peers) = tables();
        let grant = grant(77);
        let request = |name: &GrantName, va, len| Request {
            name: *name,
            mtu: PathMtu::M1024,
            pkey: 0xffff,
            va,
            len,
        };
        let find = |name: &GrantName, va, len, write| peers.place(&request(name, va, len), write);
        assert_eq!(find(&grant.name, 0x1000, 1, false), None, "nothing yet");
        own.put(first_place(&grant), 1, &grant);
        assert_eq!(find(&grant.name, 0x1000, 100, false), Some(0x7000_0000));
        assert_eq!(find(&grant.name, 0x1063, 1, false), Some(0x7000_0063));
        assert_eq!(find(&grant.name, 0x1064, 1, false), None, "behind it");
        assert_eq!(find(&grant.name, 0xfff, 1, false), None, "before it");
        assert_eq!(find(&grant.name, u64::MAX, 2, false), None, "wraps");
        assert_eq!(find(&grant.name, 0x1000, u64::MAX, false), None, "longer");
        assert_eq!(
            find(&grant.name, 0x1000, 1, true),
            None,
            "no right to write"
        );
        for other in [
            GrantName {
                key: 78,
                ..grant.name
            },
            GrantName {
                src_qpn: 6,
                ..grant.name
            },
            GrantName {
                dest_qpn: 8,
                ..grant.name
            },
        ] {
            assert_eq!(find(&other, 0x1000, 1, false), None);
        }
        own.take(first_place(&grant));
        assert_eq!(find(&grant.name, 0x1000, 1, false), None, "revoked");
        own.put(first_place(&grant), 2, &grant);
        own.shut();
        assert_eq!(find(&grant.name, 0x1000, 1, false), None, "shut");
    }

    /// What the wire would carry in packets of a length that the peer does not take goes by
    /// packets, and is refused there.
    #[test]
    fn what_the_two_path_mtus_cut_differently_is_not_granted() {
        let (own, peers) = tables();
        for (number, ours) in (1..).zip(PathMtu::ALL) {
            let grant = Grant {
                mtu: ours,
                len: 10_000,
                ..grant(77)
            };
            own.put(first_place(&grant), number, &grant);
            for mtu in PathMtu::ALL {
                let smaller = mtu.min(ours).bytes() as u64;
                for (len, alike) in [
                    (1, true),
                    (smaller, true),
                    (smaller + 1, mtu == ours),
                    (10_000, mtu == ours),
                ] {
                    let (name, va) = (grant.name, 0x1000);
                    let pkey = 0xffff;
                    let request = Request {
                        name,
                        mtu,
                        pkey,
                        va,
                        len,
                    };
                    let place = peers.place(&request, false);
                    assert_eq!(place.is_some(), alike, "{ours:?}, {mtu:?}, {len} bytes");
                }
            }
        }
    }

    /// What the wire would carry in packets of another partition goes by packets, and is dropped
    /// there.
    #[test]
    fn what_is_of_two_partitions_is_not_granted() {
        let (own, peers) = tables();
        let pairs = [
            (0xffff, 0x7fff, true),
            (0x0001, 0x8001, true),
            (0x0001, 0x0001, false),
            (0x8001, 0x8002, false),
            (0x8001, 0xffff, false),
        ];
        for (number, (ours, theirs, alike)) in (1..).zip(pairs) {
            let grant = Grant {
                pkey: ours,
                ..grant(77)
            };
            own.put(first_place(&grant), number, &grant);
            let request = Request {
                name: grant.name,
                mtu: grant.mtu,
                pkey: theirs,
                va: 0x1000,
                len: 1,
            };
            let place = peers.place(&request, false);
            assert_eq!(place.is_some(), alike, "{ours:#06x}, {theirs:#06x}");
        }
    }

    #[test]
    fn a_copy_that_has_begun_is_seen_and_its_end_too() {
        let (own, peers) = tables();
        assert_eq!(own.under_way(), None);
        let turn = peers.during(7, || own.under_way());
        assert_eq!(turn, Some(7));
        assert!(own.is_past(7) && own.under_way().is_none());
    }

    #[test]
    fn who_a_process_is_is_known_when_it_has_said_so() {
        let (own, peers) = tables();
        assert_eq!(peers.nonce(), None);
        let nonce = Nonce {
            at: 4096,
            value: [1, 2],
        };
        own.welcome(nonce);
        assert_eq!(peers.nonce(), Some(nonce));
    }

    proptest! {
        #[test]
        fn whatever_is_in_the_grant_table_is_read_without_harm(
            words in prop::collection::vec(any::<u64>(), 8),
            va in any::<u64>(),
            len in any::<u64>(),
            write in any::<bool>(),
        ) {
            let (own, peers) = tables();
            let mut named = grant(words[0] as u32);
            named.name.src_qpn = (words[1] >> 32) as u32;
            named.name.dest_qpn = words[1] as u32;
            for (i, word) in words.iter().enumerate() {
                Word::store(own.entry(first_place(&named), 8 * i), *word);
            }
            let mtu = PathMtu::M256;
            let request = Request { name: named.name, mtu, pkey: 0xffff, va, len };
            if let Some(at) = peers.place(&request, write) {
                // Within what is said to be granted.
                prop_assert_eq!(at.wrapping_sub(words[3]), va.wrapping_sub(words[2]));
            }
        }
    }
}

#[cfg(loom)]
mod loomed {
    //! No interleaving lets a copy go on in memory that was taken back, or mixes two grants.

    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU64, Ordering, fence};
    use loom::thread;

    use super::super::{Word, begin, read_grant, under_way, write_grant};

    impl Word for AtomicU64 {
        fn load(&self) -> u64 {
            AtomicU64::load(self, Ordering::Acquire)
        }
        fn store(&self, value: u64) {
            AtomicU64::store(self, value, Ordering::Release);
        }
        fn fence() {
            fence(Ordering::SeqCst);
        }
    }

    struct World {
        busy: AtomicU64,
        tag: AtomicU64,
        words: [AtomicU64; 2],
        /// Loom sees which threads touch it at the same time.
        memory: UnsafeCell<u64>,
    }

    fn world() -> Arc<World> {
        Arc::new(World {
            busy: AtomicU64::new(0),
            tag: AtomicU64::new(1),
            words: [AtomicU64::new(1), AtomicU64::new(1)],
            memory: UnsafeCell::new(0),
        })
    }

    fn copy(world: &World, turn: u64) {
        begin(&world.busy, turn);
        let words = [&world.words[0], &world.words[1]];
        if let Some((tag, [a, b])) = read_grant(&world.tag, |tag| tag != 0, words) {
            assert_eq!((a, b), (tag, tag), "of one grant");
            // SAFETY: what this test is about.
            world.memory.with_mut(|memory| unsafe { *memory += 1 });
        }
        Word::store(&world.busy, turn + 1);
    }

    #[test]
    fn memory_that_was_taken_back_is_not_touched_any_more() {
        loom::model(|| {
            let world = world();
            let other = world.clone();
            let peer = thread::spawn(move || {
                copy(&other, 1);
                copy(&other, 3);
            });
            Word::store(&world.tag, 0);
            if let Some(turn) = under_way(&world.busy) {
                while Word::load(&world.busy) == turn {
                    thread::yield_now();
                }
            }
            // SAFETY: what this test is about.
            world.memory.with_mut(|memory| unsafe { *memory += 1 });
            peer.join().unwrap();
        });
    }

    #[test]
    fn a_grant_that_changes_is_read_as_the_one_or_the_other() {
        loom::model(|| {
            let world = world();
            let other = world.clone();
            let peer = thread::spawn(move || copy(&other, 1));
            let words = [(&world.words[0], 2), (&world.words[1], 2)];
            write_grant(&world.tag, 2, words);
            peer.join().unwrap();
        });
    }
}
