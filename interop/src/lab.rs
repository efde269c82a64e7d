//! The two ends and the link between them.

use crate::drops;
use rnic_programs::Process;
use rnic_programs::devices::parse_gids;
use rnic_programs::meeting::listens;
use std::cell::Cell;
use std::fs::DirBuilder;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// One of the two implementations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The kernel's Soft-RoCE. It owns UDP port 4791 in the initial network namespace, and works in
    /// no other.
    Linux,
    /// Ours, in a network namespace.
    Rnic,
}

/// Which addresses the packets have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Which way round a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Who connects; the server is the other.
    pub client: End,
    /// What carries the packets.
    pub family: Family,
}

/// How long a command of the lab's own may take.
const SOON: Duration = Duration::from_secs(60);

/// The network namespace of rnic.
const NAMESPACE: &str = "rnic";

/// The folder that rnic's processes share.
const RUNTIME: &str = "/run/rnic-interop";

/// So many packets may wait for a processor behind the link; a thousand is what Linux keeps by
/// itself.
const QUEUE: &str = "100000";

/// What a link carries, in the words of tc-tbf(8). A real one has a rate, and holds senders back to
/// it: UC and UD have nothing else that paces them, and perftest waits for what was lost for ever.
/// An emulated receiver is to keep up with it. No batch is longer than `burst`, so none is cut into
/// packets before the link.
const RATE: &[&str] = &["tbf", "rate", "160mbit", "burst", "128kb", "limit", "128mb"];

/// A path MTU of 4096 needs this of the link, whose both ends have it.
const LINK_MTU: &str = "4300";

impl End {
    /// Both.
    pub const BOTH: [End; 2] = [End::Linux, End::Rnic];

    /// The other one.
    pub fn other(self) -> End {
        match self {
            End::Linux => End::Rnic,
            End::Rnic => End::Linux,
        }
    }

    /// The verbs device.
    pub fn device(self) -> &'static str {
        match self {
            End::Linux => "rxe1",
            End::Rnic => "rnic0",
        }
    }

    /// Its end of the link.
    pub fn interface(self) -> &'static str {
        match self {
            End::Linux => "to-rnic",
            End::Rnic => "to-linux",
        }
    }

    /// Its address on the link.
    pub fn address(self, family: Family) -> &'static str {
        match (self, family) {
            (End::Linux, Family::V4) => "10.78.0.1",
            (End::Linux, Family::V6) => "fd78::1",
            (End::Rnic, Family::V4) => "10.78.0.2",
            (End::Rnic, Family::V6) => "fd78::2",
        }
    }
}

impl Family {
    /// Both.
    pub const BOTH: [Family; 2] = [Family::V4, Family::V6];
}

impl Way {
    /// The end that is connected to.
    pub fn server(self) -> End {
        self.client.other()
    }
}

/// The two ends, joined.
#[derive(Debug)]
pub struct Lab {
    job: PathBuf,
    /// GID indices by end and family.
    gids: Vec<(End, Family, u32)>,
    /// Where rnic's packets go, if anywhere.
    capture: Option<PathBuf>,
    /// rnic's card lacks something.
    stripped: Cell<bool>,
}

impl Lab {
    /// Makes the link, Linux's device on one end of it, and the namespace of the other.
    ///
    /// # Panics
    /// When anything of it fails: nothing can be tried then.
    pub fn set_up(job: &Path) -> Lab {
        std::fs::write("/proc/sys/net/core/netdev_max_backlog", QUEUE).expect("we are root");
        let mut lab = Lab {
            job: job.to_owned(),
            gids: Vec::new(),
            capture: None,
            stripped: Cell::new(false),
        };
        let (linux, rnic) = (End::Linux.interface(), End::Rnic.interface());
        make_room();
        ip(&[
            "link", "add", linux, "mtu", LINK_MTU, "type", "veth", "peer", "name", rnic, "mtu",
            LINK_MTU, "netns", NAMESPACE,
        ]);
        for end in End::BOTH {
            let v4 = format!("{}/24", end.address(Family::V4));
            let v6 = format!("{}/64", end.address(Family::V6));
            furnish(end, end.interface(), &[&v4, &v6]);
            keep_order(end);
        }
        add_soft_roce(linux);
        for end in End::BOTH {
            for family in Family::BOTH {
                let address = end.address(family).parse().expect("an address");
                let index = find_gid(&lab.job, end, address);
                lab.gids.push((end, family, index));
            }
        }
        lab
    }

    /// A command that runs `program` at an end; arguments may be added.
    pub fn command(&self, end: End, program: &str) -> Command {
        self.command_with(end, &[], program)
    }

