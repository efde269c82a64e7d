//! Binding, and resolving addresses and routes.

use std::net::SocketAddr;
use std::process::Command;

use rnic_nic::cm::{EventKind, Id, IdOption, PortSpace};
use rnic_nic::{PathMtu, QpType};

use super::tools::{channel, errno, expect, here, next, resolve, tcp, udp};

#[test]
fn an_id_is_bound_to_an_address_of_the_device() {
    let channel = channel();
    let id = tcp(&channel);
    let route = id.route().expect("a route");
    assert!(route.local.is_none() && !route.on_device);
    id.bind(here(0)).expect("bound");
    let route = id.route().expect("a route");
    let local = route.local.expect("an address");
    assert_eq!(local.ip(), here(0).ip());
    assert_ne!(local.port(), 0, "an ephemeral port");
    assert!(route.on_device);
    assert_eq!((route.port_num, route.pkey), (1, 0xffff));
    assert_eq!(route.sgid.ip(), local.ip());
    assert_eq!(errno(id.bind(here(0))), libc::EINVAL, "once is enough");
}

#[test]
fn only_addresses_of_this_host_can_be_bound() {
    let channel = channel();
    let id = tcp(&channel);
    let elsewhere = SocketAddr::from(([192, 0, 2, 1], 0));
    assert_eq!(errno(id.bind(elsewhere)), libc::EADDRNOTAVAIL);
    let link_local = "[fe80::1]:0".parse().expect("an address");
    assert_eq!(errno(id.bind(link_local)), libc::EINVAL, "no scope");
    id.bind(here(0)).expect("it is still free to be bound");
}

#[test]
fn a_wildcard_is_on_no_device_until_the_peer_is_known() {
    let channel = channel();
    let id = tcp(&channel);
    id.bind(SocketAddr::from(([0, 0, 0, 0], 0))).expect("bound");
    let before = id.route().expect("a route");
    assert!(!before.on_device && before.port_num == 0);
    id.resolve_addr(None, here(7), 100).expect("a way");
    expect(&channel, EventKind::AddrResolved);
    let after = id.route().expect("a route");
    assert!(after.on_device);
    let ports = [before.local, after.local].map(|local| local.expect("an address").port());
    assert_eq!(ports[0], ports[1]);
}

#[test]
fn a_peer_is_resolved_to_gids_and_a_path() {
    let channel = channel();
    let id = tcp(&channel);
    id.set_option(IdOption::Tos(0x60)).expect("set");
    id.set_option(IdOption::AckTimeout(14)).expect("set");
    resolve(&id, &channel, here(7471));
    let route = id.route().expect("a route");
    assert_eq!(route.peer, Some(here(7471)));
    let path = route.path.expect("a path");
    assert_eq!((path.sgid, path.dgid), (route.sgid, route.dgid));
    assert_eq!(path.dgid.ip(), here(0).ip());
    assert_eq!(path.mtu, PathMtu::M4096, "lo carries it");
    assert_eq!((path.traffic_class, path.hop_limit), (0x60, 64));
    assert_eq!(path.packet_life_time, 13, "one less than the timeout");
    assert_eq!(errno(id.resolve_addr(None, here(1), 1)), libc::EINVAL);
    assert_eq!(errno(id.resolve_route(1)), libc::EINVAL);
}

#[test]
fn the_unspecified_peer_is_this_host() {
    let channel = channel();
    let id = udp(&channel);
    resolve(&id, &channel, SocketAddr::from(([0, 0, 0, 0], 9)));
    assert_eq!(id.route().expect("a route").peer, Some(here(9)));
}

