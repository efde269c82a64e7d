//! What any device keeps to, whichever back end it is of, and what it says of itself.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::loopback::{PATIENCE, pair, pair_with};
use rnic::{
    BackEnd, Context, Destination, Error, HEADER_LEN, Rc, SendRequest, Status, Uc, Ud, Xrc,
};

/// A device can do what it says, and what it does not say is an error that names it.
#[test]
fn capabilities_are_as_they_are_told() {
    let context = Context::open().expect("the device opens");
    let can = context.capabilities();
    assert_eq!(can.back_end, context.back_end());
    let pd = context.alloc_pd().expect("pd");
    let cq = context.create_cq(8).build().expect("cq");
    let agrees = |what: &str, told: bool, made: rnic::Result<()>| match made {
        Ok(()) => assert!(told, "{what}: it can, and does not say so"),
        Err(error) => {
            assert!(!told, "{what}: {error}");
            assert!(error.to_string().contains(context.name()), "{error}");
        }
    };
    let gid = context.routable_gid(1).expect("an address");
    let uc = pd.create_qp::<Uc>(&cq, &cq).gid(&gid).build();
    agrees("UC", can.uc, uc.map(drop));
    let ud = pd.create_qp::<Ud>(&cq, &cq).gid(&gid).build();
    agrees("UD", can.ud, ud.map(drop));
    let xrc = context.open_xrc_domain().and_then(|domain| {
        domain.create_srq(&pd, &cq, 4)?;
        pd.create_qp::<Xrc>(&cq, &cq).gid(&gid).build().map(drop)
    });
    agrees("XRC", can.xrc, xrc);
    agrees("SRQ", can.srq, pd.create_srq(4).map(drop));
    agrees("windows", can.windows, pd.window().map(drop));
    assert!(can.max_rd_atomic > 0);
    assert_eq!(can.max_inline_data, context.device_attr().max_inline_data);
}

/// The device is one of the list, under the name by which it is opened.
#[test]
fn the_device_is_in_the_list() {
    let context = Context::open().expect("the device opens");
    let devices = rnic::devices();
    let of_ours = devices.iter().find(|device| {
        let name = device.name();
        let name = name.strip_prefix("system:").unwrap_or(name);
        device.back_end() == context.back_end() && name == context.name()
    });
    let again = of_ours.expect("in the list").open().expect("opens again");
    assert_eq!(again.name(), context.name());
    assert_eq!(devices[0].back_end(), BackEnd::Software, "it comes first");
}

#[test]
fn the_gid_table_and_its_rows_agree() {
    let context = Context::open().expect("the device opens");
    let table = context.gid_table();
    assert!(!table.is_empty());
    for row in &table {
        let same = context.gid(row.index).expect("a row");
        assert_eq!((same.gid, same.index), (row.gid, row.index));
        assert_eq!(row.gid.ip(), row.addr);
        assert!(row.netdev_mtu >= 256, "{row:?}");
    }
    let first = context.gid_for(table[0].addr).expect("an address of ours");
    assert_eq!(first.addr, table[0].addr);
    let port = context.port_attr(1).expect("port 1");
    assert!(port.active_mtu <= port.max_mtu);
    assert!(table.iter().all(|row| row.index < port.gid_tbl_len));
    assert!(context.pkeys().contains(&0xffff));
}

#[test]
fn as_much_inline_data_is_taken_as_is_told() {
    let most = crate::device().max_inline_data;
    let (left, right) = pair_with(|b| b.max_inline_data(most), |b| b);
    let bytes: Vec<u8> = (0..most).map(|i| i as u8).collect();
    let into = right.pd.buffer(bytes.len().max(1)).expect("memory");
    right.qp.post_recv(into, 1).expect("posted");
    left.qp
        .post(SendRequest::send_inline(&bytes))
        .expect("posted");
    assert_eq!(right.done().data(), bytes);
    left.done();
}

/// A failure is told whether its success would have been or not.
#[test]
fn an_unsignaled_request_that_fails_is_told_with_its_buffer() {
    let (left, right) = pair();
    let region = right.pd.writable(8).build().expect("memory");
    let nowhere = rnic::RemoteMemory {
        len: 64,
        ..region.remote()
    };
    let write = SendRequest::write(left.buffer(&[1; 64]), nowhere);
    left.qp.post(write.id(9).unsignaled()).expect("posted");
    let mut failed = left.next();
    assert_eq!(
        (failed.id(), failed.status()),
        (9, Status::RemoteAccessError)
    );
    assert_eq!(failed.take_buffer().expect("comes back")[..], [1; 64]);
    assert_eq!(region.load_u64(0, Ordering::SeqCst).expect("in range"), 0);
}

#[test]
fn a_region_that_is_dropped_is_reached_no_more() {
    let (left, right) = pair();
    let region = right.pd.writable(64).readable().build().expect("memory");
    let remote = region.remote();
    left.qp
        .post(SendRequest::write_inline(b"in time", remote))
        .expect("posted");
    left.done();
    drop(region);
    left.qp
        .post(SendRequest::write_inline(b"late", remote))
        .expect("posted");
    assert_eq!(left.next().status(), Status::RemoteAccessError);
}

