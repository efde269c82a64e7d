//! Connects and disconnects, as fast as asked: four client processes and one server, on a network
//! that loses packets.
//!
//! ```text
//! cm_load [--seconds 60] [--rate 1000] [--loss 2] [--clients 4] [--address 127.0.0.1]
//! ```
//! starts the processes, prints what each of them counted, and fails if a connection had another
//! fate than it should, or if anything is left over at the end: an object of the NIC, a file
//! descriptor, a thread. `--loss` is in percent, of what each process sends. (`server` and `client`
//! are the processes themselves.)
//!
//! A lost request is repeated after some six seconds, a lost answer after four, as Linux does it;
//! so the clients keep thousands of connections under way, and the last ones take a while after the
//! load has ended.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rnic::{
    CmChannel, CmConnection, CmConnector, CmError, CmEvent, CmListener, CmPending, CompletionQueue,
    Context, Error, PreparedQueuePair, ProtectionDomain, Rc,
};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Connections that a client has under way at most.
const MOST: usize = 8000;
/// The last connections may need several repetitions.
const DRAIN: Duration = Duration::from_secs(90);
/// After the last connection: its queue pair's number rests for a while (TIMEWAIT).
const REST: Duration = Duration::from_secs(20);
const GLANCE: Duration = Duration::from_millis(20);

/// What a process holds of the system and of the NIC.
#[derive(Clone, Debug, Default)]
struct Holdings {
    descriptors: usize,
    threads: usize,
    objects: rnic_nic::Objects,
}

fn entries(folder: &str) -> usize {
    std::fs::read_dir(folder).map_or(0, |entries| entries.count())
}

impl Holdings {
    fn now() -> Holdings {
        Holdings {
            descriptors: entries("/proc/self/fd"),
            threads: entries("/proc/self/task"),
            objects: rnic_nic::objects().unwrap_or_default(),
        }
    }

    /// Nothing is left over since `before`. Then the device may just have had a descriptor open for
    /// a moment.
    fn within(&self, before: &Holdings) -> bool {
        self.descriptors <= before.descriptors
            && self.threads <= before.threads
            && self.objects == before.objects
    }
}

/// What became of the connections that a process started or accepted.
#[derive(Debug, Default)]
struct Counts {
    started: u64,
    connected: u64,
    disconnected: u64,
    /// By what is said of it.
    failed: HashMap<String, u64>,
}

impl Counts {
    fn fail(&mut self, error: &Error) {
        let reason = match error {
            // The peer disconnected before its word that the connection is there had come: that was
            // lost.
            Error::Connect(CmError::Closed { .. }) => "closed early".to_owned(),
            Error::Connect(CmError::Rejected { reason, .. }) => format!("rejected, {reason}"),
            Error::Connect(CmError::Unreachable { .. }) => "unreachable".to_owned(),
            other => other.to_string(),
        };
        *self.failed.entry(reason).or_default() += 1;
    }

    fn failures(&self) -> u64 {
        self.failed.values().sum()
    }
}

/// What every process has for the whole time, and its connections.
struct Process {
    channel: CmChannel,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    pending: HashMap<u64, CmPending<Rc>>,
    connections: HashMap<u64, CmConnection<Rc>>,
    next: u64,
    counts: Counts,
    /// What it holds without connections.
    before: Holdings,
}

impl Process {
    fn new() -> Outcome<Process> {
        let context = Context::open()?;
        Ok(Process {
            channel: CmChannel::new()?,
            pd: context.alloc_pd()?,
            cq: context.create_cq(16).build()?,
            pending: HashMap::new(),
            connections: HashMap::new(),
            next: 1,
            counts: Counts::default(),
            before: Holdings::default(),
        })
    }

    fn queue_pair(&self) -> Outcome<PreparedQueuePair<Rc>> {
        let qp = self.pd.create_qp::<Rc>(&self.cq, &self.cq);
        Ok(qp.max_send_wr(1).max_recv_wr(1).build()?)
    }

