//! Lines that perftest, ibverbs-utils and rdmacm-utils print when something fails.
//!
//! Such a line says what the program was at, seldom why it failed. So the causes here are
//! candidates, and the checks say how to tell them apart.

use super::topic::{Kind, Topic};

/// A line of programs: how it is recognized, and what is to say of it.
pub struct Line {
    /// Words as [`matches`] reads them; one of these is enough.
    pub patterns: &'static [&'static str],
    /// An errno in the line is not one of a verb: the call was one of a socket, or it did not fail.
    pub hides_errno: bool,
    /// The line only introduces a status or an event, so it gives way to one that is named.
    pub introduces: bool,
    pub topic: Topic,
}

const fn line(
    patterns: &'static [&'static str],
    name: &'static str,
    text: &'static str,
    meaning: &'static str,
    causes: &'static [&'static str],
    check: &'static [&'static str],
) -> Line {
    Line {
        patterns,
        hides_errno: false,
        introduces: false,
        topic: Topic {
            kind: Kind::Program,
            number: 0,
            name,
            text,
            meaning,
            side: "",
            causes,
            check,
            follows: "",
        },
    }
}

const WORDS: &str = "RNIC_LOG=1 rnic run -- PROGRAM      says in words why each verb was refused";
const START: &str = "rnic run -- PROGRAM      starts a program with rnic0 as its device";
const DEVICES: &str = "rnic devices      the device, its GID indices and MTU";
const OTHER_SIDE: &str = "the terminal of the other side: its last line tells why it ended";