/// What was found for a peer that does not answer does not bind the id, whose next one may be
/// reached from another address: as in Linux the own address is then what it was before, and the
/// port stays. Runs in a network namespace.
#[test]
fn a_peer_out_of_reach_leaves_the_own_address_open() {
    let setup = "ip link set lo up && ip link add a0 type veth peer name b0 \
        && ip addr add 10.77.1.1/24 dev a0 && ip link set a0 up && ip link set b0 up";
    let namespace = |then: &str| {
        let mut command = Command::new("unshare");
        let script = format!("{setup} && {then}");
        command.args(["-r", "-n", "sh", "-c", &script, "sh"]);
        command
    };
    if !namespace("true")
        .output()
        .is_ok_and(|it| it.status.success())
    {
        rnic_skip::skipped("a_peer_out_of_reach", "no network namespace here");
        return;
    }
    let dir = std::env::temp_dir().join(format!("rnic-cm-reach-{}", std::process::id()));
    let output = namespace("exec \"$@\"")
        .arg(std::env::current_exe().expect("a path"))
        .args(["--exact", "cm::address::out_of_reach", "--ignored"])
        .env("RNIC_RUNTIME_DIR", &dir)
        .output()
        .expect("it starts");
    let _ = std::fs::remove_dir_all(dir);
    let told = String::from_utf8_lossy(&output.stdout);
    let ran = told.contains("1 passed");
    assert!(output.status.success() && ran, "{told}");
}

#[test]
#[ignore = "started by the other tests"]
fn out_of_reach() {
    let nobody = SocketAddr::from(([10, 77, 1, 99], 7));
    let own = SocketAddr::from(([10, 77, 1, 1], 0));
    let any = SocketAddr::from(([0, 0, 0, 0], 0));
    for bound in [None, Some(any), Some(own)] {
        let channel = channel();
        let id = tcp(&channel);
        if let Some(addr) = bound {
            id.bind(addr).expect("bound");
        }
        id.resolve_addr(None, nobody, 50).expect("a way");
        let event = next(&channel);
        let expected = (EventKind::AddrError, -libc::ETIMEDOUT);
        assert_eq!((event.kind, event.status), expected);
        let failed = id.route().expect("a route");
        let local = failed.local.expect("a port");
        assert_ne!(local.port(), 0);
        assert_eq!(local.ip(), bound.unwrap_or(any).ip(), "as before");
        assert_eq!(failed.on_device, bound == Some(own));
        let again = id.resolve_addr(None, here(7), 50);
        if bound == Some(own) {
            // Whether there is a way from the address that was given is the kernel's to say.
            if again.is_ok() {
                next(&channel);
            }
            let route = id.route().expect("a route");
            assert_eq!(route.local, Some(local), "it was given");
            continue;
        }
        again.expect("a way");
        expect(&channel, EventKind::AddrResolved);
        let now = here(local.port());
        assert_eq!(id.route().expect("a route").local, Some(now));
        // What was bound to the wildcard keeps the port for all addresses.
        let taken = match bound {
            Some(_) => libc::EADDRNOTAVAIL,
            None => libc::EADDRINUSE,
        };
        assert_eq!(errno(tcp(&channel).bind(now)), taken);
    }
}

#[test]
fn ipv6_goes_to_ipv6_only() {
    let channel = channel();
    let id = tcp(&channel);
    let peer = "[::1]:7471".parse().expect("an address");
    let own = Some(here(0));
    assert_eq!(errno(id.resolve_addr(own, peer, 100)), libc::EINVAL);
    resolve(&id, &channel, peer);
    let route = id.route().expect("a route");
    assert_eq!(route.local.map(|local| local.ip()), Some(peer.ip()));
}

#[test]
fn a_port_is_taken_once() {
    let channel = channel();
    let first = tcp(&channel);
    first.bind(here(0)).expect("bound");
    let addr = first.route().expect("a route").local.expect("an address");
    let second = tcp(&channel);
    assert_eq!(errno(second.bind(addr)), libc::EADDRINUSE);
    let any = SocketAddr::from(([0, 0, 0, 0], addr.port()));
    assert_eq!(errno(second.bind(any)), libc::EADDRNOTAVAIL);
    udp(&channel).bind(addr).expect("another port space");
    first.destroy();
    second.bind(addr).expect("it is free again");
}