    fn token(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn under_way(&self) -> usize {
        self.pending.len() + self.connections.len()
    }

    /// Ends an attempt; gives the token of the new connection.
    fn finish(&mut self, token: u64) -> Outcome<Option<u64>> {
        let pending = self.pending.remove(&token);
        let done = pending.and_then(|mut pending| pending.finish());
        match done.ok_or("an attempt ended that was not under way")? {
            Ok(connection) => {
                self.counts.connected += 1;
                self.connections.insert(token, connection);
                Ok(Some(token))
            }
            Err(error) => {
                self.counts.fail(&error);
                Ok(None)
            }
        }
    }

    fn disconnected(&mut self, token: u64) -> Outcome<()> {
        let connection = self.connections.remove(&token);
        connection.ok_or("a connection ended that was not there")?;
        self.counts.disconnected += 1;
        if self.counts.disconnected == 1 {
            // The socket that QP 1 sends from stays open for those that follow.
            self.before.descriptors += 1;
        }
        Ok(())
    }

    /// Waits until nothing is left but what was there at the beginning, and says what became of
    /// everything.
    fn report(&self, who: &str, seconds: f64) -> Outcome<()> {
        let before = &self.before;
        let deadline = Instant::now() + REST;
        let mut after = Holdings::now();
        while !after.within(before) && Instant::now() < deadline {
            // Time-wait ends by itself.
            std::thread::sleep(GLANCE);
            after = Holdings::now();
        }
        let Counts {
            started,
            connected,
            disconnected,
            failed,
        } = &self.counts;
        println!(
            "{who}: {started} started, {connected} connected, {disconnected} disconnected in {seconds:.1} s; failed: {failed:?}"
        );
        println!("{who}: at the beginning {before:?}");
        println!("{who}: at the end       {after:?}");
        let (under_way, failures) = (self.under_way(), self.counts.failures());
        if under_way > 0 || connected != disconnected || *started != connected + failures {
            return Err(format!("{who}: {under_way} connections never came to an end").into());
        }
        if !after.within(before) {
            return Err(format!("{who}: something is left over").into());
        }
        Ok(())
    }
}

fn serve(address: IpAddr) -> Outcome<()> {
    const LISTENER: u64 = 0;
    let mut process = Process::new()?;
    let listener = CmListener::<Rc>::builder((address, 0))?
        .channel(&process.channel, LISTENER)
        .backlog(1024)
        .listen()?;
    println!("listening on {}", listener.local_addr()?);
    // The end of the standard input: no client is left.
    let clients_left = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let watched = clients_left.clone();
    let watcher = std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        watched.store(false, std::sync::atomic::Ordering::Relaxed);
    });
    process.before = Holdings::now();
    let start = Instant::now();
    let mut last = Instant::now();
    let is_over = |process: &Process, last: Instant| {
        let done = process.under_way() == 0 || last.elapsed() > DRAIN;
        !clients_left.load(std::sync::atomic::Ordering::Relaxed) && done
    };
    while !is_over(&process, last) {
        let event = match process.channel.wait_event(Some(GLANCE)) {
            Err(Error::Timeout(_)) => continue,
            event => event?,
        };
        last = Instant::now();
        match event {
            CmEvent::Request(_) => {
                let request = listener.try_request()?.ok_or("the news of it came")?;
                let (token, qp) = (process.token(), process.queue_pair()?);
                process.counts.started += 1;
                match request.start(&process.channel, token, qp, &[]) {
                    Ok(pending) => drop(process.pending.insert(token, pending)),
                    // The client has given up meanwhile.
                    Err(error) => process.counts.fail(&error),
                }
            }
            CmEvent::Connected(token) | CmEvent::Failed(token) => {
                process.finish(token)?;
            }
            CmEvent::Disconnected(token) => process.disconnected(token)?,
            other => return Err(format!("unexpected: {other:?}").into()),
        }
    }
    watcher.join().map_err(|_| "the watcher panicked")?;
    process.before.threads -= 1;
    process.report("server", start.elapsed().as_secs_f64())
}

