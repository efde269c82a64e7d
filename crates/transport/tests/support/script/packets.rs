//! Packets by name: building what the peer sends, checking what the queue pair sends.

use super::{Args, Outcome, World, pattern};
use rnic_transport::Role;
use rnic_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Ext, Feth, Ieth, ImmDt, NakCode, Opcode, Operation,
    Packet, Psn, Reth, Service, Syndrome, Xrceth, emit, header_len, pad_len,
};

const NAMES: [(&str, Operation); 25] = [
    ("SEND_FIRST", Operation::SendFirst),
    ("SEND_MIDDLE", Operation::SendMiddle),
    ("SEND_LAST", Operation::SendLast),
    ("SEND_LAST_IMM", Operation::SendLastImm),
    ("SEND_LAST_INV", Operation::SendLastInvalidate),
    ("SEND_ONLY", Operation::SendOnly),
    ("SEND_ONLY_IMM", Operation::SendOnlyImm),
    ("SEND_ONLY_INV", Operation::SendOnlyInvalidate),
    ("WRITE_FIRST", Operation::WriteFirst),
    ("WRITE_MIDDLE", Operation::WriteMiddle),
    ("WRITE_LAST", Operation::WriteLast),
    ("WRITE_LAST_IMM", Operation::WriteLastImm),
    ("WRITE_ONLY", Operation::WriteOnly),
    ("WRITE_ONLY_IMM", Operation::WriteOnlyImm),
    ("READ_REQUEST", Operation::ReadRequest),
    ("READ_FIRST", Operation::ReadResponseFirst),
    ("READ_MIDDLE", Operation::ReadResponseMiddle),
    ("READ_LAST", Operation::ReadResponseLast),
    ("READ_ONLY", Operation::ReadResponseOnly),
    ("ACK", Operation::Acknowledge),
    ("ATOMIC_ACK", Operation::AtomicAcknowledge),
    ("CMP_SWAP", Operation::CompareSwap),
    ("FETCH_ADD", Operation::FetchAdd),
    ("FLUSH", Operation::Flush),
    ("ATOMIC_WRITE", Operation::AtomicWrite),
];

/// Acknowledges with a syndrome of their own have names of their own.
const NAKS: [(&str, NakCode); 5] = [
    ("NAK_SEQ", NakCode::PsnSequenceError),
    ("NAK_INVALID_REQUEST", NakCode::InvalidRequest),
    ("NAK_REMOTE_ACCESS", NakCode::RemoteAccessError),
    ("NAK_REMOTE_OPERATIONAL", NakCode::RemoteOperationalError),
    ("NAK_INVALID_RD", NakCode::InvalidRdRequest),
];

struct Parsed {
    bth: Bth,
    ext: Ext,
    len: usize,
    payload: Option<Vec<u8>>,
    credits_given: bool,
}

/// Payload as described: `fill=BYTE`, `data=ADDRESS` (the pattern of that place), or `default`.
pub fn payload(
    world: &World,
    args: &mut Args<'_>,
    len: usize,
    default: Option<u8>,
) -> Outcome<Option<Vec<u8>>> {
    if let Some(byte) = args.number("fill")? {
        return Ok(Some(vec![byte as u8; len]));
    }
    if let Some(place) = args.text("data") {
        let base = world.address(place)?;
        return Ok(Some((base..base + len as u64).map(pattern).collect()));
    }
    Ok(default.map(|byte| vec![byte; len]))
}

