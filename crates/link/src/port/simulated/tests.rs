//! Several simulated ports with one runtime folder are processes of one host.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::ControlFlow;

use rnic_host::last_words::LAST_WORDS_LEN;
use rnic_host::ports::BindFlags;
use rnic_host::registry::RANGE_LEN;
use rnic_skip::Folder;
use rnic_wire::cm::PortSpace;
use rnic_wire::{Bth, Opcode, Operation, Service};

use super::*;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

fn process(folder: &Folder) -> (SimulatedPort, Wire) {
    let config = SimulatedPortConfig {
        addresses: vec![HERE],
        first_range: 9,
        ..SimulatedPortConfig::default()
    };
    SimulatedPort::of_host(config, &SimulatedFolder::at(folder.path())).unwrap()
}

fn packet_for(qpn: u32) -> Frame {
    let mut bytes = vec![0; Bth::LEN];
    let bth = Bth {
        opcode: Opcode::new(Service::Rc, Operation::SendOnly),
        dest_qp: qpn,
        ..Bth::default()
    };
    rnic_wire::emit(&bth, &rnic_wire::Ext::default(), &mut bytes);
    Frame {
        src: HERE.into(),
        dst: HERE.into(),
        src_port: 0xc000,
        sl: 0,
        traffic_class: 0,
        hop_limit: 0,
        bytes,
    }
}

fn takes(port: &mut SimulatedPort) -> usize {
    port.receive_while(0, usize::MAX, Look::Drain, &mut |_| {
        ControlFlow::Continue(())
    })
}

#[test]
fn each_has_ranges_of_its_own_until_it_ends() {
    let folder = Folder::new();
    let ((mut a, wire_a), (b, wire_b)) = (process(&folder), process(&folder));
    assert_eq!([wire_a.first_range(), wire_b.first_range()], [9, 10]);
    assert_eq!(a.claim_qpn_range().unwrap(), QpnRange::of(11));
    let ranges = |port: &SimulatedPort| port.membership().unwrap().live_ranges();
    assert_eq!(ranges(&a), [9, 10, 11]);
    drop(b);
    assert_eq!(ranges(&a), [9, 11]);
}

#[test]
fn a_port_is_one_processs_until_it_is_killed() {
    let folder = Folder::new();
    let ((mut a, _), (b, _)) = (process(&folder), process(&folder));
    let claim = |port: &SimulatedPort| {
        let addr = SocketAddr::new(HERE, 7471);
        let ports = port.membership().unwrap().ports().clone();
        ports.bind(PortSpace::Tcp, addr, BindFlags::default(), || 0)
    };
    let _kept = claim(&a).unwrap();
    assert!(claim(&b).is_err());
    a.abandon();
    assert!(claim(&b).is_ok());
}

#[test]
fn packets_for_another_process_are_handed_over_once() {
    let folder = Folder::new();
    let ((mut a, wire_a), (mut b, wire_b)) = (process(&folder), process(&folder));
    let frame = packet_for(10 * RANGE_LEN + 5);
    assert!(wire_a.arrive(frame.clone()));
    assert_eq!(takes(&mut a), 0);
    assert_eq!(wire_a.take_handed_over(), Some((10, frame.clone())));
    assert_eq!(wire_a.take_handed_over(), None);
    assert!(wire_b.hand_over(frame));
    assert_eq!(takes(&mut b), 1);
    // Nobody's.
    wire_a.arrive(packet_for(12 * RANGE_LEN));
    assert_eq!((takes(&mut a), wire_a.take_handed_over()), (0, None));
    assert_eq!(a.counters().rx_unknown_qpn, 2);
}

#[test]
fn what_a_killed_process_leaves_another_one_finds_once() {
    let folder = Folder::new();
    let ((mut a, wire), (b, _)) = (process(&folder), process(&folder));
    let last_words = [7; LAST_WORDS_LEN];
    let write = |port: &mut SimulatedPort| {
        let membership = port.membership_mut().unwrap();
        membership.write_last_words(&last_words).unwrap();
    };
    write(&mut a);
    let find = || {
        let dead = b.membership().unwrap().take_last_words_of_the_dead();
        dead.iter()
            .flat_map(|dead| dead.last_words().to_vec())
            .collect::<Vec<_>>()
    };
    assert!(find().is_empty(), "it lives");
    a.abandon();
    drop(a);
    assert_eq!(find(), [last_words]);
    assert!(find().is_empty(), "they are said");
    assert_eq!(wire.take(), None);
    // Who ends in order has said it.
    let (mut c, _) = process(&folder);
    write(&mut c);
    drop(c);
    assert!(find().is_empty());
}