fn load(peer: SocketAddr, rate: f64, seconds: f64) -> Outcome<()> {
    let mut process = Process::new()?;
    let connector = CmConnector::new(peer)?;
    process.before = Holdings::now();
    let start = Instant::now();
    let mut last = None;
    let mut in_time = 0;
    loop {
        let elapsed = start.elapsed().as_secs_f64();
        let due = (elapsed.min(seconds) * rate) as u64;
        while process.counts.started < due && process.under_way() < MOST {
            let (token, qp) = (process.token(), process.queue_pair()?);
            process.counts.started += 1;
            match connector.start(&process.channel, token, qp) {
                Ok(pending) => drop(process.pending.insert(token, pending)),
                Err(error) => process.counts.fail(&error),
            }
        }
        if elapsed >= seconds {
            let end = *last.get_or_insert_with(|| {
                in_time = process.counts.disconnected;
                Instant::now()
            });
            if process.under_way() == 0 || end.elapsed() > DRAIN {
                break;
            }
        }
        let next = Duration::from_secs_f64(1.0 / rate).min(GLANCE);
        match process.channel.wait_event(Some(next)) {
            Err(Error::Timeout(_)) => {}
            Err(error) => return Err(error.into()),
            Ok(CmEvent::Connected(token) | CmEvent::Failed(token)) => {
                if let Some(token) = process.finish(token)? {
                    process.connections[&token].disconnect();
                }
            }
            Ok(CmEvent::Disconnected(token)) => process.disconnected(token)?,
            Ok(other) => return Err(format!("unexpected: {other:?}").into()),
        }
    }
    println!("rate {in_time} {}", process.counts.disconnected);
    process.report("client", start.elapsed().as_secs_f64())
}

/// Ends the processes that it started.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

struct Options {
    seconds: f64,
    rate: f64,
    loss: f64,
    clients: u32,
    address: IpAddr,
}

fn drive(options: &Options) -> Outcome<()> {
    let faults = |seed: u32| format!("drop={}%,seed={seed}", options.loss);
    let start = |args: &[String], seed| {
        let mut command = Command::new(std::env::current_exe()?);
        if options.loss > 0.0 {
            command.env("RNIC_FAULTS", faults(seed));
        }
        let child = command
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        child.map(|mut child| {
            let output = child.stdout.take().map(BufReader::new);
            (child, output)
        })
    };
    let address = options.address.to_string();
    let (server, output) = start(&["server".to_owned(), address], 0)?;
    let mut children = Children(vec![server]);
    let mut outputs = vec![output.ok_or("piped")?];
    let mut line = String::new();
    outputs[0].read_line(&mut line)?;
    let peer = line.trim().strip_prefix("listening on ");
    let peer = peer.ok_or("the server does not listen")?.to_owned();
    let rate = options.rate / f64::from(options.clients);
    for seed in 1..=options.clients {
        let (rate, seconds) = (rate.to_string(), options.seconds.to_string());
        let (child, output) = start(&["client".to_owned(), peer.clone(), rate, seconds], seed)?;
        children.0.push(child);
        outputs.push(output.ok_or("piped")?);
    }
    let mut bad = 0;
    let (mut in_time, mut ended) = (0, 0);
    // The server last: it ends when its input does, after all clients.
    for at in (1..children.0.len()).chain([0]) {
        drop(children.0[at].stdin.take());
        for line in outputs[at].by_ref().lines() {
            let line = line?;
            match line
                .strip_prefix("rate ")
                .and_then(|rest| rest.split_once(' '))
            {
                Some((soon, all)) => {
                    in_time += soon.parse::<u64>()?;
                    ended += all.parse::<u64>()?;
                }
                None => println!("{line}"),
            }
        }
        bad += u32::from(!children.0[at].wait()?.success());
    }
    println!(
        "{} clients in {} s under {} % loss: {ended} connections, {:.0} per second; {in_time} of them had ended by then, {:.0} per second",
        options.clients,
        options.seconds,
        options.loss,
        ended as f64 / options.seconds,
        in_time as f64 / options.seconds
    );
    match bad {
        0 => Ok(()),
        _ => Err(format!("{bad} processes failed").into()),
    }
}

fn parse(args: &[String]) -> Outcome<Options> {
    let mut options = Options {
        seconds: 60.0,
        rate: 1000.0,
        loss: 2.0,
        clients: 4,
        address: IpAddr::from([127, 0, 0, 1]),
    };
    for pair in args.chunks(2) {
        let [name, value] = pair else {
            return Err(format!("{} needs a value", pair[0]).into());
        };
        match name.as_str() {
            "--seconds" => options.seconds = value.parse()?,
            "--rate" => options.rate = value.parse()?,
            "--loss" => options.loss = value.parse()?,
            "--clients" => options.clients = value.parse()?,
            "--address" => options.address = value.parse()?,
            _ => return Err(format!("no option {name}").into()),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    rnic_sys::signal::end_on_broken_pipe();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let run = || match words[..] {
        ["server", address] => serve(address.parse()?),
        ["client", peer, rate, seconds] => load(peer.parse()?, rate.parse()?, seconds.parse()?),
        _ => drive(&parse(&args)?),
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cm_load: {error}");
            ExitCode::FAILURE
        }
    }
}
