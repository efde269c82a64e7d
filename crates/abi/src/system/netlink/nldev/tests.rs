//! Requests as programs send them, and as nobody should: each gets the kernel's answer.

use proptest::prelude::*;
use rnic_nic::QpState;

use super::super::message::Attributes;
use super::*;

const PORT_ID: u32 = 4321;
const TO: To = To {
    sequence: 77,
    port: 0,
};

fn kind(op: u16) -> u16 {
    NLDEV << 10 | op
}

/// A message with its type, flags and attributes.
#[derive(Debug)]
struct Message {
    kind: u16,
    flags: u16,
    bytes: Vec<u8>,
}

impl Message {
    fn attributes(&self) -> Attributes<'_> {
        requests(&self.bytes)
            .next()
            .expect("a message")
            .attributes()
    }

    fn errno(&self) -> i32 {
        assert_eq!(self.kind, 2, "{self:?}");
        -i32::from_ne_bytes(self.bytes[16..20].try_into().unwrap())
    }
}

/// Each datagram is one message, of the length that it says, to whom asked.
fn messages(datagrams: impl Iterator<Item = Vec<u8>>) -> Vec<Message> {
    datagrams
        .map(|bytes| {
            let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
            assert_eq!(word(0) as usize, bytes.len());
            assert_eq!(word(12), PORT_ID);
            let half = |at: usize| u16::from_ne_bytes(bytes[at..at + 2].try_into().unwrap());
            Message {
                kind: half(4),
                flags: half(6),
                bytes,
            }
        })
        .collect()
}

fn qp(number: u32, port: u8, srq: u32) -> Resource {
    Resource {
        pid: 9,
        number,
        detail: Detail::Qp {
            qp_type: QpType::Rc,
            state: QpState::Rts,
            port,
            path_mig_state: 0,
            dest_qp_num: 5,
            rq_psn: 6,
            sq_psn: 7,
            pd: 8,
            srq,
        },
    }
}

struct Case {
    admin: bool,
    options: Options,
    objects: Vec<Resource>,
}

impl Default for Case {
    fn default() -> Case {
        let srq = Resource {
            pid: 9,
            number: 300,
            detail: Detail::Srq {
                xrc: false,
                pd: 8,
                cq: 0,
            },
        };
        Case {
            admin: false,
            options: Options::default(),
            objects: vec![qp(100, 1, 300), qp(101, 1, 300), qp(103, 0, 0), srq],
        }
    }
}

impl Case {
    fn answer(&self, datagram: &[u8]) -> Vec<Message> {
        let list = |kind: Kind| {
            let of = |resource: &&Resource| match resource.detail {
                Detail::Qp { .. } => kind == Kind::Qp,
                Detail::Srq { .. } => kind == Kind::Srq,
                _ => false,
            };
            self.objects.iter().filter(of).copied().collect()
        };
        let world = World {
            guid: 1,
            cap_flags: 2,
            fw_version: "3".to_owned(),
            state: PortState::Active,
            netdev: Some((4, "eth0".to_owned())),
            is_admin: self.admin,
            options: self.options,
            list: &list,
            counters: &|| {
                let mut counters = PortCounters::default();
                counters.qps.timeouts = 42;
                counters
            },
        };
        messages(answer(datagram, PORT_ID, &world))
    }

    fn ask(&self, op: u16, flags: u16, numbers: &[(u16, u32)]) -> Vec<Message> {
        self.answer(&request(op, flags, numbers))
    }

    /// The errno of a request that is refused.
    fn refused(&self, op: u16, flags: u16, numbers: &[(u16, u32)]) -> i32 {
        let answers = self.ask(op, flags, numbers);
        assert_eq!(answers.len(), 1, "{answers:?}");
        answers[0].errno()
    }
}

fn request(op: u16, flags: u16, numbers: &[(u16, u32)]) -> Vec<u8> {
    let mut writer = Writer::begin(kind(op), NLM_F_REQUEST | flags, TO);
    for (attribute, number) in numbers {
        writer.u32(*attribute, *number);
    }
    writer.end()
}