/// Memory of another protection domain is not for a queue pair.
#[test]
fn buffers_are_used_in_their_own_domain_alone() {
    let (left, right) = pair();
    let foreign = right.pd.context().alloc_pd().expect("pd");
    let buffer = foreign.buffer(64).expect("memory");
    right.qp.post_recv(buffer, 1).expect("posted");
    left.qp
        .post(SendRequest::send_inline(b"secret"))
        .expect("posted");
    let received = right.next();
    assert_eq!(received.id(), 1);
    crate::loopback::failed_by(&received, Status::LocalProtectionError);
    assert_eq!(received.into_buffer().expect("comes back")[..6], [0; 6]);
    assert_ne!(left.next().status(), Status::Success);

    let (left, _right) = pair();
    let foreign = left.pd.context().alloc_pd().expect("pd");
    let buffer = foreign.buffer(64).expect("memory");
    left.qp
        .post(SendRequest::send(buffer).id(2))
        .expect("posted");
    let sent = left.next();
    assert_eq!(sent.id(), 2);
    crate::loopback::failed_by(&sent, Status::LocalProtectionError);
}

/// More READs than may be in flight wait for their turn.
#[test]
fn reads_beyond_the_limit_wait() {
    let (left, right) = pair_with(|b| b.max_send_wr(64), |b| b);
    let bytes: Vec<u8> = (0..64u8).collect();
    let region = right.pd.share(right.buffer(&bytes)).expect("shared");
    for at in 0..48 {
        let from = region.remote().slice(at, 4).expect("in range");
        let into = left.pd.buffer(4).expect("memory");
        left.qp
            .post(SendRequest::read(into, from).id(at))
            .expect("posted");
    }
    for at in 0..48 {
        let read = left.done();
        assert_eq!(read.id(), at);
        assert_eq!(read.data(), &bytes[at as usize..at as usize + 4]);
    }
}

#[test]
fn a_fenced_request_sees_what_was_read_before_it() {
    let (left, right) = pair();
    let region = right.pd.share(right.buffer(b"the answer")).expect("shared");
    right.qp.post_recv_empty(1).expect("posted");
    let into = left.pd.buffer(10).expect("memory");
    let read = SendRequest::read(into, region.remote()).unsignaled();
    left.qp.post(read.id(2)).expect("posted");
    let told = SendRequest::send_inline(b"").fenced().id(3);
    left.qp.post(told).expect("posted");
    let mut sent = left.done();
    let read = sent.take_released();
    assert_eq!((sent.id(), read[0].0), (3, 2));
    assert_eq!(read[0].1[..], *b"the answer");
    right.done();
}

#[test]
fn a_list_is_posted_up_to_the_first_that_cannot_be() {
    let (left, right) = pair_with(|b| b.max_inline_data(16), |b| b);
    for id in 0..3 {
        let buffer = right.pd.buffer(16).expect("memory");
        right.qp.post_recv(buffer, id).expect("posted");
    }
    let mut list: Vec<SendRequest> = (0..3u8)
        .map(|n| SendRequest::send_inline(&[n; 8]).id(n.into()))
        .collect();
    list.insert(2, SendRequest::send_inline(&[9; 4000]));
    let error = left.qp.post_list(&mut list).expect_err("too long");
    assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    assert_eq!(list.len(), 2, "the two before it are posted");
    drop(list.remove(0));
    left.qp.post_list(&mut list).expect("posted");
    for n in 0..3u8 {
        assert_eq!(left.done().id(), u64::from(n));
        assert_eq!(right.done().data(), [n; 8]);
    }
}

/// Queues of one channel are told apart by their ids.
#[test]
fn a_channel_tells_which_queue_has_something() {
    let context = Context::open().expect("the device opens");
    let gid = context.loopback_gid().expect("an address");
    let pd = context.alloc_pd().expect("pd");
    let channel = context.create_comp_channel().expect("a channel");
    let [one, two] = [71, 72].map(|id| {
        let builder = context.create_cq(16).channel(&channel).id(id);
        builder.build().expect("cq")
    });
    let left = pd
        .create_qp::<Rc>(&one, &one)
        .gid(&gid)
        .build()
        .expect("qp");
    let right = pd
        .create_qp::<Rc>(&two, &two)
        .gid(&gid)
        .build()
        .expect("qp");
    let (to_left, to_right) = (left.endpoint(), right.endpoint());
    let left = left.handshake(to_right).expect("handshake");
    let right = right.handshake(to_left).expect("handshake");
    right.post_recv_empty(1).expect("posted");
    two.arm(false);
    left.post(SendRequest::send_inline(b"").unsignaled())
        .expect("posted");
    let told = channel.wait_event(Some(PATIENCE)).expect("an event");
    assert_eq!(told, 72);
    assert_eq!(two.poll_one().expect("polls").expect("received").id(), 1);
    // Of that which is not armed nothing comes.
    right.post_recv_empty(2).expect("posted");
    left.post(SendRequest::send_inline(b"").id(3))
        .expect("posted");
    assert_eq!(one.wait(PATIENCE).expect("sent").id(), 3);
    let nothing = channel.wait_event(Some(Duration::from_millis(5)));
    assert!(matches!(nothing, Err(Error::Timeout(_))), "{nothing:?}");
}

