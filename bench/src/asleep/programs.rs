//! Whole programs. Those that are not of this machine's packages are where `bench/programs` puts
//! them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::small::compiled;
use super::{MEDIAN, Meter, Over, P99, PROCESSOR, after, ends, milliseconds};
use crate::pair::{self, Running};
use crate::place::{End, Ends};
use crate::setting::{Figure, Setting, Unit, needs};
use crate::{Result, stats, tables};
use rnic_programs::place::free_port;

/// Longer than anything here takes when it does not hang.
const HANG_TIMEOUT: Duration = Duration::from_secs(8);

/// A load of valkey-benchmark.
#[derive(Clone, Debug)]
pub struct Valkey {
    pub test: &'static str,
    pub bytes: u32,
    pub pipeline: u32,
    pub clients: u32,
    /// Of a full run.
    pub requests: u32,
}

/// An MPI_Allreduce of four ranks.
#[derive(Clone, Debug)]
pub struct Mpi {
    pub bytes: u32,
    /// By Open MPI's own TCP instead of UCX.
    pub own_tcp: bool,
}

impl Valkey {
    /// Over RDMA its server falls asleep with replies unsent, whatever the NIC, and goes on ten
    /// times a second: beforeSleep looks for such connections before it writes replies, of which it
    /// writes 64 KiB to a client at once. What other clients ask wakes it.
    pub fn stalls(&self) -> bool {
        self.test == "get" && self.clients == 1 && self.bytes * self.pipeline > 2 * 65536
    }
}

pub fn has(setting: &Setting, file: &str) -> Result<()> {
    let path = setting.programs.join(file);
    match path.is_file() {
        true => Ok(()),
        false => Err(format!("{file} (bench/programs gets it)").into()),
    }
}

pub fn has_mpi() -> Result<()> {
    needs("mpirun.openmpi", "openmpi-bin")?;
    needs("mpicc.openmpi", "libopenmpi-dev")
}

/// The stock library that carries TCP programs over rsockets.
fn preload() -> Option<PathBuf> {
    let folders = [format!("{}-linux-gnu", std::env::consts::ARCH), ".".into()];
    let paths = folders.iter().map(|folder| {
        Path::new("/usr/lib")
            .join(folder)
            .join("rsocket/librspreload.so")
    });
    paths.into_iter().find(|path| path.is_file())
}

pub fn has_curl() -> Result<()> {
    needs("curl", "curl")?;
    needs("gcc", "gcc")?;
    preload()
        .map(drop)
        .ok_or_else(|| "librspreload.so (apt-get install librdmacm1)".into())
}

/// What a client says, and what it and the server cost meanwhile, in seconds.
fn metered(server: &Running, client: Command) -> Result<(String, f64)> {
    metered_for(server, client, HANG_TIMEOUT)
}

/// The same of a client that may take longer.
pub fn metered_for(server: &Running, client: Command, most: Duration) -> Result<(String, f64)> {
    let meter = Meter::start(server)?;
    let text = say_within(client, most)?;
    Ok((text, meter.seconds()?))
}

/// The cost of so many millions.
pub fn processor(seconds: f64, count: f64) -> Figure {
    (
        PROCESSOR.into(),
        Unit::Seconds,
        (seconds / count * 1e6).max(0.0),
    )
}

/// What a program prints.
pub fn say(command: Command) -> Result<String> {
    say_within(command, HANG_TIMEOUT)
}

/// The same of one that may take longer.
pub fn say_within(command: Command, most: Duration) -> Result<String> {
    let mut running = Running::start(command, Stdio::null())?;
    let output = running.output(Instant::now() + most)?;
    match output.ok {
        true => Ok(output.stdout),
        false => Err(output.complaint().into()),
    }
}

