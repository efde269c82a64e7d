//! Servers and clients that meet through the connection manager.

use crate::pair::Outcome;
use crate::place::{Place, RunOptions, User};
use crate::process::{GLANCE, Process};
use crate::trial::Trial;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// `RDMA_PS_TCP`, the port space of connections.
pub const PS_TCP: u16 = 0x0106;
/// `RDMA_PS_UDP`, that of datagrams.
pub const PS_UDP: u16 = 0x0111;
/// `RDMA_PS_IPOIB`, that of datagrams among IPoIB's.
pub const PS_IPOIB: u16 = 0x0002;
/// `RDMA_PS_IB`, that of any service.
pub const PS_IB: u16 = 0x013f;

/// Two places and the address at which programs in them meet. In the words of a command line,
/// `{server}` stands for the server's address, `{client}` for the client's, and `{port}` for the
/// port.
#[derive(Clone, Debug)]
pub struct Meeting {
    /// Where the server runs.
    pub server: Place,
    /// Where the client runs.
    pub client: Place,
    /// The server's address.
    pub server_address: String,
    /// The client's address.
    pub client_address: String,
    /// The port; every place is a network of its own, so that one number will do.
    pub port: u16,
    /// How the client knows that the server is ready.
    pub ready: Ready,
    /// Options of `rnic run`.
    pub options: RunOptions,
    /// How long the whole may take.
    pub time: Duration,
}

/// How one knows that a server can be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// It listens in a port space of the connection manager.
    Listens(u16),
    /// It listens on a TCP port.
    ListensByTcp,
    /// It has bound a UDP port: rsockets for datagrams meet over UDP.
    HasUdpPort,
    /// There is nobody to wait for.
    AtOnce,
}

/// On what kind of address two programs meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Both on 127.0.0.1.
    Loopback,
    /// Both on ::1.
    Loopback6,
    /// In two namespaces joined by veth, over IPv4.
    Veth,
    /// The same over IPv6.
    Veth6,
}

impl Meeting {
    /// In network namespaces made for it; `None`, said in words, where the machine cannot make
    /// them.
    pub fn on(trial: &Trial, path: Path, user: User) -> Option<Meeting> {
        Some(match path {
            Path::Loopback => Meeting::at(&trial.fresh(user)?, "127.0.0.1"),
            Path::Loopback6 => Meeting::at(&trial.fresh(user)?, "::1"),
            Path::Veth | Path::Veth6 => {
                let (left, right) = trial.linked(user, 1500)?;
                let (server, client) = match path {
                    Path::Veth => ("10.77.0.1", "10.77.0.2"),
                    _ => ("fd77::1", "fd77::2"),
                };
                Meeting::between((&left, server), (&right, client))
            }
        })
    }

    /// Both in one place, at one address of it.
    pub fn at(place: &Place, address: &str) -> Meeting {
        Meeting::between((place, address), (place, address))
    }

    /// In two places.
    pub fn between(server: (&Place, &str), client: (&Place, &str)) -> Meeting {
        Meeting {
            server: server.0.clone(),
            client: client.0.clone(),
            server_address: server.1.to_owned(),
            client_address: client.1.to_owned(),
            port: 7471,
            ready: Ready::Listens(PS_TCP),
            options: RunOptions::default(),
            time: Duration::from_secs(60),
        }
    }

    /// With another sign that the server is ready.
    pub fn ready(mut self, ready: Ready) -> Meeting {
        self.ready = ready;
        self
    }

    /// At another port.
    pub fn port(mut self, port: u16) -> Meeting {
        self.port = port;
        self
    }

    /// Starts a server and, as soon as it is ready, a client. Each is a program with its arguments.
    ///
    /// # Panics
    /// When the server does not get ready in time.
    pub fn start(&self, server: &[&str], client: &[&str]) -> (Process, Process) {
        let mut server = self.start_server(server);
        self.wait_until_ready(&mut server);
        (server, self.start_client(client))
    }

