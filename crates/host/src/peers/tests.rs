//! Two processes that talk, played by two handles of a folder.

use super::*;
use rnic_skip::Folder;
use std::ffi::CString;

struct Place {
    folder: Folder,
    dir: Fd,
}

impl Place {
    fn new() -> Place {
        let folder = Folder::new();
        let name = CString::new(folder.path().as_os_str().as_bytes()).unwrap();
        let dir = sys::open_at(None, &name, libc::O_RDONLY | libc::O_DIRECTORY, 0).unwrap();
        Place { folder, dir }
    }

    fn process(&self, number: u32) -> Peers {
        Peers::open(&self.dir, self.folder.path(), number).unwrap()
    }

    fn connect(&self, from: &mut Peers, to: u32) -> PeerId {
        from.connect(&self.dir, self.folder.path(), to).unwrap()
    }
}

/// What was said until `enough` things happened.
fn hear(of: &mut Peers, enough: usize) -> Vec<(PeerId, Option<Vec<u8>>, usize)> {
    let mut all = Vec::new();
    while all.len() < enough {
        sys::wait_readable(&of.set, 1000);
        of.hear(&mut |peer, heard| {
            all.push(match heard {
                Heard::Message { bytes, fds } => (peer, Some(bytes.to_vec()), fds.len()),
                Heard::Gone => (peer, None, 0),
            });
        });
    }
    all
}

fn null() -> Fd {
    sys::open_at(None, c"/dev/null", libc::O_RDONLY, 0).unwrap()
}

#[test]
fn messages_and_descriptors_arrive_whole_and_answers_come_back() {
    let place = Place::new();
    let (mut a, mut b) = (place.process(7), place.process(8));
    let to_a = place.connect(&mut b, 7);
    assert_eq!(place.connect(&mut b, 7), to_a, "one connection");
    let long = vec![5; MESSAGE_LEN];
    b.say(to_a, &long, Vec::new()).unwrap();
    b.say(to_a, b"with a gift", vec![null(), null()]).unwrap();
    let heard = hear(&mut a, 2);
    let to_b = heard[0].0;
    assert_eq!(heard[0].1.as_deref(), Some(&long[..]));
    assert_eq!(
        (heard[1].1.as_deref(), heard[1].2),
        (Some(&b"with a gift"[..]), 2)
    );
    assert_eq!(a.pid(to_b), Some(std::process::id()));
    a.say(to_b, b"thanks", Vec::new()).unwrap();
    assert_eq!(hear(&mut b, 1)[0].1.as_deref(), Some(&b"thanks"[..]));
}

#[test]
fn the_end_of_a_process_is_heard_once_and_its_place_is_used_again() {
    let place = Place::new();
    let mut b = place.process(8);
    let a = place.process(7);
    let to_a = place.connect(&mut b, 7);
    drop(a);
    assert_eq!(hear(&mut b, 1), [(to_a, None, 0)]);
    assert!(!b.has_peers());
    assert_eq!(b.say(to_a, b"x", Vec::new()), Err(Gone));
    let path = place.folder.path();
    assert!(b.connect(&place.dir, path, 7).is_err(), "nobody listens");
    let _a = place.process(7);
    let again = place.connect(&mut b, 7);
    assert_eq!((again.slot, again != to_a), (to_a.slot, true));
}

#[test]
fn who_does_not_listen_costs_bounded_memory_and_nobody_waits() {
    let place = Place::new();
    let mut b = place.process(8);
    let _deaf = place.process(7);
    let to_a = place.connect(&mut b, 7);
    let message = vec![0; MESSAGE_LEN];
    let said = (0..)
        .take_while(|_| b.say(to_a, &message, Vec::new()).is_ok())
        .count();
    assert!(said * MESSAGE_LEN < 2 * QUEUE, "{said} messages kept");
    assert_eq!(hear(&mut b, 1), [(to_a, None, 0)]);
}

#[test]
fn what_was_queued_arrives_in_order() {
    let place = Place::new();
    let (mut a, mut b) = (place.process(7), place.process(8));
    let to_a = place.connect(&mut b, 7);
    for n in 0..100u32 {
        let mut message = vec![0; 60_000];
        message[..4].copy_from_slice(&n.to_ne_bytes());
        b.say(to_a, &message, Vec::new()).unwrap();
    }
    let mut next = 0u32;
    while next < 100 {
        a.hear(&mut |_, heard| {
            if let Heard::Message { bytes, .. } = heard {
                assert_eq!(bytes[..4], next.to_ne_bytes());
                next += 1;
            }
        });
        b.hear(&mut |_, _| {});
    }
}