pub fn valkey(setting: &Setting, load: &Valkey, over: Over) -> Result<Vec<Figure>> {
    let Ends(at_server, at_client) = ends(setting, over)?;
    let port = free_port().to_string();
    let log = setting.places.folder().join("valkey.log");
    let _ = std::fs::remove_file(&log);
    let mut server = over.command(setting, at_server);
    server
        .arg(setting.programs.join("bin/valkey-server"))
        .args(["--port", &port, "--bind", at_server.addr, "--save", ""])
        .args(["--protected-mode", "no", "--dir"])
        .arg(setting.places.folder())
        .arg("--logfile")
        .arg(&log);
    if over.is_rdma() {
        server.args(["--rdma-port", &port, "--rdma-bind", at_server.addr]);
    }
    let mut server = Running::start(server, Stdio::null())?;
    let ready = match over.is_rdma() {
        true => "Ready to accept connections rdma",
        false => "Ready to accept connections tcp",
    };
    server.wait_until(|| std::fs::read_to_string(&log).is_ok_and(|text| text.contains(ready)))?;
    let client = |test: &str, requests: u64| {
        let mut client = over.command(setting, at_client);
        client
            .arg(setting.programs.join("bin/valkey-benchmark"))
            .args(["-h", at_server.addr, "-p", &port, "-t", test, "--csv"])
            .args(["-d", &load.bytes.to_string(), "-n", &requests.to_string()])
            .args(["-c", &load.clients.to_string()])
            .args(["-P", &load.pipeline.to_string()]);
        if over.is_rdma() {
            client.arg("--rdma");
        }
        client
    };
    // What is there to get. It costs what a client costs that does little.
    let first: u64 = (load.clients * load.pipeline).into();
    let (_, little) = metered(&server, client("set", first))?;
    let requests = (f64::from(load.requests) * setting.effort).max(500.0) as u64;
    let (text, much) = metered(&server, client(load.test, requests))?;
    let found = tables::valkey(&text).ok_or("valkey-benchmark's table is not understood")?;
    Ok(vec![
        (String::new(), Unit::Thousands, found.requests / 1e3),
        (MEDIAN.into(), Unit::Micros, found.median),
        (P99.into(), Unit::Micros, found.p99),
        processor(much - little, (requests - first) as f64),
    ])
}

pub fn iscsi(setting: &Setting, blocks: u32, at_once: u32, over: Over) -> Result<Vec<Figure>> {
    let Ends(at_server, at_client) = ends(setting, over)?;
    let root = setting.programs.join("root/usr");
    let libraries = root.join(format!("lib/{}-linux-gnu", std::env::consts::ARCH));
    let (tcp, rdma) = (free_port(), free_port());
    let socket = setting.places.folder().join(format!("tgtd-{tcp}"));
    let started = |program: &str, over: Over, end: &End| {
        let mut command = over.command(setting, end);
        command
            .env("LD_LIBRARY_PATH", &libraries)
            .env("TGT_IPC_SOCKET", &socket)
            .arg(root.join(program));
        command
    };
    let mut server = started("sbin/tgtd", over, at_server);
    server.args(["-f", "--iscsi", &format!("portal={}:{tcp}", at_server.addr)]);
    if over.is_rdma() {
        server.args(["--iser", &format!("port={rdma},pool_sz_mb=64")]);
    }
    let mut server = Running::start(server, Stdio::null())?;
    let control = socket.with_extension("0");
    server.wait_until(|| control.exists())?;
    let (kind, port, scheme) = match over.is_rdma() {
        true => ("iser", rdma, "iser"),
        false => ("iscsi", tcp, "iscsi"),
    };
    // A disk that keeps nothing, for everybody. iSER wants the initiator's name, too.
    let path = setting.places.folder().join("disk");
    std::fs::File::create(&path)?.set_len(1 << 28)?;
    let disk = path.display();
    for request in [
        "target --op new --targetname t:t".to_owned(),
        format!("logicalunit --op new --lun 1 --bstype null --backing-store {disk}"),
        "target --op bind -I ALL".into(),
        "target --op bind -Q i:i".into(),
    ] {
        let mut admin = started("sbin/tgtadm", super::TCP, at_server);
        admin
            .args(["--lld", kind, "--tid", "1", "--mode"])
            .args(request.split(' '));
        say(admin)?;
    }
    let mut client = started("bin/iscsi-perf", over, at_client);
    client
        .args([
            "-i",
            "i:i",
            "-b",
            &blocks.to_string(),
            "-m",
            &at_once.to_string(),
        ])
        .args(["-t", "1"])
        .arg(format!("{scheme}://{}:{port}/t:t/1", at_server.addr));
    let rate = |text: &str| after(text.rsplit('\r').next().unwrap_or(text), "iops average ");
    let (text, seconds) = metered(&server, client)?;
    // It has read for a second.
    let rate = rate(&text)?;
    Ok(vec![
        (String::new(), Unit::Thousands, rate / 1e3),
        processor(seconds, rate),
    ])
}

pub fn ucx(setting: &Setting, bytes: u32, over: Over) -> Result<Vec<Figure>> {
    let Ends(at_server, at_client) = ends(setting, over)?;
    let port = free_port();
    let (transports, device) = ucx_transport(over);
    let command = |end: &End| {
        let mut command = over.command(setting, end);
        command
            .env("UCX_TLS", transports)
            .env("UCX_NET_DEVICES", device)
            .env("UCX_LOG_LEVEL", "error")
            .args(["ucx_perftest", "-p", &port.to_string()]);
        command
    };
    let count = (20_000.0 * setting.effort) as u64;
    let mut client = command(at_client);
    client
        .args([
            at_server.addr,
            "-f",
            "-t",
            "tag_lat",
            "-E",
            "sleep",
            "-w",
            "100",
        ])
        .args(["-s", &bytes.to_string(), "-n", &count.to_string()]);
    let before = rnic_sys::child::processor_time();
    let text = pair::meet(command(at_server), client, port, false)?;
    let used = (rnic_sys::child::processor_time() - before).as_secs_f64();
    let found = tables::ucx(&text).ok_or("ucx_perftest's table is not understood")?;
    Ok(vec![
        (String::new(), Unit::Micros, found.latency),
        // Two messages for a round trip.
        processor(used, (2 * count) as f64),
    ])
}