    /// Like [`command`](Self::command), with options of `rnic run`.
    pub fn command_with(&self, end: End, options: &[&str], program: &str) -> Command {
        let mut command = command(&self.job, end, options, program);
        if let (End::Rnic, Some(file)) = (end, &self.capture) {
            command.env("RNIC_PCAP", file);
        }
        command
    }

    /// A file of the job's folder.
    pub fn path(&self, name: &str) -> String {
        self.job.join(name).to_string_lossy().into_owned()
    }

    /// The index of the end's GID of that family.
    pub fn gid(&self, end: End, family: Family) -> String {
        self.gids
            .iter()
            .find(|gid| gid.0 == end && gid.1 == family)
            .map(|gid| gid.2.to_string())
            .expect("set_up found all")
    }

    /// Whether somebody listens at an end, in a port space of the connection manager.
    pub fn listens(&self, end: End, space: u16, port: u16) -> bool {
        match end {
            End::Rnic => listens(Path::new(RUNTIME), space, port),
            End::Linux => {
                let mut command = Command::new("rdma");
                command.args(["resource", "show", "cm_id"]);
                let finished = Process::spawn(command).wait(SOON);
                finished.stdout.lines().any(|line| {
                    let address = line
                        .split_whitespace()
                        .skip_while(|&word| word != "src-addr")
                        .nth(1);
                    line.contains("state LISTEN")
                        && address.is_some_and(|address| address.ends_with(&format!(":{port}")))
                })
            }
        }
    }

    /// Kills a program. `rnic run`, its parent, stays: it tells the peers, as a kernel does for
    /// Linux's device.
    pub fn kill(&self, end: End, process: &mut Process) {
        if end == End::Linux {
            return process.kill();
        }
        let pid = process.pid();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        for child in children.unwrap_or_default().split_whitespace() {
            run(&["kill", "-KILL", child]);
        }
    }

    /// Makes the network bad for what leaves these ends, in the words of tc-netem(8).
    pub fn disturb(&self, ends: &[End], netem: &[&str]) {
        queue(ends, &[&["netem"], netem].concat());
    }

    /// One of the counters of Linux's device.
    ///
    /// # Panics
    /// When it has none of that name.
    pub fn linux_counter(&self, name: &str) -> u64 {
        let device = End::Linux.device();
        let file = format!("/sys/class/infiniband/{device}/ports/1/hw_counters/{name}");
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
        text.trim().parse().expect("a number")
    }

    /// rnic's packets go to this file from now on.
    pub fn capture(&mut self, file: PathBuf) {
        self.capture = Some(file);
    }

    /// What was lost on the way so far, by Linux's own counters; the link's queue since
    /// [`calm`](Self::calm).
    pub fn drops(&self) -> String {
        let all = End::BOTH.map(|end| {
            let said = |program, args: &[&str]| {
                let mut command = bare(end, program);
                command.args(args);
                Process::spawn(command).wait(SOON).stdout
            };
            let counted = drops::Said {
                snmp: said("cat", &["/proc/net/snmp", "/proc/net/snmp6"]),
                softnet: said("cat", &["/proc/net/softnet_stat"]),
                queue: said("tc", &["-s", "qdisc", "show", "dev", end.interface()]),
                link: said(
                    "grep",
                    &[
                        "-r",
                        ".",
                        &format!("/sys/class/net/{}/statistics", end.interface()),
                    ],
                ),
            };
            format!("lost at {}: {}", end.interface(), counted.losses())
        });
        all.join("\n")
    }

    /// Makes rnic's end a card without checksum offload, from which the kernel takes no batches
    /// before Linux 6.11; and both ends' MTU one that frames of AF_XDP hold. [`calm`](Self::calm)
    /// ends it.
    pub fn strip(&self) {
        self.stripped.set(true);
        furnish_card("1500", "off");
    }

    /// Gives the link a rate.
    pub fn pace(&self) {
        queue(&End::BOTH, RATE);
    }

    /// Makes the network good again, and as fast as the machine.
    pub fn calm(&self) {
        queue(&End::BOTH, &["noqueue"]);
        if self.stripped.take() {
            furnish_card(LINK_MTU, "on");
        }
    }
}

/// Both ends' MTU, and whether rnic's card sums up what it sends.
fn furnish_card(mtu: &str, sums: &str) {
    for end in End::BOTH {
        at(end, &["ip", "link", "set", end.interface(), "mtu", mtu]);
    }
    let card = End::Rnic.interface();
    at(End::Rnic, &["ethtool", "-K", card, "tx", sums]);
}