#[test]
fn a_message_that_is_too_long_or_an_empty_one_ends_the_connection() {
    let place = Place::new();
    for (len, fds) in [(MESSAGE_LEN + 1, 1), (0, 0)] {
        let mut a = place.process(7);
        let address = address(&place.dir, place.folder.path(), 7).unwrap();
        let raw = sys::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET).unwrap();
        sys::connect(&raw, &address).unwrap();
        sys::ask_for_buffers(&raw, BUFFER);
        let fds: Vec<Fd> = (0..fds).map(|_| null()).collect();
        sys::send_message(&raw, &vec![1; len], &fds).unwrap();
        assert_eq!(hear(&mut a, 1)[0].1, None);
        assert!(!a.has_peers());
    }
}

#[test]
fn small_messages_are_counted_with_what_it_takes_to_keep_them() {
    let place = Place::new();
    let mut b = place.process(8);
    let _deaf = place.process(7);
    let to_a = place.connect(&mut b, 7);
    let said = (0..)
        .take_while(|_| b.say(to_a, b"x", Vec::new()).is_ok())
        .count();
    assert!(said < 2 * QUEUE / MESSAGE_COST, "{said} messages kept");
    assert_eq!(hear(&mut b, 1), [(to_a, None, 0)]);
    let to_a = place.connect(&mut b, 7);
    let said = (0..)
        .take_while(|_| b.say(to_a, b"x", vec![null()]).is_ok())
        .count();
    // Those in the socket count for the process that sent them, by the kernel.
    assert!(said < 2 * QUEUE / FD_COST, "{said} descriptors kept");
}

#[test]
fn who_listens_stays_when_all_queues_together_are_full() {
    let place = Place::new();
    let mut b = place.process(8);
    let deaf: Vec<Peers> = (10..16).map(|number| place.process(number)).collect();
    let slow: Vec<PeerId> = (10..16)
        .map(|number| place.connect(&mut b, number))
        .collect();
    let mut a = place.process(7);
    let to_a = place.connect(&mut b, 7);
    let message = vec![0; MESSAGE_LEN];
    let mut lost = Vec::new();
    // Each stays within its own bound.
    for _ in 0..(QUEUE - QUEUE / 8) / (MESSAGE_LEN + MESSAGE_COST) {
        for peer in &slow {
            let _ = b.say(*peer, &message, Vec::new());
        }
        b.say(to_a, b"hello", Vec::new()).unwrap();
        a.hear(&mut |_, _| {});
        assert!(b.queued <= QUEUES, "{} bytes", b.queued);
    }
    assert!(b.has_losses());
    b.hear(&mut |peer, _| lost.push(peer));
    assert!(!lost.is_empty() && lost.len() < slow.len(), "{lost:?}");
    assert!(!lost.contains(&to_a));
    drop(deaf);
}

#[test]
fn who_comes_while_there_is_no_descriptor_is_refused_and_later_ones_are_heard() {
    // The limit is the process's.
    if !rnic_skip::alone() {
        return;
    }
    let place = Place::new();
    let (mut a, mut b) = (place.process(7), place.process(8));
    sys::keep_spare();
    let from = place.connect(&mut b, 7);
    let all = rnic_skip::all_descriptors();
    assert!(sys::wait_readable(&a.set, 0));
    a.hear(&mut |_, _| {});
    assert!(!a.has_peers());
    assert!(
        !sys::wait_readable(&a.set, 0),
        "a thread that waits for it would spin"
    );
    assert_eq!(hear(&mut b, 1), [(from, None, 0)], "refused, and told so");
    // Not even the spare one, which another thread uses: a process that comes waits, and none
    // spins.
    drop(all);
    let from = place.connect(&mut b, 7);
    let all = rnic_skip::all_descriptors();
    sys::with_spare(|| {
        let _last = sys::socket(libc::AF_UNIX, libc::SOCK_STREAM).unwrap();
        a.hear(&mut |_, _| {});
        a.maintain();
        assert!(!a.has_peers() && !sys::wait_readable(&a.set, 0));
    })
    .unwrap();
    drop(all);
    a.maintain();
    assert!(a.has_peers());
    b.say(from, b"still there", Vec::new()).unwrap();
    assert_eq!(hear(&mut a, 1)[0].1.as_deref(), Some(&b"still there"[..]));
}
