//! The lines of UD.

use std::fmt::Write;

use super::{name, or_nothing, time};
use crate::scenario::{Datagram, Endpoint, Scenario, To};
use crate::script::{STATUSES, word};

/// `ud NAME HOST ...`
pub(super) fn endpoint(scenario: &Scenario, endpoint: &Endpoint) -> String {
    let host = name(scenario, endpoint.host);
    let usual = Endpoint::new(&endpoint.name, endpoint.host);
    let mut text = format!("ud {} {host}", endpoint.name);
    let numbers = [
        ("depth", endpoint.depth, usual.depth),
        ("receives", endpoint.receives, usual.receives),
        ("psn", endpoint.psn, usual.psn),
    ];
    if endpoint.qkey != usual.qkey {
        let _ = write!(text, " qkey {:#x}", endpoint.qkey);
    }
    for (word, is, _) in numbers.iter().filter(|(_, is, usual)| is != usual) {
        let _ = write!(text, " {word} {is}");
    }
    if let Some(room) = endpoint.room {
        let _ = write!(text, " room {room}");
    }
    if endpoint.late != usual.late {
        let _ = write!(text, " late {}", time(endpoint.late));
    }
    if let Some(srq) = endpoint.srq.and_then(|srq| scenario.srqs.get(srq)) {
        let _ = write!(text, " srq {}", srq.name);
    }
    for group in &endpoint.groups {
        let _ = write!(text, " joins {group}");
    }
    text
}

/// `send BYTES to ...`
pub(super) fn datagram(scenario: &Scenario, datagram: &Datagram) -> String {
    let kind = if datagram.imm { "send_imm" } else { "send" };
    let to = match datagram.to {
        To::Group(group) => group.to_string(),
        To::Endpoint(to) => {
            let endpoint = scenario.endpoints.get(to);
            endpoint.map_or("?".to_owned(), |endpoint| endpoint.name.clone())
        }
    };
    let qkey = datagram.qkey;
    let qkey = qkey.map_or(String::new(), |qkey| format!(" qkey {qkey:#x}"));
    let unsignaled = if datagram.signaled { "" } else { " unsignaled" };
    let after = or_nothing(datagram.after != 0, || {
        format!(" after {}", time(datagram.after))
    });
    let status = word(STATUSES, &datagram.expect);
    let status = or_nothing(status != "success", || format!(" -> {status}"));
    format!(
        "{kind} {} to {to}{qkey}{unsignaled}{after}{status}",
        datagram.len
    )
}
