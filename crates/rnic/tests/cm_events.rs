//! Connections by the connection manager in an event loop: one thread, poll(2) on the channel's
//! descriptor.

use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use rnic::cm::RejectReason;
use rnic::{
    CmChannel, CmConnection, CmConnector, CmError, CmEvent, CmListener, CmPending, CompletionQueue,
    Context, Error, PreparedQueuePair, ProtectionDomain, Rc, SendRequest,
};

const PATIENCE: Duration = Duration::from_secs(60);
const LISTENER: u64 = 0;

/// Whether the channel is readable within this time.
fn readable(channel: &CmChannel, patience: Duration) -> bool {
    let mut poll = libc::pollfd {
        fd: channel.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let millis = i32::try_from(patience.as_millis()).expect("a short time");
    // SAFETY: `poll` is one valid pollfd for the whole call.
    unsafe { libc::poll(&mut poll, 1, millis) == 1 }
}

struct Loop {
    channel: CmChannel,
    listener: CmListener<Rc>,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    next: u64,
    pending: HashMap<u64, CmPending<Rc>>,
    connected: HashMap<u64, CmConnection<Rc>>,
    ended: Vec<u64>,
    failed: Vec<Error>,
}

impl Loop {
    fn new() -> Loop {
        let context = Context::open().expect("the device opens");
        let pd = context.alloc_pd().expect("pd");
        let cq = context.create_cq(256).build().expect("cq");
        let channel = CmChannel::new().expect("a channel");
        let ip = context.loopback_gid().expect("an address").addr;
        let listener = CmListener::<Rc>::builder((ip, 0)).expect("an address");
        let listener = listener.channel(&channel, LISTENER).listen();
        Loop {
            channel,
            listener: listener.expect("listens"),
            pd,
            cq,
            next: LISTENER + 1,
            pending: HashMap::new(),
            connected: HashMap::new(),
            ended: Vec::new(),
            failed: Vec::new(),
        }
    }

    fn prepare(&self) -> PreparedQueuePair<Rc> {
        let qp = self.pd.create_qp::<Rc>(&self.cq, &self.cq);
        qp.build().expect("a queue pair")
    }

    fn token(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn connect(&mut self) -> u64 {
        let addr = self.listener.local_addr().expect("an address");
        let connector = CmConnector::new(addr).expect("an address");
        let token = self.token();
        let pending = connector.start(&self.channel, token, self.prepare());
        self.pending.insert(token, pending.expect("starts"));
        token
    }

    /// Takes all events that there are; `accepts`: what becomes of requests.
    fn turn(&mut self, accepts: bool) {
        assert!(readable(&self.channel, PATIENCE), "news come");
        while let Some(event) = self.channel.try_event().expect("events") {
            match event {
                CmEvent::Request(token) => {
                    assert_eq!(token, LISTENER);
                    let request = self.listener.try_request().expect("requests");
                    let request = request.expect("the news of it came");
                    if !accepts {
                        request.reject(b"closed today").expect("refuses");
                        continue;
                    }
                    let token = self.token();
                    let pending = request.start(&self.channel, token, self.prepare(), b"");
                    self.pending.insert(token, pending.expect("accepts"));
                }
                CmEvent::Connected(token) | CmEvent::Failed(token) => {
                    let mut pending = self.pending.remove(&token).expect("it was started");
                    match pending.finish().expect("the news of it came") {
                        Ok(connection) => {
                            assert!(pending.finish().is_none(), "given out once");
                            self.connected.insert(token, connection);
                        }
                        Err(error) => self.failed.push(error),
                    }
                }
                CmEvent::Disconnected(token) => {
                    assert!(self.connected[&token].is_disconnected());
                    self.ended.push(token);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn until(&mut self, accepts: bool, done: impl Fn(&Loop) -> bool) {
        let start = Instant::now();
        while !done(self) {
            assert!(start.elapsed() < PATIENCE, "{:?}", self.failed);
            self.turn(accepts);
        }
    }
}

#[test]
fn one_thread_runs_both_ends_of_many_connections() {
    if !crate::device().connection_manager {
        return;
    }
    const COUNT: usize = 20;
    let mut events = Loop::new();
    let clients: Vec<u64> = (0..COUNT).map(|_| events.connect()).collect();
    events.until(true, |l| l.connected.len() == 2 * COUNT);
    assert!(events.failed.is_empty() && events.pending.is_empty());
    for client in &clients {
        let connection = &events.connected[client];
        connection
            .post(SendRequest::send_inline(b"").id(*client))
            .expect("posts");
        let peer = connection.remote().qpn;
        let server = events.connected.values().find(|c| c.qpn() == peer);
        server
            .expect("its end")
            .post_recv_empty(0)
            .expect("a receive");
    }
    for _ in 0..2 * COUNT {
        let done = events.cq.wait(PATIENCE).expect("a completion");
        done.ok().expect("success");
    }
    // Half of them end by a call, half by being dropped; each end is told once.
    for (n, client) in clients.iter().enumerate() {
        match n % 2 {
            0 => events.connected[client].disconnect(),
            _ => drop(events.connected.remove(client)),
        }
    }
    events.until(true, |l| l.ended.len() == COUNT + COUNT / 2);
    let mut ended = events.ended.clone();
    ended.sort_unstable();
    ended.dedup();
    assert_eq!(ended.len(), events.ended.len(), "nobody is told twice");
}

#[test]
fn refusals_come_as_events() {
    if !crate::device().connection_manager {
        return;
    }
    let mut events = Loop::new();
    for _ in 0..3 {
        events.connect();
    }
    events.until(false, |l| l.failed.len() == 3);
    for error in &events.failed {
        match error {
            Error::Connect(CmError::Rejected {
                reason,
                private_data,
                ..
            }) => {
                assert_eq!(*reason, RejectReason::CONSUMER);
                assert!(private_data.starts_with(b"closed today\0"));
            }
            other => panic!("{other}"),
        }
    }
    assert!(!readable(&events.channel, Duration::ZERO), "all were taken");
}

/// A pending attempt that is dropped is no more: no news come, and the other side is refused.
#[test]
fn an_attempt_may_be_given_up() {
    if !crate::device().connection_manager {
        return;
    }
    let mut events = Loop::new();
    let given_up = events.connect();
    drop(events.pending.remove(&given_up));
    events.connect();
    events.until(true, |l| l.connected.len() == 2);
    assert!(!events.connected.contains_key(&given_up));
}

/// Calls that wait would take the events of the caller's channel away from it.
#[test]
fn calls_that_wait_refuse_a_shared_channel() {
    if !crate::device().connection_manager {
        return;
    }
    let events = Loop::new();
    let error = events.listener.request(None).expect_err("would hang");
    assert!(error.to_string().contains("CmEvent::Request"), "{error}");
}