pub const LINES: &[Line] = &[
    line(
        &[
            "failed to modify qp to init",
            "failed to modify qp # to init",
            "failed to modify * qp to init",
        ],
        "modify QP to INIT",
        "Failed to modify QP to INIT",
        "The program moved its new queue pair from RESET to INIT, and ibv_modify_qp refused.",
        &[
            "the port number is not one of the device (rnic0 has port 1): option -i",
            "the P_Key index does not exist",
            "the attribute mask does not fit the type of the queue pair",
        ],
        &[WORDS, DEVICES, "rnic explain state init"],
    ),
    line(
        &[
            "failed to modify qp to rtr",
            "failed to modify qp # to rtr",
            "failed to modify * qp to rtr",
        ],
        "modify QP to RTR",
        "Failed to modify QP to RTR",
        "The program gave its queue pair the peer's address (INIT to RTR), and ibv_modify_qp refused.",
        &[
            "ibv_*_pingpong without -g: RoCE needs a GID index, on both sides",
            "the two GID indices (-g, -x) are of different kinds, one IPv4 and one IPv6",
            "the peer gave a zero GID, because it was started without -g, or one without route from here",
            "the path MTU is above what the network carries (-m)",
        ],
        &[WORDS, DEVICES, "rnic explain state rtr"],
    ),
    line(
        &[
            "failed to modify qp to rts",
            "failed to modify qp # to rts",
            "failed to modify * qp to rts",
        ],
        "modify QP to RTS",
        "Failed to modify QP to RTS",
        "The program made its queue pair ready to send (RTR to RTS), and ibv_modify_qp refused.",
        &[
            "an attribute is missing in the mask, or has a value that is too large (timeout, retry_cnt, rnr_retry)",
            "max_rd_atomic is above the device's max_qp_init_rd_atom (option -o of perftest)",
            "the queue pair is not in RTR",
        ],
        &[WORDS, "rnic explain state rts"],
    ),
    line(
        &[
            "couldn't connect to remote qp",
            "unable to connect the hca's through the link",
        ],
        "connect to remote QP",
        "Couldn't connect to remote QP",
        "The program could not connect its queue pair to the peer's. The line before this one names the step that failed.",
        &["ibv_modify_qp to RTR or RTS was refused"],
        &[WORDS, "rnic explain Failed to modify QP to RTR"],
    ),
    Line {
        hides_errno: true,
        ..line(
            &[
                "couldn't connect to HOST:PORT",
                "unable to open file descriptor for socket connection",
                "unable to init the socket connection",
            ],
            "connect over TCP",
            "Couldn't connect to HOST:PORT",
            "The program opens a TCP connection first, to exchange addresses with its other side, and found no listener. RDMA has not \
             begun.",
            &[
                "the server is not started yet, or has ended: start it first, without a host name",
                "the server listens on another port (-p), or is in another network namespace or container",
                "the host name leads to another host",
                "a firewall blocks the TCP port",
            ],
            &[
                "ss -ltnp      on the server: is there a listener on this port?",
                "nc -vz HOST PORT      from the client",
                OTHER_SIDE,
            ],
        )
    },
    Line {
        hides_errno: true,
        ..line(
            &["couldn't listen to port #"],
            "listen over TCP",
            "Couldn't listen to port PORT",
            "The server waits on this TCP port for the client's address, and could not take the port.",
            &[
                "another server has the port, perhaps one of an earlier run",
                "the port is below 1024, and the program has no privilege",
            ],
            &[
                "ss -ltnp 'sport = :PORT'      which process has it",
                "option -p PORT on both sides chooses another",
            ],
        )
    },
    Line {
        hides_errno: true,
        ..line(
            &[
                "client read/write",
                "^ client read:",
                "^ client write:",
                "^ server read:",
                "couldn't read/write remote address",
                "couldn't send/recv local address",
                "couldn't read remote address",
                "couldn't send local address",
                "failed to exchange data between server and client",
                "failed to exchange data between server and clients",
                "unable to read from socket/rdma_cm",
                "unable to write to socket/rdma_cm",
            ],
            "exchange over TCP",
            "client read/write",
            "The two sides exchange addresses over TCP, and that connection ended early: most likely the other side ended. An errno behind \
             this line can be an old one, as the end of a connection sets none.",
            &[
                "the other side failed, for example with \"Failed to modify QP to RTR\", and ended",
                "the other side is another program, or runs with other options or another version",
                "what connected was no such program (a port scan, a health check)",
            ],
            &[OTHER_SIDE, "rnic explain LINE      with that last line"],
        )
    },
    Line {
        hides_errno: true,
        ..line(
            &["failed to get ib devices list"],
            "list of devices",
            "Failed to get IB devices list",
            "ibv_get_device_list gave no list. With \"Function not implemented\" libibverbs found no RDMA modules in the kernel, so the \
             program does not run on rnic.",
            &[
                "the program was started without `rnic run`",
                "`rnic run` is there, but something between it and the program clears LD_LIBRARY_PATH or LD_PRELOAD (sudo, ssh, a container)",
                "on hardware: the modules ib_uverbs and the driver's are not loaded",
            ],
            &[
                "rnic run -- ibv_devinfo",
                START,
                "lsmod | grep ib_uverbs      on hardware",
            ],
        )
    },
    line(
        &[
            "did not detect devices",
            "no ib devices found",
            "no rdma devices were detected",
        ],
        "no device",
        "No IB devices found",
        "The list of devices is empty.",
        &[
            "the program was started without `rnic run`",
            "something between `rnic run` and the program clears LD_LIBRARY_PATH or LD_PRELOAD (sudo, ssh, a container)",
            "on hardware: no RDMA driver is loaded, or /dev/infiniband is not in the container",
        ],
        &[START, "rnic run -- ibv_devices      lists rnic0"],
    ),
    line(
        &[
            "unable to find the infiniband/roce device",
            "ib device * not found",
            "ib device * wasn't found",
        ],
        "device not found",
        "Unable to find the Infiniband/RoCE device",
        "There is no device of the wanted name, or none at all.",
        &[
            "option -d names a device that is not there: that of rnic is rnic0",
            "the program was started without `rnic run`: the line before this one says that no devices were detected",
        ],
        &["rnic run -- ibv_devices      the names", START],
    ),
    line(
        &[
            "can't read sgid of index #",
            "could not get local gid for gid index #",
        ],
        "read sgid",
        "can't read sgid of index N",
        "The program asked for an entry of the GID table that is empty or beyond its end.",
        &[
            "-g or -x is an index from another host: each host has its own table",
            "the address that had this index was removed from its interface",
        ],
        &[
            DEVICES,
            "-g INDEX with an index from that list, on each side its own",
        ],
    ),
    line(
        &[
            "couldn't get context for the device",
            "couldn't get context for * $",
            "^ failed to open device $",
        ],
        "open device",
        "Couldn't get context for DEVICE",
        "The device is in the list, and ibv_open_device failed.",
        &[
            "rnic could not take UDP port 4791: another user or a Soft-RoCE of the kernel has it",
            "rnic lacks an address, memory, descriptors or threads",
            "an RNIC_* variable has a value that rnic does not accept",
            "on hardware: no permission for /dev/infiniband/uverbs*",
        ],
        &[
            "rnic run -- PROGRAM      says in words why the device does not open",
            "rnic devices      opens it as well",
            "ss -ulpn 'sport = 4791'      which process has the port",
        ],
    ),
    line(
        &["parse wc failed"],
        "parse WC",
        "parse WC failed",
        "The pingpong looked at a completion and gave up: its status was an error, or its wr_id unknown. The line before this one tells.",
        &[
            "\"Failed status NAME (N)\" goes before: that status is the failure",
            "\"Completion for unknown wr_id\" goes before: the completion is of no request of the program",
            "a receive could not be posted again: \"Couldn't post receive\" goes before",
        ],
        &[
            "rnic explain N      with the status",
            "rnic run -- PROGRAM      names what failed first",
        ],
    ),
    line(
        &[
            "couldn't post send",
            "function ibv_post_send failed",
            "failed to post sends",
            "post send error #",
        ],
        "post send",
        "Couldn't post send",
        "ibv_post_send refused a work request. It was not executed, and the peer knows nothing of it.",
        &[
            "the send queue is full (ENOMEM): completions are not polled, or requests without IBV_SEND_SIGNALED never leave room",
            "the request does not fit the queue pair (EINVAL): state, operation, number of SGEs, inline length",
        ],
        &[WORDS, "rnic explain errno 12; rnic explain errno 22"],
    ),
    line(
        &[
            "couldn't post receive",
            "couldn't post receives",
            "couldn't post recv",
            "failed to post receive recv_wqes",
            "failed to post receive to srq",
            "failed to post receives",
            "function ibv_post_recv failed",
            "ibv_post_recv failed",
            "post recv error #",
        ],
        "post receive",
        "Couldn't post receive",
        "ibv_post_recv, or ibv_post_srq_recv, refused a receive. A number in brackets says how many were posted.",
        &[
            "the receive queue is full (ENOMEM): more were posted than max_recv_wr (option -r)",
            "the queue pair is in RESET, or has a shared receive queue (EINVAL)",
            "more SGEs than max_recv_sge (EINVAL)",
        ],
        &[WORDS, "rnic explain errno 12; rnic explain errno 22"],
    ),
    line(
        &[
            "poll cq failed",
            "poll send cq failed",
            "poll receive cq failed",
            "poll on send cq failed",
            "failed polling cq",
            "error polling cq",
        ],
        "poll CQ",
        "poll CQ failed",
        "ibv_poll_cq gave a negative number: the queue itself failed, no single work request.",
        &[
            "a child process polls a queue of its parent's after fork",
            "the program asked for a negative number of completions, or polls a queue that it destroyed",
            "on hardware: the completion queue overran; on rnic IBV_EVENT_CQ_ERR tells of that",
            "on hardware: the device was removed, or is in a fatal error",
        ],
        &[
            "rnic run -- PROGRAM      names what failed first",
            "rnic explain IBV_EVENT_CQ_ERR",
            "dmesg      what the driver says (hardware)",
        ],
    ),
    Line {
        introduces: true,
        ..line(
            &[
                "failed status $",
                "failed status #",
                "failed status * # for wr_id",
                "^ completion with error $",
                "completion with error at",
                "completion with error in",
                "cq completion failed status",
                "bad wc status",
                "work completion error #",
                "poll send cq error status",
            ],
            "failed completion",
            "Completion with error",
            "A work request ended with an error. Its status says which; the first one counts, as all later ones are flushed (status 5).",
            &[
                "the peer ended or is not reached (status 12)",
                "the peer had no receive posted (status 13)",
                "the peer refused the access (status 10), or the request (status 9)",
                "local memory or length (status 4, 1)",
            ],
            &[
                "rnic explain N      with the status of the first such line",
                "rnic run -- PROGRAM      names what failed first",
            ],
        )
    },
    line(
        &[
            "couldn't allocate mr",
            "couldn't register mr",
            "failed to create mr",
            "failed to reg mr",
            "* reg_mr failed",
        ],
        "register memory",
        "Couldn't allocate MR",
        "ibv_reg_mr refused to register the program's buffer.",
        &[
            "remote write or atomic access without IBV_ACCESS_LOCAL_WRITE (EINVAL)",
            "the range is not mapped, or not writable (EFAULT)",
            "memory is short (ENOMEM)",
            "on hardware: above the limit of locked memory (ENOMEM), which rnic does not need",
            "an access flag that the device does not have (EOPNOTSUPP)",
        ],
        &[WORDS, "ulimit -l      KiB that may be locked (hardware)"],
    ),
    line(
        &[
            "couldn't create qp",
            "couldn't create send qp",
            "couldn't create recv qp",
            "unable to create qp",
            "failed to create qp",
            "setup_qp failed",
        ],
        "create QP",
        "Couldn't create QP",
        "ibv_create_qp, or rdma_create_qp, made no queue pair.",
        &[
            "sizes above the device's: max_qp_wr (options -t, -r), max_sge, inline data (-I)",
            "a type of queue pair that the device does not have, or a vendor's extension",
            "the device has no more queue pairs, or memory is short (ENOMEM)",
        ],
        &[WORDS, "rnic run -- ibv_devinfo -v      the limits"],
    ),
    line(
        &[
            "couldn't create cq",
            "couldn't create a receiver cq",
            "couldn't create send cq",
            "couldn't create recv cq",
            "unable to create cq",
            "failed to create cq",
            "failed to create cqs",
            "ibv_create_cq failed",
        ],
        "create CQ",
        "Failed to create CQ",
        "ibv_create_cq made no completion queue.",
        &[
            "more entries than max_cqe, or none (EINVAL): it follows from the depths -t and -r and the number of queue pairs -q",
            "a completion vector that the device does not have",
            "memory is short (ENOMEM)",
        ],
        &[WORDS, "rnic run -- ibv_devinfo -v      the limits"],
    ),
    line(
        &[
            "rdma_resolve_addr",
            "waiting for addr/route resolution state #",
            "received # times addr_error",
        ],
        "rdma_resolve_addr",
        "rdma_resolve_addr",
        "The program asked for the device and the way to the peer's address, before it connects.",
        &[
            "no route to the address (ENETUNREACH), or its host answers no ARP or neighbour discovery",
            "the way starts on an interface that is on no RDMA device (ENODEV); on hardware often 127.0.0.1",
            "the address is of another family than the one that the id is bound to",
        ],
        &[
            "rnic devices; ip route get ADDRESS; ping ADDRESS",
            "rnic explain RDMA_CM_EVENT_ADDR_ERROR",
        ],
    ),
    Line {
        introduces: true,
        ..line(
            &[
                "cma event",
                "unexpected cm event",
                "bad event waiting for connect request",
            ],
            "CM event",
            "cma event NAME, error N",
            "The connection manager told of something other than the program waited for. Its name and its number say what.",
            &[
                "no server listens on this port (RDMA_CM_EVENT_REJECTED, error 8)",
                "the address does not resolve (RDMA_CM_EVENT_ADDR_ERROR)",
                "no answer from the peer (RDMA_CM_EVENT_UNREACHABLE)",
            ],
            &["rnic explain cma event NAME, error N      with the whole line"],
        )
    },
    Line {
        // The number is a state of rping, or its -1.
        hides_errno: true,
        ..line(
            &["wait for connected state #", "^ connect error #"],
            "rping connection",
            "wait for CONNECTED state N",
            "rping was connecting, and did not come to be connected. A line \"cma event\" before this one names the reason.",
            &[
                "no server listens: start rping -s first, with the same port (-p)",
                "the server listens on another address (-a)",
                "the other side ended",
            ],
            &[
                "rnic explain cma event NAME, error N      with that line",
                OTHER_SIDE,
            ],
        )
    },
];

