use super::*;
use rnic_host::addresses::is_own_address;

pub(crate) fn spec(local: &str, remote: &str, dest_qpn: u32) -> PathSpec {
    PathSpec {
        local: local.parse().expect("an address"),
        scope_id: 0,
        remote: remote.parse().expect("an address"),
        dest_qpn,
        traffic_class: 0,
        hop_limit: 0,
    }
}

/// A route with a real socket of this host, which no path shares.
pub(crate) fn route(local: &str, remote: &str, dest_qpn: u32) -> Arc<Route> {
    let key = spec(local, remote, dest_qpn).key();
    let socket = TxSocket::open(&key, key.remote.is_ipv6()).expect("a socket");
    let local = is_own_address(key.remote, 0) || key.remote.is_multicast();
    let for_queue_pairs = key.dest_qpn != QP1;
    let socket = Arc::new(socket);
    Arc::new(Route::new(
        &key,
        socket,
        for_queue_pairs,
        local,
        for_queue_pairs,
    ))
}

/// The route, by this socket, which has its destination and cuts nothing.
pub(crate) fn over(route: &Route, socket: TxSocket) -> Route {
    Route {
        socket: Arc::new(socket),
        headers: OnceLock::new(),
        to: None,
        gso: AtomicBool::new(false),
        bare: AtomicBool::new(false),
        in_rows: AtomicBool::new(false),
        tap: AtomicU32::new(0),
        ..*route
    }
}

/// The same route to another port, which the ICRC does not know of.
pub(crate) fn redirected(route: &Route, to: SocketAddr) -> Route {
    Route {
        headers: OnceLock::new(),
        socket: route.socket.clone(),
        to: Some(Addr::inet(&to)),
        gso: AtomicBool::new(route.gso()),
        bare: AtomicBool::new(route.leaves_bare()),
        in_rows: AtomicBool::new(route.goes_in_rows()),
        tap: AtomicU32::new(0),
        ..*route
    }
}

#[test]
fn what_only_an_interface_makes_an_address_is_left_to_the_kernel() {
    let socket = route("127.0.0.1", "127.0.0.1", 0x5000).socket.clone();
    let passes = |local: &str, remote: &str| {
        let spec = PathSpec {
            scope_id: 1,
            ..spec(local, remote, 0x5000)
        };
        Route::new(&spec, socket.clone(), false, false, true).may_pass_network_stack()
    };
    assert!(passes("192.0.2.1", "192.0.2.2"));
    assert!(passes("2001:db8::1", "2001:db8::2"));
    assert!(!passes("fe80::1", "fe80::2"));
    assert!(!passes("2001:db8::1", "fe80::2"));
    assert!(!passes("fe80::1", "2001:db8::2"));
}
