//! Network namespaces that vanish by themselves.
//!
//! A namespace lives as long as a process is in it. Each [`Netns`] holds one process in its
//! namespace, a `cat` that ends when its standard input does: when the handle is dropped, or when
//! the tests die in any way, the kernel closes the pipe, the process ends, and the namespace goes
//! with its interfaces. No name, no mount, nothing to clean up.
//!
//! As root this needs nothing more; otherwise the namespace comes with a user namespace in which
//! the user is root.

use crate::skip;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A network namespace, with its loopback interface up. Clones share it.
#[derive(Clone, Debug)]
pub struct Netns {
    holder: Arc<Holder>,
}

/// The process that keeps the namespace alive.
#[derive(Debug)]
struct Holder {
    child: Child,
    stdin: Option<ChildStdin>,
    /// Whether the namespace lies in a user namespace of its own.
    in_userns: bool,
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

impl Netns {
    /// The end of a [link](Netns::link).
    pub const INTERFACE: &'static str = "rn0";

    /// Makes a namespace. Err says why this machine cannot.
    pub fn new() -> Result<Netns, String> {
        for program in ["unshare", "nsenter", "ip", "cat"] {
            if skip::find_program(program).is_none() {
                return Err(format!("{program} is not installed"));
            }
        }
        let mut command = Command::new("unshare");
        let in_userns = !skip::is_root();
        command.arg(if in_userns { "-Urn" } else { "-n" });
        Netns::hold(command, in_userns)
    }

    /// Another namespace that can be linked with this one.
    pub fn sibling(&self) -> Result<Netns, String> {
        let mut command = self.enter("unshare");
        command.arg("-n");
        Netns::hold(command, self.holder.in_userns)
    }

    fn hold(mut command: Command, in_userns: bool) -> Result<Netns, String> {
        let mut child = command
            .arg("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut stdin = child.stdin.take().expect("asked for");
        // A byte that comes back tells that `cat` runs, so the namespace is there.
        let mut byte = [0];
        let answered = stdin.write_all(b"?").is_ok()
            && child
                .stdout
                .as_mut()
                .expect("asked for")
                .read_exact(&mut byte)
                .is_ok();
        if !answered {
            drop(stdin);
            let mut why = String::new();
            let _ = child
                .stderr
                .take()
                .expect("asked for")
                .read_to_string(&mut why);
            let _ = child.wait();
            return Err(why.trim().to_owned());
        }
        let netns = Netns {
            holder: Arc::new(Holder {
                child,
                stdin: Some(stdin),
                in_userns,
            }),
        };
        netns.ip("link set lo up");
        Ok(netns)
    }

    /// The id of a process in the namespace.
    pub fn pid(&self) -> u32 {
        self.holder.child.id()
    }

    /// Whether programs in it may take on other users: not in a user namespace that maps only one.
    pub fn in_userns(&self) -> bool {
        self.holder.in_userns
    }

    /// A command that runs `program` in the namespace; arguments may be added.
    pub fn enter(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.pid().to_string(), "--net"]);
        if self.holder.in_userns {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.arg("--").arg(program);
        command
    }

    /// Runs `ip ARGS` in the namespace.
    ///
    /// # Panics
    /// When that fails.
    pub fn ip(&self, args: &str) {
        self.ip_says(args);
    }

    /// Runs `ip ARGS` in the namespace and gives what it prints.
    ///
    /// # Panics
    /// When that fails.
    fn ip_says(&self, args: &str) -> String {
        let output = self
            .enter("ip")
            .args(args.split_whitespace())
            .output()
            .expect("nsenter is installed");
        assert!(
            output.status.success(),
            "ip {args}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Waits until the kernel has taken note that `rn0` has a carrier (it may take its time, and
    /// sends nothing over IPv6 before) and that its addresses are its own.
    fn wait_for_carrier(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.ip_says("-o link show dev rn0").contains("state UP")
            || !self.ip_says("-6 -o addr show dev rn0 tentative").is_empty()
        {
            assert!(Instant::now() < deadline, "rn0 does not come up");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The link-local address of `rn0` need not be asked for. Where that cannot be said, it is
    /// waited for.
    fn expect_no_duplicates(&self) {
        let say = "echo 0 > /proc/sys/net/ipv6/conf/rn0/accept_dad";
        let mut shell = self.enter("sh");
        let _ = shell.args(["-c", say]).stderr(Stdio::null()).status();
    }

    /// What arrives at `rn0` stays in order, as on a wire. By itself a veth hands a packet to the
    /// core that sent it: of a sender that moved to another core meanwhile, or whose queue another
    /// core drains, later packets overtake earlier ones when the machine is loaded, and UC loses a
    /// message by it. One core for all (RPS) prevents that, where it may be set.
    fn keep_order(&self) {
        let say = "mount -t sysfs none /sys && echo 1 > /sys/class/net/rn0/queues/rx-0/rps_cpus";
        let mut shell = self.enter("unshare");
        let shell = shell.args(["--mount", "sh", "-c", say]);
        let _ = shell.stderr(Stdio::null()).status();
    }

    /// Gives `rn0` a rate, in the words of tc-tbf(8). Err says why this machine cannot.
    pub fn pace(&self, rate: &str) -> Result<(), String> {
        let words = "qdisc replace dev rn0 root tbf limit 100mb burst 128kb rate";
        let mut tc = self.enter("tc");
        tc.args(words.split(' ')).arg(rate);
        let output = tc.output().map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }

    /// Joins both namespaces by a veth pair named `rn0` on either side; see
    /// [`Trial::linked`](crate::Trial::linked).
    pub fn link(&self, other: &Netns, mtu: u32) {
        self.ip(&format!(
            "link add rn0 mtu {mtu} type veth peer name rn0 mtu {mtu} netns {}",
            other.pid()
        ));
        for (netns, last) in [(self, 1), (other, 2)] {
            netns.ip(&format!("addr add 10.77.0.{last}/24 dev rn0"));
            // Without duplicate address detection addresses are usable at once, and not after two
            // seconds.
            netns.ip(&format!("addr add fd77::{last}/64 dev rn0 nodad"));
            netns.expect_no_duplicates();
            netns.keep_order();
            netns.ip("link set rn0 up");
        }
        for netns in [self, other] {
            netns.wait_for_carrier();
        }
    }
}
