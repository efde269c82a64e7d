//! What the report as text says of the whole capture.

use std::collections::BTreeSet;

use rnic_dissect::{Capture, link_type_name};

use super::format::{count, span};
use super::{Report, phrases};

/// Which queue pairs there are; the first few.
pub fn there(capture: &Capture) -> String {
    let ends = capture.conversations.iter().flat_map(|c| c.ends);
    let all: BTreeSet<u32> = ends.filter_map(|end| end.qpn).collect();
    if all.is_empty() {
        return "there are none".into();
    }
    let shown: Vec<_> = all.iter().take(16).map(|qpn| format!("{qpn:#x}")).collect();
    let more = match all.len() - shown.len() {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    format!("there are {}{more}", shown.join(", "))
}

/// The file, what was left out, the ICRCs: a line each.
pub fn lines(report: &Report<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut say = |line: String| lines.push(line);
    let capture = report.capture;
    let format = report
        .format
        .map_or("capture".into(), |format| format.to_string());
    let links: Vec<_> = report
        .link_types
        .iter()
        .map(|&link| link_type_name(link))
        .collect();
    say(format!(
        "{}: {format}, {}; {} in {}, {} of RoCEv2",
        report.name,
        if links.is_empty() {
            "empty".into()
        } else {
            links.join(", ")
        },
        count(capture.frames, "frame"),
        span(capture.time.1 - capture.time.0),
        count(capture.packets, "packet"),
    ));
    if let Some(why) = &report.ended {
        say(format!(
            "It was not read to its end: {why}. What came before is below."
        ));
    }
    for (skip, n) in &capture.skipped.frames {
        say(format!(
            "left out: {} ({})",
            count(*n, "frame"),
            phrases::skipped(*skip)
        ));
    }
    for (why, n, first) in &capture.skipped.packets {
        say(format!(
            "to port 4791, but no packet: {} ({}), the first one is frame {first}",
            count(*n, "frame"),
            phrases::no_packet(*why)
        ));
    }
    if capture.skipped.copies > 0 {
        say(format!(
            "left out: {} of a packet that another interface, or the other direction, had shown",
            count(capture.skipped.copies, "copy")
        ));
    }
    if capture.uncut > 0 {
        say(format!(
            "{} held several packets each, as the sender hands them to the kernel (GSO): taken apart here",
            count(capture.uncut, "frame")
        ));
    }
    if capture.cut > 0 {
        say(format!(
            "{} cut when captured (snap length): payload and ICRC are not looked at",
            match capture.cut {
                1 => "1 packet was".into(),
                n => format!("{n} packets were"),
            }
        ));
    }
    let checked = capture.packets - capture.icrc_unchecked;
    if checked > 0 && capture.icrc_wrong + capture.icrc_other == 0 {
        say(match checked {
            1 => "ICRC: right in 1 packet".into(),
            n => format!("ICRC: right in all {n} packets"),
        });
    } else if checked > 0 {
        say(format!(
            "ICRC: wrong in {}, right only for another IP header in {}, of {checked}",
            capture.icrc_wrong, capture.icrc_other
        ));
        if capture.icrc_wrong > 0 {
            say(
                "packets with a wrong ICRC are part of no conversation below, as receivers drop them: what is missing there may be \
                 among them"
                    .into(),
            );
        }
    }
    lines
}