fn parse(world: &World, args: &mut Args<'_>, incoming: bool) -> Outcome<Parsed> {
    let name = args.word()?;
    let psn = args.need("psn")?;
    let nak = NAKS.iter().find(|(n, _)| *n == name).map(|(_, code)| *code);
    let (operation, syndrome) = match (name, nak) {
        (_, Some(code)) => (Operation::Acknowledge, Some(Syndrome::Nak(code))),
        ("NAK", _) => {
            let code = NakCode::from_u8(args.need("code")? as u8);
            (Operation::Acknowledge, Some(Syndrome::Nak(code)))
        }
        ("RNR_NAK", _) => {
            let timer = args.need("timer")? as u8;
            (Operation::Acknowledge, Some(Syndrome::RnrNak { timer }))
        }
        ("RESERVED_ACK", _) => {
            let byte = args.need("syndrome")? as u8;
            (Operation::Acknowledge, Some(Syndrome::Reserved(byte)))
        }
        _ => {
            let operation = NAMES
                .iter()
                .find(|(n, _)| *n == name)
                .map(|(_, operation)| *operation)
                .ok_or_else(|| format!("no packet {name}"))?;
            (operation, None)
        }
    };
    let len = args.number("len")?.unwrap_or(0) as usize;
    let mut ext = Ext::default();
    if operation.has_reth() {
        let dma_len = match args.number("dmalen")? {
            Some(n) => n as u32,
            None if operation.is_only() && operation.has_payload() => len as u32,
            None => return Err("dmalen= is missing".into()),
        };
        ext.reth = Some(Reth {
            va: world.address(args.text("va").unwrap_or("0x5000"))?,
            rkey: world.rkey(args.text("rkey").unwrap_or("0x77"))?,
            dma_len,
        });
    }
    if operation.has_feth() {
        ext.feth = Some(Feth {
            placement: args.need("placement")? as u8,
            selectivity: args.number("selectivity")?.unwrap_or(0) as u8,
        });
    }
    if operation.is_atomic() {
        let fetch_add = operation == Operation::FetchAdd;
        ext.atomic = Some(AtomicEth {
            va: world.address(args.text("va").unwrap_or("0x5000"))?,
            rkey: world.rkey(args.text("rkey").unwrap_or("0x77"))?,
            swap_or_add: args.need(if fetch_add { "add" } else { "swap" })?,
            compare: if fetch_add { 0 } else { args.need("compare")? },
        });
    }
    if operation.has_immediate() {
        ext.imm = Some(ImmDt((args.need("imm")? as u32).to_be_bytes()));
    }
    if matches!(
        operation,
        Operation::SendLastInvalidate | Operation::SendOnlyInvalidate
    ) {
        let text = args.text("inv").ok_or("inv= is missing")?;
        ext.ieth = Some(Ieth {
            rkey: world.rkey(text)?,
        });
    }
    let mut credits_given = false;
    if operation.has_aeth() {
        let credits = args.number("credits")?;
        credits_given = credits.is_some() || syndrome.is_some();
        let msn = if incoming {
            args.number("msn")?.unwrap_or(0)
        } else {
            args.need("msn")?
        };
        ext.aeth = Some(Aeth {
            syndrome: syndrome.unwrap_or(Syndrome::Ack {
                credits: credits.unwrap_or(31) as u8,
            }),
            msn: msn as u32,
        });
    }
    if operation == Operation::AtomicAcknowledge {
        ext.atomic_ack = Some(AtomicAckEth {
            original: args.need("original")?,
        });
    }
    let default = incoming.then_some(psn as u8);
    let payload = payload(world, args, len, default)?;
    let service = match args.text("service") {
        None if world.attr.role == Role::Rc => world.service,
        None => Service::Xrc,
        Some("rc") => Service::Rc,
        Some("uc") => Service::Uc,
        Some("xrc") => Service::Xrc,
        Some(other) => return Err(format!("no service {other}")),
    };
    if service == Service::Xrc && operation.is_request() {
        let srqn = args.need("srqn")? as u32;
        ext.xrceth = Some(Xrceth { srqn });
    }
    if service == Service::Ud {
        ext.deth = Some(Deth {
            qkey: args
                .number("qkey")?
                .map_or(world.datagrams.qkey, |n| n as u32),
            src_qp: match args.number("src")? {
                Some(n) => n as u32,
                None if incoming => world.attr.dest_qpn,
                None => world.attr.qpn,
            },
        });
    }
    let bth = Bth {
        opcode: Opcode::new(service, operation),
        solicited: args.flag("se"),
        mig_req: false,
        pad: pad_len(len),
        version: 0,
        pkey: world.attr.pkey,
        fecn: false,
        becn: false,
        dest_qp: match args.number("to")? {
            Some(n) => n as u32,
            None if incoming => world.attr.qpn,
            None => world.attr.dest_qpn,
        },
        ack_req: args.flag("ackreq"),
        psn: Psn::new(psn as u32),
    };
    Ok(Parsed {
        bth,
        ext,
        len,
        payload,
        credits_given,
    })
}

/// The packet that a `<` line describes: BTH to last pad byte.
pub fn build(world: &World, args: &mut Args<'_>) -> Outcome<Vec<u8>> {
    let parsed = parse(world, args, true)?;
    let payload = parsed.payload.unwrap_or_default();
    let header = header_len(parsed.bth.opcode);
    let mut bytes = vec![0; header + payload.len() + usize::from(pad_len(payload.len()))];
    emit(&parsed.bth, &parsed.ext, &mut bytes);
    bytes[header..header + payload.len()].copy_from_slice(&payload);
    Ok(bytes)
}

