//! Calls that were refused: the one that the program did not survive, and those that it did.
//!
//! Programs ask for what may be refused: for sizes until one is granted, for what only some devices
//! have. Such a call is a probe, and not why the program has failed.

use super::Report;
use super::record::Verb;
use super::story::Story;
use crate::topics::catalogue;
use crate::topics::topic::Kind;

/// Probes that are shown.
const MOST: usize = 3;

/// Notes which refusals a process has survived: it has made or changed something afterwards.
pub fn mark_survived(report: &mut Report) {
    for verb in &mut report.verbs {
        let later = |&(process, ns): &(u64, u64)| process == verb.process && ns >= verb.ns;
        verb.survived |= report.survived.iter().any(later);
    }
}

/// The codes of getaddrinfo(3) (netdb.h), which `rdma_getaddrinfo` returns as they are.
const RESOLVER: [(i32, &str); 10] = [
    (libc::EAI_AGAIN, "EAI_AGAIN"),
    (libc::EAI_BADFLAGS, "EAI_BADFLAGS"),
    (libc::EAI_FAIL, "EAI_FAIL"),
    (libc::EAI_FAMILY, "EAI_FAMILY"),
    (libc::EAI_MEMORY, "EAI_MEMORY"),
    (libc::EAI_NODATA, "EAI_NODATA"),
    (libc::EAI_NONAME, "EAI_NONAME"),
    (libc::EAI_SERVICE, "EAI_SERVICE"),
    (libc::EAI_SOCKTYPE, "EAI_SOCKTYPE"),
    (libc::EAI_SYSTEM, "EAI_SYSTEM"),
];

fn errno(verb: &Verb) -> String {
    if verb.errno < 0 {
        let known = RESOLVER.iter().find(|(code, _)| *code == verb.errno);
        let name = known.map_or("code", |(_, name)| name);
        return format!("{name} ({})", verb.errno);
    }
    let topic = catalogue::numbered(Kind::Errno, verb.errno as u32).next();
    let name = topic.map_or(String::new(), |topic| format!(" {}", topic.name));
    format!("errno {}{name}", verb.errno)
}

/// Tells the last refusal that the program did not survive; false: there is none.
pub fn tell_last(report: &Report, story: &mut Story) -> bool {
    let mut fatal = report.verbs.iter().filter(|verb| !verb.survived);
    // What a device lacks is asked for in passing, if there is anything else.
    let telling = fatal.clone().rfind(|verb| verb.errno != libc::EOPNOTSUPP);
    let Some(verb) = telling.or_else(|| fatal.next_back()) else {
        return false;
    };
    story.seen.push(format!(
        "the last call that was refused in {}: {} with {}",
        report.process(verb.process),
        verb.verb,
        errno(verb)
    ));
    story.cause = Some(verb.reason.clone());
    story.next.push(match verb.errno {
        ..0 => "getent ahosts NODE      what this host's resolver knows of a name; a port is a number, or a name of \
                /etc/services"
            .to_owned(),
        errno => format!("rnic explain errno {errno}"),
    });
    true
}

/// The same, if it is a call of the connection manager, as a story of its own.
pub fn tell_of_cm(report: &Report) -> Option<Story> {
    let mut fatal = report.verbs.iter().filter(|verb| !verb.survived);
    if !fatal.next_back()?.verb.starts_with("rdma_") {
        return None;
    }
    let mut story = Story::default();
    if !tell_last(report, &mut story) {
        return None;
    }
    story.what = story.seen.remove(0);
    Some(story)
}

/// Tells of the last ones that it did survive; false: there are none.
pub fn tell_probes(report: &Report, story: &mut Story) -> bool {
    let mut probes: Vec<&Verb> = Vec::new();
    for verb in report.verbs.iter().filter(|verb| verb.survived) {
        let of = |verb: &Verb| (verb.process, verb.verb.clone(), verb.errno);
        // Of those that asked for less and less, the last.
        probes.retain(|other| of(other) != of(verb));
        probes.push(verb);
    }
    let skipped = probes.len().saturating_sub(MOST);
    for verb in &probes[skipped..] {
        story.seen.push(format!(
            "a probe, after which {} went on: {} was refused with {} ({})",
            report.process(verb.process),
            verb.verb,
            errno(verb),
            verb.reason
        ));
    }
    !probes.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(process: u64, ns: u64, verb: &str) -> Verb {
        Verb {
            process,
            ns,
            verb: verb.to_owned(),
            errno: libc::EOPNOTSUPP,
            reason: "the device does not have it".to_owned(),
            survived: false,
        }
    }

    /// Promise: what is blamed is a call after which its process made nothing any more, also if
    /// the device lacks what it asked for.
    #[test]
    fn what_was_survived_is_a_probe() {
        let mut report = Report {
            verbs: vec![
                refused(1, 10, "ibv_create_cq"),
                refused(1, 30, "ibv_alloc_buf"),
                refused(2, 40, "ibv_create_qp"),
            ],
            survived: vec![(1, 20), (2, 50)],
            ..Report::default()
        };
        mark_survived(&mut report);
        let mut story = Story::default();
        assert!(tell_last(&report, &mut story));
        assert!(story.seen[0].contains("ibv_alloc_buf with errno 95 EOPNOTSUPP"));
        assert_eq!(story.cause.as_deref(), Some("the device does not have it"));
        let mut story = Story::default();
        assert!(tell_probes(&report, &mut story));
        assert_eq!(story.seen.len(), 2);
        assert!(story.seen[0].contains("a probe") && story.seen[0].contains("ibv_create_cq"));
        assert!(story.cause.is_none(), "a probe is no cause");
        report.survived.push((1, 60));
        mark_survived(&mut report);
        assert!(!tell_last(&report, &mut Story::default()));
    }
}
