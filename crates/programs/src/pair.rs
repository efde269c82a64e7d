//! A server and a client of one program.

use crate::place::{self, Place, RunOptions};
use crate::process::{Finished, Process, sleep_until_one_ends};
use std::time::{Duration, Instant};

/// How long a side has when the other one has ended: well, and else.
const GRACE: [Duration; 2] = [Duration::from_secs(20), Duration::from_secs(5)];

/// How to run a server and a client of one program under `rnic run`.
///
/// The program has to be one of perftest or rdma-core's examples, or behave like them: `-p PORT`
/// tells the TCP port on which they meet, the server gets no host, the client gets one as last
/// argument.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Where the server runs.
    pub server: Place,
    /// Where the client runs.
    pub client: Place,
    /// How the client reaches the server by TCP.
    pub host: String,
    /// The option that selects the GID (`-x` in perftest, `-g` in rdma-core's examples), with the
    /// index on the server's side and on the client's.
    pub gid: Option<(&'static str, u32, u32)>,
    /// Options of `rnic run` on both sides; see also [`client_options`](Self::client_options).
    pub server_options: RunOptions,
    /// Options of `rnic run` for the client.
    pub client_options: RunOptions,
    /// How long the whole may take.
    pub time: Duration,
}

/// How a server and a client ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The server's end.
    pub server: Finished,
    /// The client's end.
    pub client: Finished,
    /// From the client's start to the end of both.
    pub took: Duration,
}

impl Pair {
    /// Both in one place, meeting over TCP on 127.0.0.1.
    pub fn at(place: &Place) -> Pair {
        Pair::between(place, place, "127.0.0.1")
    }

    /// In two places; the client reaches the server at `host`.
    pub fn between(server: &Place, client: &Place, host: &str) -> Pair {
        Pair {
            server: server.clone(),
            client: client.clone(),
            host: host.to_owned(),
            gid: None,
            server_options: RunOptions::default(),
            client_options: RunOptions::default(),
            time: Duration::from_secs(90),
        }
    }

    /// Selects the GID of one address on both sides, with perftest's option.
    pub fn gid_x(self, server: &str, client: &str) -> Pair {
        self.gid_option("-x", server, client)
    }

    /// Selects the GID of one address on both sides, with the option of rdma-core's examples.
    pub fn gid_g(self, server: &str, client: &str) -> Pair {
        self.gid_option("-g", server, client)
    }

    fn gid_option(mut self, option: &'static str, server: &str, client: &str) -> Pair {
        self.gid = Some((
            option,
            self.server.gid(server).index,
            self.client.gid(client).index,
        ));
        self
    }

    /// The same `rnic run --faults SPEC` on both sides.
    pub fn faults(mut self, spec: &str) -> Pair {
        self.server_options.faults = Some(spec.to_owned());
        self.client_options.faults = Some(spec.to_owned());
        self
    }

    /// With another time limit.
    pub fn within(mut self, time: Duration) -> Pair {
        self.time = time;
        self
    }

    /// Starts both: the client as soon as the server listens.
    ///
    /// # Panics
    /// When the server does not get that far in time.
    pub fn start(&self, program: &str, args: &[&str]) -> (Process, Process) {
        let port = place::free_port();
        let mut server = Process::spawn(self.command(true, program, args, port));
        server.wait_for_listener(port, self.time);
        let client = Process::spawn(self.command(false, program, args, port));
        (server, client)
    }

    /// Runs both to their end.
    ///
    /// # Panics
    /// When either is still running when the time is over; the message has what both printed.
    pub fn run(&self, program: &str, args: &[&str]) -> Outcome {
        self.run_some(1, program, args)
    }

    /// The same, `runs` times at most until both end.
    ///
    /// # Panics
    /// When either was still running each time.
    pub fn run_some(&self, runs: usize, program: &str, args: &[&str]) -> Outcome {
        let mut last = String::new();
        for _ in 0..runs {
            let (server, client) = self.start(program, args);
            match Outcome::try_of(server, client, self.time, GRACE) {
                Ok(outcome) => return outcome,
                Err(why) => last = why,
            }
        }
        panic!("{last}");
    }

    fn command(
        &self,
        server: bool,
        program: &str,
        args: &[&str],
        port: u16,
    ) -> std::process::Command {
        let (place, options) = if server {
            (&self.server, &self.server_options)
        } else {
            (&self.client, &self.client_options)
        };
        let mut line: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        if let Some((option, at_server, at_client)) = self.gid {
            line.push(option.to_owned());
            line.push(if server { at_server } else { at_client }.to_string());
        }
        line.extend(["-p".to_owned(), port.to_string()]);
        if !server {
            line.push(self.host.clone());
        }
        place.rnic_run(options, program, line)
    }
}

impl Outcome {
    /// Waits for the ends of a server and a client that were just started.
    ///
    /// # Panics
    /// When either is still running after `time`; the message has what both printed.
    pub fn of(server: Process, client: Process, time: Duration) -> Outcome {
        Outcome::try_of(server, client, time, GRACE).unwrap_or_else(|why| panic!("{why}"))
    }

    /// The same. `grace`: a side that ended may leave the other waiting for ever, so that one has
    /// only so long then; less, if the first one failed.
    ///
    /// # Errors
    /// What both printed, when either was still running after `time`. Neither is any more.
    pub fn try_of(
        mut server: Process,
        mut client: Process,
        time: Duration,
        [grace, after_failure]: [Duration; 2],
    ) -> Result<Outcome, String> {
        let began = Instant::now();
        let mut deadline = began + time;
        let mut hurried = false;
        loop {
            match (server.ended(), client.ended()) {
                (true, true) => break,
                (false, false) => {}
                _ if !hurried => {
                    hurried = true;
                    let failed = server.failed() || client.failed();
                    let grace = if failed { after_failure } else { grace };
                    deadline = deadline.min(Instant::now() + grace);
                }
                _ => {}
            }
            if Instant::now() >= deadline {
                return Err(format!(
                    "not finished after {:?}\nserver: {}client: {}",
                    began.elapsed(),
                    server.output(),
                    client.output()
                ));
            }
            sleep_until_one_ends(&[&server, &client], deadline);
        }
        let took = began.elapsed();
        let time = Duration::from_secs(10);
        Ok(Outcome {
            server: server.wait(time),
            client: client.wait(time),
            took,
        })
    }

    /// # Panics
    /// When either side failed.
    pub fn expect_success(&self) -> &Outcome {
        assert!(
            self.server.ok() && self.client.ok(),
            "failed\n{}",
            self.describe()
        );
        self
    }

    /// Both sides, for messages.
    pub fn describe(&self) -> String {
        format!(
            "server: {}client: {}",
            self.server.describe(),
            self.client.describe()
        )
    }
}