/// Compares an emitted packet with a `>` line.
pub fn check(world: &World, args: &mut Args<'_>, bytes: &[u8]) -> Outcome {
    let expected = parse(world, args, false)?;
    let mut seen = Packet::parse(bytes).map_err(|e| e.to_string())?;
    if seen.bth.opcode != expected.bth.opcode {
        return Err("another packet was emitted".into());
    }
    // Nobody has to set it, nobody looks at it.
    seen.bth.mig_req = false;
    if !expected.credits_given
        && let (Some(aeth), Some(Aeth { syndrome, .. })) = (&mut seen.ext.aeth, expected.ext.aeth)
        && matches!(aeth.syndrome, Syndrome::Ack { .. })
    {
        aeth.syndrome = syndrome;
    }
    if seen.payload.len() != expected.len {
        return Err(format!("len={} was emitted", seen.payload.len()));
    }
    if seen.bth != expected.bth {
        return Err("the BTH differs".into());
    }
    if seen.ext != expected.ext {
        return Err("the extended headers differ".into());
    }
    match expected.payload {
        Some(payload) if payload != seen.payload.here() => Err(format!(
            "the payload differs, first at byte {:?}",
            payload
                .iter()
                .zip(seen.payload.here())
                .position(|(a, b)| a != b)
        )),
        _ => Ok(()),
    }
}

/// A packet in the script's words.
pub fn describe(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let Ok(packet) = Packet::parse(bytes) else {
        return format!("{bytes:02x?}");
    };
    let operation = packet.bth.opcode.operation();
    let mut name = NAMES
        .iter()
        .find(|(_, o)| Some(*o) == operation)
        .map_or("?", |(n, _)| n)
        .to_owned();
    let mut more = String::new();
    if let Some(aeth) = packet.ext.aeth {
        match aeth.syndrome {
            Syndrome::Ack { credits } => {
                let _ = write!(more, " msn={} credits={credits}", aeth.msn);
            }
            Syndrome::RnrNak { timer } => {
                name = "RNR_NAK".into();
                let _ = write!(more, " msn={} timer={timer}", aeth.msn);
            }
            Syndrome::Nak(code) => {
                name = NAKS.iter().find(|(_, c)| *c == code).map_or_else(
                    || format!("NAK code={}", code.to_u8()),
                    |(n, _)| (*n).into(),
                );
                let _ = write!(more, " msn={}", aeth.msn);
            }
            Syndrome::Reserved(byte) => {
                name = "RESERVED_ACK".into();
                let _ = write!(more, " syndrome={byte:#x} msn={}", aeth.msn);
            }
        }
    }
    if let Some(Xrceth { srqn }) = packet.ext.xrceth {
        let _ = write!(more, " srqn={srqn:#x}");
    }
    if let Some(deth) = packet.ext.deth {
        let _ = write!(more, " qkey={:#x} src={:#x}", deth.qkey, deth.src_qp);
    }
    if let Some(feth) = packet.ext.feth {
        let _ = write!(
            more,
            " placement={} selectivity={}",
            feth.placement, feth.selectivity
        );
    }
    if let Some(reth) = packet.ext.reth {
        let _ = write!(
            more,
            " va={:#x} rkey={:#x} dmalen={}",
            reth.va, reth.rkey, reth.dma_len
        );
    }
    if let Some(atomic) = packet.ext.atomic {
        let _ = write!(
            more,
            " va={:#x} rkey={:#x} swap|add={:#x} compare={:#x}",
            atomic.va, atomic.rkey, atomic.swap_or_add, atomic.compare
        );
    }
    if let Some(ack) = packet.ext.atomic_ack {
        let _ = write!(more, " original={:#x}", ack.original);
    }
    if let Some(ImmDt(imm)) = packet.ext.imm {
        let _ = write!(more, " imm={:#x}", u32::from_be_bytes(imm));
    }
    if let Some(ieth) = packet.ext.ieth {
        let _ = write!(more, " inv={:#x}", ieth.rkey);
    }
    format!(
        "> {name} psn={}{}{}{more}{}",
        packet.bth.psn.value(),
        if packet.bth.ack_req { " ackreq" } else { "" },
        if packet.bth.solicited { " se" } else { "" },
        if packet.payload.is_empty() {
            String::new()
        } else {
            format!(" len={}", packet.payload.len())
        }
    )
}