/// Runs a command of Linux's at an end.
fn at(end: End, line: &[&str]) {
    let mut command = bare(end, line[0]);
    command.args(&line[1..]);
    Process::spawn(command).wait(SOON).expect_success();
}

/// What packets that leave these ends wait in, in the words of tc(8).
fn queue(ends: &[End], discipline: &[&str]) {
    for &end in ends {
        let replace = ["tc", "qdisc", "replace", "dev", end.interface(), "root"];
        at(end, &[&replace, discipline].concat());
    }
}

/// A command in the end's network namespace, without rnic.
fn bare(end: End, program: &str) -> Command {
    match end {
        End::Linux => Command::new(program),
        End::Rnic => {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", NAMESPACE, program]);
            command.env("RNIC_RUNTIME_DIR", RUNTIME);
            command
        }
    }
}

/// A command that runs `program` over the end's device, if that is rnic's with options of `rnic
/// run`; arguments may be added. `job` has the binaries.
pub fn command(job: &Path, end: End, options: &[&str], program: &str) -> Command {
    let mut command = bare(end, program);
    if end == End::Rnic {
        command = bare(end, &job.join("rnic").to_string_lossy());
        command.arg("run").args(options).args(["--", program]);
    }
    command
}

/// The index of the GID that stands for an address.
///
/// # Panics
/// When the end's device has none.
pub fn find_gid(job: &Path, end: End, address: IpAddr) -> u32 {
    match end {
        End::Rnic => {
            let mut command = bare(end, &job.join("rnic").to_string_lossy());
            command.args(["devices", "--json"]);
            let finished = Process::spawn(command).wait(SOON);
            finished.expect_success();
            let gids = parse_gids(&finished.stdout);
            let found = gids.iter().find(|gid| gid.address == address);
            found
                .unwrap_or_else(|| panic!("no GID for {address} in {gids:?}"))
                .index
        }
        End::Linux => {
            let wanted = match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => v6,
            };
            let folder = format!("/sys/class/infiniband/{}/ports/1/gids", end.device());
            (0..16)
                .find(|index| {
                    std::fs::read_to_string(format!("{folder}/{index}"))
                        .is_ok_and(|text| text.trim().parse() == Ok(wanted))
                })
                .unwrap_or_else(|| panic!("Soft-RoCE has no GID for {address}"))
        }
    }
}

/// The namespace of rnic, and the folder that its processes share.
///
/// # Panics
/// When they cannot be made.
pub fn make_room() {
    let mut folder = DirBuilder::new();
    folder
        .mode(0o700)
        .create(RUNTIME)
        .expect("/run is writable");
    ip(&["netns", "add", NAMESPACE]);
}

/// Has one processor take what came over the link, as one receive queue of a real NIC does. Else
/// each packet is taken by the processor of the thread that sent it, and those of a connection
/// overtake one another when its sender moves.
fn keep_order(end: End) {
    let file = format!("/sys/class/net/{}/queues/rx-0/rps_cpus", end.interface());
    at(end, &["sh", "-c", &format!("echo 1 > {file}")]);
}

/// Gives an interface, which is in the end's namespace, addresses, and takes it up.
///
/// # Panics
/// When it cannot be done.
pub fn furnish(end: End, interface: &str, addresses: &[&str]) {
    let at: &[&str] = match end {
        End::Linux => &[],
        End::Rnic => &["-n", NAMESPACE],
    };
    for address in addresses {
        // No waiting for duplicates; IPv4 does not know of it.
        let nodad: &[&str] = if address.contains(':') {
            &["nodad"]
        } else {
            &[]
        };
        ip(&[at, &["addr", "add", address, "dev", interface], nodad].concat());
    }
    ip(&[at, &["link", "set", interface, "up"]].concat());
    ip(&[at, &["link", "set", "lo", "up"]].concat());
}

/// Linux's device, on an interface.
///
/// # Panics
/// When it cannot be made.
pub fn add_soft_roce(interface: &str) {
    run(&[
        "rdma",
        "link",
        "add",
        End::Linux.device(),
        "type",
        "rxe",
        "netdev",
        interface,
    ]);
}

/// Moves an interface to rnic's namespace.
///
/// # Panics
/// When it cannot be done.
pub fn move_to_rnic(interface: &str) {
    ip(&["link", "set", interface, "netns", NAMESPACE]);
}

fn ip(args: &[&str]) {
    run(&[&["ip"], args].concat());
}

fn run(line: &[&str]) {
    at(End::Linux, line);
}