    /// Starts a server.
    pub fn start_server(&self, words: &[&str]) -> Process {
        self.start_in(&self.server, words)
    }

    /// Starts a client.
    pub fn start_client(&self, words: &[&str]) -> Process {
        self.start_in(&self.client, words)
    }

    fn start_in(&self, place: &Place, words: &[&str]) -> Process {
        let port = self.port.to_string();
        let words: Vec<String> = words
            .iter()
            .map(|word| {
                word.replace("{server}", &self.server_address)
                    .replace("{client}", &self.client_address)
                    .replace("{port}", &port)
            })
            .collect();
        Process::spawn(place.rnic_run(&self.options, &words[0], &words[1..]))
    }

    /// Waits for a server.
    ///
    /// # Panics
    /// When it does not get ready in time.
    pub fn wait_until_ready(&self, server: &mut Process) {
        let deadline = Instant::now() + self.time;
        while !self.is_ready(server) {
            assert!(
                !server.ended(),
                "ended before it was ready\n{}",
                server.output_after_end()
            );
            assert!(
                Instant::now() < deadline,
                "does not get ready ({:?}, port {})\n{}",
                self.ready,
                self.port,
                server.output()
            );
            std::thread::sleep(GLANCE);
        }
    }

    fn is_ready(&self, server: &Process) -> bool {
        match self.ready {
            Ready::AtOnce => true,
            Ready::ListensByTcp => server.listens(self.port),
            Ready::HasUdpPort => server.has_udp_port(self.port),
            Ready::Listens(space) => {
                let runtime = self.server.runtime();
                let runtime = runtime.expect("a place with a runtime folder of its own");
                listens(runtime, space, self.port)
            }
        }
    }

    /// Runs both to their ends.
    ///
    /// # Panics
    /// When either does not end in time.
    pub fn run(&self, server: &[&str], client: &[&str]) -> Outcome {
        let (server, client) = self.start(server, client);
        Outcome::of(server, client, self.time)
    }

    /// Runs a client to its end against a server that serves for ever. The server is killed then,
    /// and its `Outcome` has that status.
    ///
    /// # Panics
    /// When the client does not end in time, or the server ends before.
    pub fn visit(&self, server: &[&str], client: &[&str]) -> Outcome {
        let (mut server, mut client) = self.start(server, client);
        let began = Instant::now();
        while !client.ended() {
            assert!(
                !server.ended() && began.elapsed() < self.time,
                "the server ended, or the client does not\nserver: {}client: {}",
                server.output(),
                client.output()
            );
            std::thread::sleep(GLANCE);
        }
        let took = began.elapsed();
        assert!(!server.ended(), "ended by itself\n{}", server.output());
        server.kill();
        Outcome {
            server: server.wait(self.time),
            client: client.wait(self.time),
            took,
        }
    }
}

/// Whether somebody listens on a port, in any network namespace whose processes have this runtime
/// folder. Looked up in the port table (`crates/host/src/ports`), which nothing else can be asked:
/// a connection would use up a server, and a bind would be in its way.
pub fn listens(runtime: &std::path::Path, space: u16, port: u16) -> bool {
    const SLOT: usize = 32;
    const LISTENING: u8 = 8;
    let service = (u32::from(space) << 16 | u32::from(port)).to_ne_bytes();
    port_tables(runtime).iter().any(|table| {
        fs::read(table).is_ok_and(|bytes| {
            bytes
                .chunks_exact(SLOT)
                .any(|slot| slot[..4] == service && slot[26] & LISTENING != 0)
        })
    })
}

/// The port tables below a runtime folder, one for each network namespace.
fn port_tables(folder: &std::path::Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(port_tables(&path)),
            Ok(_) if path.file_name().is_some_and(|name| name == "ports") => found.push(path),
            _ => {}
        }
    }
    found
}