#[test]
fn a_port_may_be_shared_until_somebody_listens() {
    let channel = channel();
    let (first, second) = (tcp(&channel), tcp(&channel));
    for id in [&first, &second] {
        id.set_option(IdOption::ReuseAddr(true)).expect("set");
    }
    first.bind(here(0)).expect("bound");
    let addr = first.route().expect("a route").local.expect("an address");
    second.bind(addr).expect("shared");
    assert_eq!(errno(first.listen(1)), libc::EADDRINUSE);
    second.destroy();
    first.listen(1).expect("alone");
    assert_eq!(errno(tcp(&channel).bind(addr)), libc::EADDRINUSE);
    assert_eq!(errno(first.listen(1)), libc::EINVAL, "it does already");
    let late = first.set_option(IdOption::ReuseAddr(false));
    assert_eq!(errno(late), libc::EINVAL);
}

#[test]
fn options_have_their_time_and_range() {
    let channel = channel();
    let id = tcp(&channel);
    assert_eq!(errno(id.set_option(IdOption::AckTimeout(32))), libc::EINVAL);
    let datagrams = udp(&channel);
    let timeout = datagrams.set_option(IdOption::AckTimeout(14));
    assert_eq!(errno(timeout), libc::EINVAL);
    id.set_option(IdOption::AfOnly(true)).expect("set");
    id.bind(here(0)).expect("bound");
    id.set_option(IdOption::AfOnly(false)).expect("set");
    id.listen(1).expect("listening");
    assert_eq!(errno(id.set_option(IdOption::AfOnly(true))), libc::EINVAL);
}

#[test]
fn a_path_can_be_given_instead_of_resolved() {
    let channel = channel();
    let (resolved, given) = (tcp(&channel), tcp(&channel));
    resolve(&resolved, &channel, here(7471));
    let path = resolved.route().expect("a route").path.expect("a path");
    let early = given.set_option(IdOption::Path(path));
    assert_eq!(errno(early), libc::EINVAL);
    given.resolve_addr(None, here(7471), 100).expect("a way");
    expect(&channel, EventKind::AddrResolved);
    given.set_option(IdOption::Path(path)).expect("set");
    expect(&channel, EventKind::RouteResolved);
    assert_eq!(given.route().expect("a route").path, Some(path));
}

#[test]
fn port_spaces_have_their_services() {
    let channel = channel();
    for (space, qp_type) in [
        (PortSpace::Tcp, QpType::Ud),
        (PortSpace::Tcp, QpType::Uc),
        (PortSpace::Udp, QpType::Rc),
        (PortSpace::Ipoib, QpType::Rc),
    ] {
        let refused = Id::new(&channel, space, qp_type, 0);
        assert_eq!(errno(refused), libc::EINVAL, "{space:?} {qp_type:?}");
    }
    for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud, QpType::XrcSend] {
        Id::new(&channel, PortSpace::Ib, qp_type, 0).expect("any service");
    }
}

#[test]
fn a_group_is_joined_with_the_address_to_send_to() {
    let channel = channel();
    let id = udp(&channel);
    let group: SocketAddr = "239.1.2.3:0".parse().expect("a group");
    assert_eq!(errno(id.join_multicast(group, false, 5)), libc::EINVAL);
    id.bind(here(0)).expect("bound");
    assert_eq!(errno(id.join_multicast(here(0), false, 5)), libc::EINVAL);
    let membership = id.join_multicast(group, false, 5).expect("joined");
    let event = expect(&channel, EventKind::MulticastJoin);
    assert_eq!((event.multicast, event.uid), (Some(5), 5));
    let rnic_nic::cm::EventParam::Ud(ud) = event.param else {
        panic!("datagrams");
    };
    assert_eq!((ud.qp_num, ud.qkey), (0xff_ffff, 0x0123_4567));
    assert_eq!(ud.ah.dgid.ip(), group.ip());
    assert_eq!(id.leave_multicast(&membership).expect("left"), 1);
    let again = id.leave_multicast(&membership);
    assert_eq!(errno(again), libc::EADDRNOTAVAIL);
}