pub fn topics() -> impl Iterator<Item = &'static Topic> {
    LINES.iter().map(|line| &line.topic)
}

/// What stands around words, in sentences and logs.
fn bare(word: &str) -> &str {
    word.trim_matches(|c: char| matches!(c, ',' | ':' | ';' | '.' | '(' | ')' | '"' | '\'' | '`'))
}

/// The word without the index of an array: "qp\[3\]" is a QP.
fn unindexed(word: &str) -> &str {
    match word.strip_suffix(']').and_then(|word| word.split_once('[')) {
        Some((name, index)) if !name.is_empty() && is_number(index) => name,
        _ => word,
    }
}

fn is_number(word: &str) -> bool {
    let word = word.strip_prefix('-').unwrap_or(word);
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// An address and a port, as "127.0.0.1:18515" or "::1:18515".
fn is_endpoint(word: &str) -> bool {
    word.rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && is_number(port))
}

/// Whether `word` is what `pattern` asks of it: `*` any word, `#` a number, `HOST:PORT` an address
/// with a port, `word:` this word with a colon, else this word.
fn is(pattern: &str, word: &str) -> bool {
    match pattern {
        "*" => !bare(word).is_empty(),
        "#" => is_number(bare(word)),
        "HOST:PORT" => is_endpoint(bare(word)),
        _ if pattern.ends_with(':') => pattern == word,
        _ => unindexed(bare(word)) == pattern,
    }
}

/// Whether the words of a line hold those of a pattern, one after the other. `^` is the line's
/// start, and `$` its end.
fn holds(words: &[&str], pattern: &str) -> bool {
    let (pattern, at_start) = match pattern.strip_prefix("^ ") {
        Some(rest) => (rest, true),
        None => (pattern, false),
    };
    let (pattern, at_end) = match pattern.strip_suffix(" $") {
        Some(rest) => (rest, true),
        None => (pattern, false),
    };
    let pattern: Vec<&str> = pattern.split(' ').collect();
    words
        .windows(pattern.len())
        .enumerate()
        .any(|(at, window)| {
            (!at_start || at == 0)
                && (!at_end || at + window.len() == words.len())
                && pattern
                    .iter()
                    .zip(window)
                    .all(|(pattern, word)| is(pattern, word))
        })
}

/// The lines that `text` (lower case, single spaces) holds.
pub fn matches(text: &str) -> Vec<&'static Line> {
    // Mail programs and web pages put a typographic apostrophe; perftest puts "status=12".
    let text = text.replace('\u{2019}', "'").replace('=', " ");
    let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
    LINES
        .iter()
        .filter(|line| line.patterns.iter().any(|pattern| holds(&words, pattern)))
        .collect()
}
