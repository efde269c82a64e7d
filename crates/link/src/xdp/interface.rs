//! An interface whose packets are taken: the program in front of it, and a socket for each queue of
//! its card.

use std::io;

use super::order::Gate;
use super::program::{ETHERNET_LEN, Tables};
use super::socket::{FRAME, HEADROOM, Socket};
use super::spec::Way;
use super::tap_offload::TapOffload;
use rnic_host::log;
use rnic_sys::{self as sys, Fd, XdpMode};

/// Frames to receive into, of all queues of an interface together, and of each at least: powers of
/// two.
const FRAMES: u32 = 4096;
const LEAST_FRAMES: u32 = 256;
/// The same where the card has no others: more than its own ring holds.
const LEAST_ZERO_COPY: u32 = 2048;
/// Queues of a card that are served; packets that come by others take the sockets.
const QUEUES: u32 = 16;
/// An interface whose packets are taken.
pub(super) struct Interface {
    pub(super) mac: [u8; 6],
    pub(super) mtu: usize,
    pub(super) sockets: Vec<Socket>,
    /// Where the program sits behind the driver: what a sender left to others to cut comes in one
    /// piece, and by the socket.
    pub(super) gate: Option<Gate>,
    /// The tap by which rows of packets leave, where the card has no checksum offload.
    pub(super) tap: Option<TapOffload>,
    /// The card sends what it is given in order.
    pub(super) one_queue: bool,
    /// The program is there as long as this is open.
    _program: Fd,
}

impl Interface {
    /// `always_tap_offload`: whatever the card.
    pub(super) fn open(
        name: &str,
        way: Way,
        always_tap_offload: bool,
    ) -> Result<(Interface, u32, Tables), String> {
        let told = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
        let (index, mac, mtu) =
            sys::ethernet(name).map_err(|error| match error.raw_os_error() {
                Some(_) => told("no such interface")(error),
                None => format!("{name} is not an Ethernet interface"),
            })?;
        let most = FRAME - HEADROOM - ETHERNET_LEN;
        if mtu as usize > most {
            return Err(format!(
                "its MTU is {mtu}, and frames of AF_XDP hold {most} bytes"
            ));
        }
        // Where sysfs shows another network namespace, or nothing, the first is there all the same.
        let queues = queues_of(name, "rx-").clamp(1, QUEUES);
        let attach = |mode| {
            let batches = mode == XdpMode::Generic;
            let tables = Tables::new(queues, mtu, batches).map_err(told("a table for eBPF"))?;
            let program = tables.load().map_err(told("the eBPF program"))?;
            Ok::<_, String>((tables, sys::attach_xdp(&program, index, mode)))
        };
        let mut mode = way.mode();
        let (mut tables, mut attached) = attach(mode)?;
        if let (Err(error), XdpMode::Driver) = (&attached, mode)
            && error.raw_os_error() == Some(libc::EOPNOTSUPP)
        {
            mode = XdpMode::Generic;
            (tables, attached) = attach(mode)?;
        }
        let attached = attached.map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => "another program has the interface's XDP".to_owned(),
            _ => told("to attach to the interface")(error),
        })?;
        // A driver gives the card frames only of a program of its own.
        let zero_copy = way == Way::ZeroCopy && mode == XdpMode::Driver;
        let least = if zero_copy {
            LEAST_ZERO_COPY
        } else {
            LEAST_FRAMES
        };
        let frames = (FRAMES / queues.next_power_of_two()).max(least);
        let mut sockets = Vec::new();
        for queue in 0..queues {
            let socket = Socket::open(index, queue, frames, zero_copy);
            let socket = socket.map_err(told("an AF_XDP socket"))?;
            let set = tables.set_socket(queue, socket.fd());
            set.map_err(told("a table for eBPF"))?;
            sockets.push(socket);
        }
        if way == Way::ZeroCopy && !sockets.iter().all(Socket::is_zero_copy) {
            log(format_args!(
                "RNIC_XDP={name}: not all of its queues have zero copy (its driver, or the MTU), so the kernel copies their packets"
            ));
        }
        let needs_tap = !zero_copy && (always_tap_offload || TapOffload::is_needed(name));
        let tap = needs_tap.then(|| TapOffload::to(index, mtu)).transpose();
        let tap = tap.unwrap_or_else(|error| {
            log(format_args!(
                "RNIC_XDP={name}: it has no checksum offload, and no interface to make up for that can be had ({error}), so long \
                 messages leave packet by packet"
            ));
            None
        });
        let interface = Interface {
            mac,
            mtu: mtu as usize,
            sockets,
            gate: tables.gate().map_err(told("a table for eBPF"))?,
            tap,
            one_queue: queues_of(name, "tx-") == 1,
            _program: attached,
        };
        Ok((interface, index, tables))
    }

    /// Long rows take the socket. With zero copy the card need not be told of each packet.
    pub(super) fn leaves_rows(&self) -> bool {
        !self.is_zero_copy()
    }

    /// Packets lie in its rings.
    #[inline]
    pub(super) fn has_arrivals(&self) -> bool {
        self.sockets.iter().any(|socket| !socket.is_empty())
    }

    /// Packets to this process take the socket, as some did before them.
    #[inline]
    pub(super) fn is_shut(&self) -> bool {
        self.gate.as_ref().is_some_and(Gate::is_shut)
    }

    /// What is to be received next lies in the socket, not in the rings, if it lies anywhere.
    #[inline]
    pub(super) fn comes_by_socket(&self) -> bool {
        let Some(gate) = &self.gate else { return false };
        let in_rings = || self.has_arrivals();
        if gate.is_shut() {
            !in_rings()
        } else {
            gate.is_unsure() && in_rings()
        }
    }

    /// What lies in its rings came before what the socket gave just now.
    pub(super) fn holds_earlier(&self) -> bool {
        self.is_shut() && self.has_arrivals()
    }

    /// What it sends the card reads by itself.
    #[inline]
    pub(super) fn is_zero_copy(&self) -> bool {
        self.sockets.first().is_some_and(Socket::is_zero_copy)
    }
}

/// How many queues of a kind an interface has, whose names begin so; 0: it is not known.
fn queues_of(name: &str, kind: &str) -> u32 {
    let queues = std::fs::read_dir(format!("/sys/class/net/{name}/queues"));
    queues.map_or(0, |entries| {
        let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
        names
            .filter(|name| name.as_encoded_bytes().starts_with(kind.as_bytes()))
            .count() as u32
    })
}