const DEVICE: (u16, u32) = (attr::DEV_INDEX, INDEX);
const ON_PORT: (u16, u32) = (attr::PORT_INDEX, PORT);

#[test]
fn the_device_is_told_of_alone_and_among_all() {
    let case = Case::default();
    let one = case.ask(command::GET, NLM_F_ACK, &[DEVICE]);
    assert_eq!(one.len(), 2, "and an acknowledgement");
    assert_eq!((one[0].kind, one[0].flags), (kind(command::GET), 0));
    assert_eq!(
        one[0].attributes().text(attr::DEV_NAME).unwrap(),
        Some(&b"rnic0"[..])
    );
    assert_eq!(one[1].errno(), 0);
    let all = case.ask(command::GET, NLM_F_DUMP | NLM_F_ACK, &[]);
    assert_eq!(all.len(), 2);
    assert_eq!(
        (all[0].kind, all[0].flags),
        (kind(command::GET), NLM_F_MULTI)
    );
    assert_eq!(all[1].kind, 3, "the end");
    let port = case.ask(command::PORT_GET, 0, &[DEVICE, ON_PORT]);
    assert_eq!(
        port[0].attributes().text(attr::NDEV_NAME).unwrap(),
        Some(&b"eth0"[..])
    );
}

#[test]
fn what_is_not_there_or_not_said_is_refused_as_by_the_kernel() {
    let case = Case::default();
    let other = (attr::DEV_INDEX, 1);
    let port_2 = (attr::PORT_INDEX, 2);
    for (op, flags, numbers, errno) in [
        (command::GET, 0, &[][..], libc::EINVAL),
        (command::GET, 0, &[other], libc::EINVAL),
        (command::PORT_GET, 0, &[DEVICE], libc::EINVAL),
        (command::PORT_GET, 0, &[DEVICE, port_2], libc::EINVAL),
        (command::PORT_GET, NLM_F_DUMP, &[], libc::EINVAL),
        (command::RES_QP_GET, NLM_F_DUMP, &[], libc::EINVAL),
        (
            command::RES_QP_GET,
            NLM_F_DUMP,
            &[DEVICE, port_2],
            libc::EINVAL,
        ),
        (command::RES_QP_GET, 0, &[DEVICE, ON_PORT], libc::EINVAL),
        (
            command::RES_QP_GET,
            0,
            &[DEVICE, (attr::RES_LQPN, 100)],
            libc::EINVAL,
        ),
        (
            command::RES_QP_GET,
            0,
            &[DEVICE, ON_PORT, (attr::RES_LQPN, 1)],
            libc::ENOENT,
        ),
        (
            command::RES_QP_GET,
            0,
            &[DEVICE, ON_PORT, (attr::RES_LQPN, 103)],
            libc::EAGAIN,
        ),
        (
            command::RES_SRQ_GET,
            0,
            &[DEVICE, ON_PORT, (attr::RES_SRQN, 300)],
            libc::EINVAL,
        ),
        (command::STAT_GET, 0, &[DEVICE], libc::EINVAL),
        (command::STAT_GET, NLM_F_DUMP, &[DEVICE], libc::EINVAL),
        (command::GET_CHARDEV, 0, &[DEVICE], libc::EINVAL),
        (0, 0, &[DEVICE], libc::EINVAL),
        (8, 0, &[DEVICE], libc::EINVAL),
        (999, NLM_F_DUMP, &[DEVICE], libc::EINVAL),
        (command::SET, 0, &[DEVICE], libc::EPERM),
        (command::RES_QP_GET_RAW, NLM_F_DUMP, &[DEVICE], libc::EPERM),
    ] {
        assert_eq!(
            case.refused(op, flags, numbers),
            errno,
            "{op} {flags:#x} {numbers:?}"
        );
    }
    // Another client than nldev, and a number that is none.
    let mut writer = Writer::begin(2 << 10 | 1, NLM_F_REQUEST, TO);
    assert_eq!(case.answer(&writer.end())[0].errno(), libc::EINVAL);
    writer = Writer::begin(kind(command::GET), NLM_F_REQUEST, TO);
    writer.u8(attr::DEV_INDEX, 0);
    assert_eq!(case.answer(&writer.end())[0].errno(), libc::ERANGE);
    writer = Writer::begin(kind(command::GET_CHARDEV), NLM_F_REQUEST, TO);
    writer.u32(attr::DEV_INDEX, INDEX);
    writer.bytes(attr::CHARDEV_TYPE, b"uverbs");
    assert_eq!(
        case.answer(&writer.end())[0].errno(),
        libc::EINVAL,
        "no NUL"
    );
}

