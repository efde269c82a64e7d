//! Running programs, with their output collected as it comes.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// How often something that cannot be waited for is looked at.
pub const GLANCE: Duration = Duration::from_millis(5);

#[derive(Debug, Default)]
struct Text {
    stdout: String,
    stderr: String,
}

#[derive(Debug, Default)]
struct Collected {
    text: Mutex<Text>,
    grown: Condvar,
}

impl Collected {
    fn lock(&self) -> MutexGuard<'_, Text> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running program, leader of its own process group. Dropping it kills the whole group.
#[derive(Debug)]
pub struct Process {
    line: String,
    child: Child,
    stdin: Option<ChildStdin>,
    collected: Arc<Collected>,
    readers: Vec<JoinHandle<()>>,
    status: Option<ExitStatus>,
}

/// A program that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The command line, as one would type it.
    pub line: String,
    /// How it ended.
    pub status: ExitStatus,
    /// All that it printed.
    pub stdout: String,
    /// All that it complained about.
    pub stderr: String,
}

/// The command line as one would type it.
fn typed(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

impl Process {
    /// Starts a command with its input on a pipe that stays open until
    /// [`close_stdin`](Self::close_stdin) or the end.
    ///
    /// # Panics
    /// When it cannot be started at all.
    pub fn spawn(mut command: Command) -> Process {
        let line = typed(&command);
        command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{line}: {error}"));
        let collected = Arc::new(Collected::default());
        let stdout = child.stdout.take().expect("asked for");
        let stderr = child.stderr.take().expect("asked for");
        let readers = vec![
            collect(stdout, Arc::clone(&collected), |text| &mut text.stdout),
            collect(stderr, Arc::clone(&collected), |text| &mut text.stderr),
        ];
        let stdin = child.stdin.take();
        Process {
            line,
            child,
            stdin,
            collected,
            readers,
            status: None,
        }
    }

    /// The id of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended, and badly.
    pub fn failed(&mut self) -> bool {
        self.ended() && self.status.is_some_and(|status| !status.success())
    }

    /// Whether it has ended.
    pub fn ended(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().expect("own child");
        }
        self.status.is_some()
    }

    /// Waits for its end asleep, so that nothing takes a processor from it meanwhile; false: it is
    /// still running after `time`.
    pub fn ends_within(&mut self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        while !self.ended() {
            if Instant::now() >= deadline {
                return false;
            }
            sleep_until_one_ends(&[self], deadline);
        }
        true
    }

    /// Sends it a line.
    ///
    /// # Panics
    /// When it does not listen any more.
    pub fn tell(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("standard input is open");
        if let Err(error) = writeln!(stdin, "{line}").and_then(|()| stdin.flush()) {
            panic!(
                "{} does not take {line:?}: {error}\n{}",
                self.line,
                self.output()
            );
        }
    }

    /// Closes its standard input.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// What it has printed so far.
    pub fn stdout(&self) -> String {
        self.collected.lock().stdout.clone()
    }

    /// Everything so far, for messages.
    pub fn output(&self) -> String {
        let text = self.collected.lock();
        let how = match self.status {
            Some(status) => how_it_ended(status),
            None => "still running".to_owned(),
        };
        describe(&self.line, &how, &text.stdout, &text.stderr)
    }

    /// Waits until `found` finds something in what it printed to standard output so far, and gives
    /// that.
    ///
    /// # Panics
    /// When the time is over, or the program ended without printing it.
    pub fn wait_for<T>(
        &mut self,
        what: &str,
        time: Duration,
        found: impl Fn(&str) -> Option<T>,
    ) -> T {
        self.wait_for_text(what, time, |text| found(&text.stdout))
    }

    /// The same of standard error.
    ///
    /// # Panics
    /// As [`Process::wait_for`].
    pub fn wait_for_words<T>(
        &mut self,
        what: &str,
        time: Duration,
        found: impl Fn(&str) -> Option<T>,
    ) -> T {
        self.wait_for_text(what, time, |text| found(&text.stderr))
    }

    fn wait_for_text<T>(
        &mut self,
        what: &str,
        time: Duration,
        found: impl Fn(&Text) -> Option<T>,
    ) -> T {
        let deadline = Instant::now() + time;
        loop {
            let ended = self.ended();
            if ended {
                self.join_readers();
            }
            let text = self.collected.lock();
            if let Some(result) = found(&text) {
                return result;
            }
            if ended || Instant::now() >= deadline {
                let why = if ended {
                    "ended before it printed"
                } else {
                    "did not print in time"
                };
                let all = describe(&self.line, why, &text.stdout, &text.stderr);
                panic!("{why}: {what}\n{all}");
            }
            // Woken by output; the end of the program is noticed at the next glance.
            drop(
                self.collected
                    .grown
                    .wait_timeout(text, Duration::from_millis(50)),
            );
        }
    }

    /// Waits until it listens on a TCP port, without connecting.
    ///
    /// # Panics
    /// When the time is over, or the program ended.
    pub fn wait_for_listener(&mut self, port: u16, time: Duration) {
        self.try_listener(port, time)
            .unwrap_or_else(|why| panic!("{why}"));
    }

    /// Waits until somebody listens on the TCP port in its network namespace. `Err`: it ended
    /// before, or did not for so long.
    pub fn try_listener(&mut self, port: u16, time: Duration) -> Result<(), String> {
        let deadline = Instant::now() + time;
        while !self.listens(port) {
            if self.ended() {
                let output = self.output_after_end();
                return Err(format!(
                    "ended before it listened on TCP port {port}\n{output}"
                ));
            }
            if Instant::now() >= deadline {
                let output = self.output();
                return Err(format!("does not listen on TCP port {port}\n{output}"));
            }
            std::thread::sleep(GLANCE);
        }
        Ok(())
    }

    /// Whether somebody listens on the TCP port in its network namespace.
    pub fn listens(&self, port: u16) -> bool {
        // LISTEN
        has_socket(self.pid(), &["tcp", "tcp6"], port, "0A")
    }

    /// Whether somebody has bound the UDP port in its network namespace.
    pub fn has_udp_port(&self, port: u16) -> bool {
        // Not connected.
        has_socket(self.pid(), &["udp", "udp6"], port, "07")
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it is still running after `time`.
    pub fn wait(mut self, time: Duration) -> Finished {
        assert!(
            self.ends_within(time),
            "still running after {time:?}\n{}",
            self.output()
        );
        // What it started may outlive it and hold the pipes open.
        self.kill_group(libc::SIGKILL);
        self.join_readers();
        let text = self.collected.lock();
        Finished {
            line: self.line.clone(),
            status: self.status.expect("it ended"),
            stdout: text.stdout.clone(),
            stderr: text.stderr.clone(),
        }
    }

    /// Kills it, and whatever it started, the hard way; no handler of theirs runs.
    pub fn kill(&mut self) {
        self.kill_group(libc::SIGKILL);
    }

    /// What Ctrl-C at a terminal does to it and to what it started.
    pub fn interrupt(&mut self) {
        self.kill_group(libc::SIGINT);
    }

    /// Everything that a program that has ended printed, for messages.
    pub fn output_after_end(&mut self) -> String {
        self.join_readers();
        self.output()
    }

    fn join_readers(&mut self) {
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
    }

    fn kill_group(&self, signal: i32) {
        if let Ok(group) = i32::try_from(self.child.id()) {
            // SAFETY: killpg takes no pointers. The group is ours: spawn made the child its leader.
            unsafe { libc::killpg(group, signal) };
        }
    }
}

/// Sleeps until one ends of which that is not [known](Process::ended) yet, or until `deadline`;
/// perhaps not so long.
pub fn sleep_until_one_ends(processes: &[&Process], deadline: Instant) {
    let running = processes.iter().filter(|process| process.status.is_none());
    let ends: Vec<_> = running
        .map(|process| {
            let end = pidfd_open(Pid::from_child(&process.child), PidfdFlags::empty());
            end.expect("own child, whose status nobody has taken")
        })
        .collect();
    let mut ends: Vec<_> = ends
        .iter()
        .map(|end| PollFd::new(end, PollFlags::IN))
        .collect();
    let left = deadline.saturating_duration_since(Instant::now());
    // Too long a time is none. Whatever it says, they are asked again.
    let left = Timespec::try_from(left).ok();
    let _ = poll(&mut ends, left.as_ref());
}

impl Drop for Process {
    fn drop(&mut self) {
        // Once it is reaped, its number may be somebody else's.
        if self.status.is_none() {
            self.kill_group(libc::SIGKILL);
            let _ = self.child.wait();
        }
        self.join_readers();
    }
}

impl Finished {
    /// Whether it ended with status 0.
    pub fn ok(&self) -> bool {
        self.status.success()
    }

    /// # Panics
    /// When it failed.
    pub fn expect_success(&self) {
        assert!(self.ok(), "failed\n{}", self.describe());
    }

    /// Command, ending and output, for messages.
    pub fn describe(&self) -> String {
        let how = how_it_ended(self.status);
        describe(&self.line, &how, &self.stdout, &self.stderr)
    }
}

fn how_it_ended(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("ended by signal {signal}"),
        None => format!("exit status {}", status.code().unwrap_or(-1)),
    }
}