/// `UCX_TLS` and `UCX_NET_DEVICES`.
fn ucx_transport(over: Over) -> (&'static str, &'static str) {
    match over.is_rdma() {
        true => ("rc_v,self", "rnic0:1"),
        false => ("tcp,self", "lo"),
    }
}

pub fn mpi(setting: &Setting, mpi: &Mpi, over: Over) -> Result<Vec<Figure>> {
    let program = compiled(setting, "mpicc.openmpi", "allreduce")?;
    let Ends(end, _) = ends(setting, over)?;
    let (transports, device) = ucx_transport(over);
    let mut command = over.command(setting, end);
    command
        .env("UCX_TLS", transports)
        .env("UCX_NET_DEVICES", device)
        .args([
            "mpirun.openmpi",
            "--allow-run-as-root",
            "--oversubscribe",
            "-n",
            "4",
        ]);
    let mca: &[(&str, &str)] = match mpi.own_tcp {
        true => &[
            ("pml", "ob1"),
            ("btl", "tcp,self"),
            ("btl_tcp_if_include", "lo"),
        ],
        // Any device will do.
        false => &[
            ("pml", "ucx"),
            ("opal_common_ucx_tls", "any"),
            ("opal_common_ucx_devices", "any"),
        ],
    };
    for (name, value) in mca {
        command.args(["--mca", name, value]);
    }
    command
        .arg(&program)
        .args([&mpi.bytes.to_string(), &milliseconds(setting, 700)]);
    let text = say(command)?;
    Ok(vec![
        (String::new(), Unit::Micros, after(&text, "median ")?),
        (P99.into(), Unit::Micros, after(&text, "99% ")?),
        (
            PROCESSOR.into(),
            Unit::Seconds,
            after(&text, "processor time ")?,
        ),
    ])
}

pub fn curl(setting: &Setting, bytes: u32, over: Over) -> Result<Vec<Figure>> {
    let server_program = compiled(setting, "gcc", "tcp_server")?;
    let Ends(at_server, at_client) = ends(setting, over)?;
    let port = free_port();
    let command = |end: &End| -> Result<Command> {
        let mut command = over.command(setting, end);
        if over.is_rdma() {
            // In front of rnic's, as a program has it that is started under it.
            let preload = preload().ok_or("librspreload.so")?;
            let script = r#"LD_PRELOAD="$0 $LD_PRELOAD" exec "$@""#;
            command.args(["sh", "-c", script]).arg(preload);
        }
        Ok(command)
    };
    let mut server = command(at_server)?;
    server
        .arg(server_program)
        .args([at_server.addr, &port.to_string(), &bytes.to_string()])
        .env("RS_LOG", "0");
    let mut server = Running::start(server, Stdio::null())?;
    let count = (200.0 * setting.effort).max(20.0) as u32;
    let fetch = |count: u32| -> Result<Command> {
        let mut client = command(at_client)?;
        client
            .args([
                "curl",
                "-sS",
                "-o",
                "/dev/null",
                "-w",
                "%{time_total} %{size_download}\n",
            ])
            .args(["--retry-connrefused", "--retry", "5"])
            .arg(format!("http://{}:{port}/[1-{count}]", at_server.addr));
        Ok(client)
    };
    // Over rsockets it has no port that could be looked up: the first request says when it listens.
    let deadline = Instant::now() + HANG_TIMEOUT;
    while let Err(error) = say(fetch(1)?) {
        if Instant::now() > deadline || server.ended()? {
            return Err(error);
        }
    }
    let (_, little) = metered(&server, fetch(1)?)?;
    let (text, much) = metered(&server, fetch(count)?)?;
    let mut times = Vec::new();
    for line in text.lines() {
        let (time, size) = line.split_once(' ').ok_or("curl says something else")?;
        if size != bytes.to_string() {
            return Err(format!("curl got {size} bytes").into());
        }
        times.push(time.parse::<f64>()? * 1e6);
    }
    times.sort_by(f64::total_cmp);
    let p99 = *times
        .get(times.len() * 99 / 100)
        .ok_or("curl said nothing")?;
    Ok(vec![
        (String::new(), Unit::Micros, stats::median(times)),
        (P99.into(), Unit::Micros, p99),
        processor(much - little, f64::from(count - 1)),
    ])
}