/// Armed for solicited messages, a queue is quiet for others.
#[test]
fn a_solicited_message_wakes_who_waits_for_those_alone() {
    let (left, right) = pair();
    for id in 0..2 {
        right.qp.post_recv_empty(id).expect("posted");
    }
    right.cq.arm(true);
    left.qp.post(SendRequest::send_inline(b"")).expect("posted");
    left.done();
    let channel = right.cq.channel();
    let nothing = channel.wait_event(Some(Duration::from_millis(5)));
    assert!(matches!(nothing, Err(Error::Timeout(_))), "{nothing:?}");
    left.qp
        .post(SendRequest::send_inline(b"").solicited())
        .expect("posted");
    channel.wait_event(Some(PATIENCE)).expect("an event");
    for id in 0..2 {
        assert_eq!(right.done().id(), id);
    }
}

/// Receives of a shared queue are for datagrams, too.
#[test]
fn datagrams_take_receives_of_a_shared_queue() {
    let can = crate::device();
    if !can.srq || !can.ud {
        return;
    }
    let context = Context::open().expect("the device opens");
    let gid = context.loopback_gid().expect("an address");
    let pd = context.alloc_pd().expect("pd");
    let cq = context.create_cq(16).build().expect("cq");
    let send_cq = context.create_cq(16).build().expect("cq");
    let srq = pd.create_srq(4).expect("srq");
    let sender = pd.create_qp::<Ud>(&send_cq, &send_cq).gid(&gid);
    let sender = sender.build().expect("qp");
    let receivers = [(); 2].map(|()| {
        let builder = pd.create_qp::<Ud>(&cq, &cq).srq(&srq).gid(&gid);
        builder.build().expect("qp")
    });
    for (id, receiver) in receivers.iter().enumerate() {
        let buffer = pd.buffer(HEADER_LEN + 8).expect("memory");
        srq.post_recv(buffer, id as u64).expect("posted");
        let to = Destination {
            ah: pd.create_ah(&gid, gid.addr).expect("a way"),
            qpn: receiver.qpn(),
            qkey: receiver.qkey(),
        };
        let request = SendRequest::send_inline(b"shared").unsignaled();
        sender.post(request, &to).expect("posted");
        // The way may go before the datagram has left.
        drop(to);
        let received = cq.wait(PATIENCE).expect("received").ok().expect("success");
        assert_eq!((received.id(), received.qpn()), (id as u64, receiver.qpn()));
        assert_eq!(received.message(), b"shared");
    }
}

/// Two queue pairs add to one word, and nothing is lost.
#[test]
fn atomics_of_two_queue_pairs_add_up() {
    if !crate::device().atomics {
        return;
    }
    let (a, b) = pair();
    let region = b.pd.writable(8).atomic().build().expect("memory");
    let second = b.pd.create_qp::<Rc>(&b.cq, &b.cq);
    let gid = b.pd.context().loopback_gid().expect("an address");
    let second = second.gid(&gid).build().expect("qp");
    let third = a.pd.create_qp::<Rc>(&a.cq, &a.cq).gid(&gid);
    let third = third.build().expect("qp");
    let (to_second, to_third) = (second.endpoint(), third.endpoint());
    let _second = second.handshake(to_third).expect("handshake");
    let third = third.handshake(to_second).expect("handshake");
    let mut found = Vec::new();
    for _ in 0..16 {
        for qp in [&a.qp, &third] {
            let into = a.pd.buffer(8).expect("memory");
            qp.post(SendRequest::fetch_add(into, region.remote(), 1))
                .expect("posted");
        }
        for _ in 0..2 {
            found.extend(a.done().original_value());
        }
    }
    found.sort_unstable();
    assert!(found.into_iter().eq(0..32), "each value was found once");
    assert_eq!(region.load_u64(0, Ordering::SeqCst).expect("in range"), 32);
}

/// No order of dropping is wrong: what is used stays.
#[test]
fn handles_may_be_dropped_in_any_order() {
    let (left, right) = pair();
    right.qp.post_recv_empty(1).expect("posted");
    let cq = right.cq.clone();
    // The queue pair keeps its domain, the domain the device.
    drop(right.pd);
    drop(right.cq);
    let buffer = left.buffer(b"last");
    drop(left.pd);
    drop(buffer);
    left.qp.post(SendRequest::send_inline(b"")).expect("posted");
    assert_eq!(cq.wait(PATIENCE).expect("received").id(), 1);
    drop(right.qp);
    drop(cq);
    assert_eq!(
        left.cq.wait(PATIENCE).expect("sent").status(),
        Status::Success
    );
    drop(left.cq);
    drop(left.qp);
}