#[test]
fn nobody_changes_anything_and_whoever_wants_to_know_why_is_told() {
    let mut case = Case {
        admin: true,
        ..Case::default()
    };
    let set = request(command::SET, 0, &[DEVICE]);
    let plain = &case.answer(&set)[0];
    assert_eq!(plain.errno(), libc::EOPNOTSUPP);
    assert_eq!(plain.bytes[20..], set[..], "the request comes back");
    case.options = Options {
        cap_ack: true,
        ext_ack: true,
    };
    let told = &case.answer(&set)[0];
    assert_eq!((told.errno(), told.flags), (libc::EOPNOTSUPP, 0x300));
    assert_eq!(told.bytes[20..36], set[..16], "its header alone");
    let words = String::from_utf8_lossy(&told.bytes[36..]).into_owned();
    assert!(words.contains("cannot be changed"), "{words}");
}

#[test]
fn a_long_list_comes_in_datagrams_that_any_reader_takes_and_nothing_twice() {
    let case = Case {
        objects: (0..5000).map(|n| qp(1000 + n, 1, 0)).collect(),
        ..Case::default()
    };
    let all = case.ask(command::RES_QP_GET, NLM_F_DUMP, &[DEVICE]);
    let (end, all) = all.split_last().unwrap();
    assert_eq!(end.kind, 3);
    assert!(all.len() > 100);
    let mut numbers = Vec::new();
    for message in all {
        assert!(message.bytes.len() <= DATAGRAM, "{}", message.bytes.len());
        for entry in message.attributes().nested(attr::RES_QP) {
            numbers.push(entry.number(attr::RES_LQPN).unwrap().unwrap());
        }
    }
    assert_eq!(numbers, (1000..6000).collect::<Vec<u32>>());
}

#[test]
fn one_queue_pair_is_found_and_a_port_filters() {
    let case = Case::default();
    let one = case.ask(
        command::RES_QP_GET,
        0,
        &[DEVICE, ON_PORT, (attr::RES_LQPN, 101)],
    );
    let attributes = one[0].attributes();
    for (of, number) in [
        (attr::RES_LQPN, 101),
        (attr::RES_RQPN, 5),
        (attr::RES_PDN, 8),
        (attr::RES_PID, 9),
    ] {
        assert_eq!(attributes.number(of), Ok(Some(number)), "{of}");
    }
    let numbers = |numbers: &[(u16, u32)]| -> Vec<u32> {
        let all = case.ask(command::RES_QP_GET, NLM_F_DUMP, numbers);
        let entries = all[0].attributes().nested(attr::RES_QP);
        let numbers = entries.map(|entry| entry.number(attr::RES_LQPN).unwrap().unwrap());
        numbers.collect()
    };
    assert_eq!(numbers(&[DEVICE]), [100, 101, 103]);
    assert_eq!(numbers(&[DEVICE, ON_PORT]), [100, 101]);
    // Of none there is only the end.
    let none = case.ask(command::RES_CQ_GET, NLM_F_DUMP, &[DEVICE]);
    assert_eq!((none.len(), none[0].kind), (1, 3));
}