fn describe(line: &str, how: &str, stdout: &str, stderr: &str) -> String {
    format!(
        "$ {line}\n[{how}]\n{}{}",
        indented("out", stdout),
        indented("err", stderr)
    )
}

/// The last lines of a text, each with a label.
fn indented(label: &str, text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let skip = lines.len().saturating_sub(60);
    lines[skip..]
        .iter()
        .map(|line| format!("  {label}: {line}\n"))
        .collect()
}

fn collect(
    stream: impl Read + Send + 'static,
    collected: Arc<Collected>,
    part: fn(&mut Text) -> &mut String,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            match reader.read_until(b'\n', &mut bytes) {
                Ok(0) | Err(_) => break,
                Ok(_) => part(&mut collected.lock()).push_str(&String::from_utf8_lossy(&bytes)),
            }
            collected.grown.notify_all();
        }
        collected.grown.notify_all();
    })
}

/// Whether there is a socket in such a state on the port, in the network namespace of a process.
fn has_socket(pid: u32, tables: &[&str], port: u16, state: &str) -> bool {
    has_socket_that(pid, tables, port, |has| has == state)
}

/// Whether any TCP socket of this process's network namespace has the port.
pub fn is_in_use(port: u16) -> bool {
    has_socket_that(std::process::id(), &["tcp", "tcp6"], port, |_| true)
}

fn has_socket_that(pid: u32, tables: &[&str], port: u16, state: impl Fn(&str) -> bool) -> bool {
    // Fields of a line: number, local address:port, remote address:port, state.
    let wanted = format!(":{port:04X}");
    tables.iter().any(|table| {
        std::fs::read_to_string(format!("/proc/{pid}/net/{table}"))
            .unwrap_or_default()
            .lines()
            .any(|line| {
                let fields: Vec<&str> = line.split_whitespace().collect();
                fields.len() > 3 && fields[1].ends_with(&wanted) && state(fields[3])
            })
    })
}
