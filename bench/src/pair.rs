//! A server and a client, each on its processor, from start to end.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;

/// Longer than anything here takes, on a busy machine too.
const HANG_TIMEOUT: Duration = Duration::from_secs(60);
/// How often an end is looked for: seldom enough not to be in the way.
const GLANCE: Duration = Duration::from_millis(20);

/// A program that is running, and killed with whatever it started when dropped.
pub struct Running {
    child: Child,
    over: bool,
}

impl Running {
    pub fn start(mut command: Command, input: Stdio) -> Result<Running> {
        command
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.process_group(0);
        rnic_sys::child::die_with_parent(&mut command);
        let child = command
            .spawn()
            .map_err(|error| format!("{}: {error}", command.get_program().display()))?;
        Ok(Running { child, over: false })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn ended(&mut self) -> Result<bool> {
        self.over = self.over || self.child.try_wait()?.is_some();
        Ok(self.over)
    }

    /// Waits until it listens on the TCP port.
    pub fn wait_for_listener(&mut self, port: u16) -> Result<()> {
        let deadline = Instant::now() + HANG_TIMEOUT;
        // As in proc_net_tcp(5): number, local address:port, remote address:port, state (0A is
        // LISTEN).
        let wanted = format!(":{port:04X}");
        let pid = self.child.id();
        let listens = |table: &str| {
            let path = format!("/proc/{pid}/net/{table}");
            std::fs::read_to_string(path)
                .unwrap_or_default()
                .lines()
                .any(|line| {
                    let fields: Vec<&str> = line.split_whitespace().collect();
                    fields.len() > 3 && fields[1].ends_with(&wanted) && fields[3] == "0A"
                })
        };
        while !["tcp", "tcp6"].iter().any(|table| listens(table)) {
            if self.child.try_wait()?.is_some() {
                self.over = true;
                return Err("it ended before it listened".into());
            }
            if Instant::now() > deadline {
                return Err(format!("it does not listen on TCP port {port}").into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Waits until something is true of it that it does by itself.
    pub fn wait_until(&mut self, ready: impl Fn() -> bool) -> Result<()> {
        let deadline = Instant::now() + HANG_TIMEOUT;
        while !ready() {
            if self.ended()? || Instant::now() > deadline {
                let output = self.output(Instant::now())?;
                return Err(format!("it is not ready: {}", output.complaint()).into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// What it printed, once it has ended; killed when it does not end.
    pub fn output(&mut self, deadline: Instant) -> Result<Output> {
        while !self.ended()? && Instant::now() < deadline {
            std::thread::sleep(GLANCE);
        }
        let timely = self.ended()?;
        self.kill();
        let mut text = [String::new(), String::new()];
        // Not more than a pipe holds is printed by anything that is run here.
        if let Some(stdout) = &mut self.child.stdout {
            stdout.read_to_string(&mut text[0])?;
        }
        if let Some(stderr) = &mut self.child.stderr {
            stderr.read_to_string(&mut text[1])?;
        }
        let [stdout, stderr] = text;
        Ok(Output {
            ok: timely && self.child.wait()?.success(),
            timely,
            stdout,
            stderr,
        })
    }

    fn kill(&mut self) {
        if !self.over {
            rnic_sys::child::kill_group(self.child.id());
            let _ = self.child.wait();
            self.over = true;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

pub struct Output {
    pub ok: bool,
    timely: bool,
    pub stdout: String,
    stderr: String,
}

impl Output {
    /// The last words, for a message.
    pub fn complaint(&self) -> String {
        let text = [&self.stderr, &self.stdout];
        let last = text.iter().flat_map(|text| {
            text.lines()
                .rev()
                .find(|line| !line.trim().is_empty() && !line.starts_with("---"))
        });
        let why = last.map(|line| line.trim().to_owned()).next();
        let why = why.unwrap_or_else(|| "it said nothing".into());
        match self.timely {
            true => why,
            false => format!("it did not end in time: {why}"),
        }
    }
}

/// The client's output, when both went well; the server may be one that has to be ended.
pub fn finish(mut server: Running, mut client: Running, endless: bool) -> Result<String> {
    let deadline = Instant::now() + HANG_TIMEOUT;
    let client = client.output(deadline)?;
    let grace = Duration::from_secs(if client.ok { 10 } else { 1 });
    let now = Instant::now();
    let server = server.output(if endless { now } else { now + grace })?;
    if !client.ok {
        return Err(format!(
            "client: {}; server: {}",
            client.complaint(),
            server.complaint()
        )
        .into());
    }
    if !server.ok && !endless {
        return Err(format!("server: {}", server.complaint()).into());
    }
    Ok(client.stdout)
}

/// A server that listens on the port, and then its client.
pub fn meet(server: Command, client: Command, port: u16, endless: bool) -> Result<String> {
    let mut server = Running::start(server, Stdio::null())?;
    if let Err(error) = server.wait_for_listener(port) {
        let output = server.output(Instant::now())?;
        return Err(format!("server: {error}: {}", output.complaint()).into());
    }
    let client = Running::start(client, Stdio::null())?;
    finish(server, client, endless)
}

/// Two processes with a socket between them as standard input.
pub fn connected(follow: Command, lead: Command) -> Result<String> {
    let (a, b) = UnixStream::pair()?;
    let server = Running::start(follow, OwnedFd::from(a).into())?;
    let client = Running::start(lead, OwnedFd::from(b).into())?;
    finish(server, client, false)
}