#[test]
fn a_shared_receive_queue_names_its_queue_pairs() {
    let mut case = Case::default();
    case.objects.push(qp(200, 1, 300));
    let one = case.ask(command::RES_SRQ_GET, 0, &[DEVICE, (attr::RES_SRQN, 300)]);
    let ranges: Vec<_> = one[0]
        .attributes()
        .nested(attr::RES_QP)
        .map(|range| {
            [attr::MIN_RANGE, attr::MAX_RANGE, attr::RES_LQPN]
                .map(|of| range.number(of).unwrap().unwrap_or(0))
        })
        .collect();
    assert_eq!(ranges, [[100, 101, 0], [0, 0, 200]]);
    // So many that they do not fit leave room for the rest.
    case.objects
        .extend((0..3000).map(|n| qp(1000 + 2 * n, 1, 300)));
    let all = case.ask(command::RES_SRQ_GET, NLM_F_DUMP, &[DEVICE]);
    assert!(all[0].bytes.len() <= DATAGRAM);
    let entry = all[0].attributes().nested(attr::RES_SRQ).next().unwrap();
    assert_eq!(entry.number(attr::RES_PID), Ok(Some(9)));
}

#[test]
fn counters_have_the_names_of_sysfs() {
    let case = Case::default();
    let told = case.ask(command::STAT_GET, 0, &[DEVICE, ON_PORT]);
    let counters: Vec<_> = told[0].attributes().nested(attr::STAT_HWCOUNTERS).collect();
    let hardware = COUNTERS
        .iter()
        .filter(|c| c.file.starts_with("hw_counters/"));
    assert_eq!(counters.len(), hardware.count());
    let name = |counter: &Attributes<'_>| {
        counter
            .text(attr::STAT_HWCOUNTER_ENTRY_NAME)
            .unwrap()
            .unwrap()
            .to_vec()
    };
    let timeouts = counters
        .iter()
        .find(|c| name(c) == b"local_ack_timeout_err")
        .unwrap();
    assert_eq!(
        timeouts.number(attr::STAT_HWCOUNTER_ENTRY_VALUE),
        Ok(Some(42))
    );
}

#[test]
fn several_requests_in_a_datagram_are_answered_in_turn() {
    let case = Case::default();
    let mut both = request(command::SYS_GET, 0, &[]);
    both.extend(request(command::GET, NLM_F_ACK, &[DEVICE]));
    // What is no request is acknowledged; behind it a length lies.
    both.extend(Writer::begin(kind(command::GET), NLM_F_ACK, TO).end());
    both.extend([255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    both.extend(request(command::SYS_GET, 0, &[]));
    let kinds: Vec<u16> = case.answer(&both).iter().map(|m| m.kind).collect();
    assert_eq!(kinds, [kind(command::SYS_GET), kind(command::GET), 2, 2]);
}

proptest! {
    #[test]
    fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let case = Case::default();
        prop_assert!(case.answer(&bytes).len() <= 3 * bytes.len());
    }

    /// Attributes that lie, behind a header that does not.
    #[test]
    fn any_attributes_are_answered(
        op in 0u16..40,
        flags in any::<u16>(),
        of in proptest::collection::vec((0u16..100, any::<u8>(), 0u16..12), 0..6),
        cut in 0usize..40,
    ) {
        let mut bytes = request(op, flags & !NLM_F_REQUEST, &[DEVICE, ON_PORT]);
        for (kind, byte, len) in of {
            bytes.extend_from_slice(&len.to_ne_bytes());
            bytes.extend_from_slice(&kind.to_ne_bytes());
            bytes.extend_from_slice(&[byte; 4]);
        }
        bytes.truncate(bytes.len().saturating_sub(cut).max(16));
        let len = bytes.len() as u32;
        bytes[..4].copy_from_slice(&len.to_ne_bytes());
        let answers = Case::default().answer(&bytes);
        prop_assert!(!answers.is_empty() || flags & NLM_F_ACK == 0);
    }
}
