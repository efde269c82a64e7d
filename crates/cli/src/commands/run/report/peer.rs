//! What is known of the peer of a request that failed: from this run, and from others of this user.

use super::Report;
use super::record::{Connected, Failure, Left, Unheard};
use super::story::seconds;

/// The last that is known of it up to the failure.
#[derive(Debug, Default)]
pub struct Peer<'a> {
    pub connected: Option<&'a Connected>,
    /// Taken down since.
    pub left: Option<&'a Left>,
    /// It had no ears for a packet of this connection.
    pub unheard: Option<&'a Unheard>,
}

pub fn of<'a>(report: &'a Report, failure: &Failure) -> Peer<'a> {
    let until = |ns: u64| ns <= failure.ns;
    let connected = report
        .all(|report| &report.connected)
        .filter(|c| failure.ends.leads_to(&c.ends) && until(c.ns))
        .max_by_key(|c| c.ns);
    let left = report
        .all(|report| &report.left)
        .filter(|left| failure.ends.leads_to(&left.ends) && until(left.ns))
        .filter(|left| connected.is_none_or(|c| c.ns <= left.ns))
        .min_by_key(|left| left.ns);
    let unheard = report
        .all(|report| &report.unheard)
        .filter(|unheard| unheard.is_of(&failure.ends))
        .find(|unheard| until(unheard.ns) && unheard.ns >= failure.since_ns);
    Peer {
        connected,
        left,
        unheard,
    }
}

/// What to do about sides that do not fit.
const LEFT: &str = "see why the peer took its queue pair down; a side that is done should wait for the other before it does";
const ENDS: &str = "compare QPN and GID as both sides have them (dest_qp_num and ah_attr.grh.dgid of ibv_modify_qp to RTR)";
const TYPES: &str = "create both queue pairs with the same qp_type (ibv_create_qp)";
const READY: &str = "connect both sides (RTR) before either sends";

impl Peer<'_> {
    /// Its queue pair does not fit this one, or was not there for it: why.
    pub fn does_not_fit(
        &self,
        report: &Report,
        failure: &Failure,
    ) -> Option<(String, &'static str)> {
        if let Some(left) = self.left.filter(|left| was_before(failure, left.ns)) {
            let process = report.process(left.process);
            let ago = seconds(failure.ns.saturating_sub(left.ns));
            let what = match left.how.as_str() {
                "destroyed" => {
                    format!("the peer, {process}, had destroyed its queue pair, {ago} before")
                }
                "RESET" | "ERR" => format!(
                    "the peer, {process}, had moved its queue pair to {}, {ago} before",
                    left.how
                ),
                _ => return None,
            };
            return Some((what, LEFT));
        }
        if let Some(connected) = self.connected.filter(|_| self.left.is_none()) {
            let (theirs, process) = (&connected.ends, report.process(connected.process));
            let is_other = !theirs.is_opposite(&failure.ends);
            if let (true, Some(peer), Some(qpn)) = (is_other, &theirs.peer, theirs.peer_qpn) {
                let what = format!(
                    "the peer's queue pair, of {process}, is connected with {peer} QP {qpn:#x} and not with this one: its \
                     dest_qp_num or destination GID is another"
                );
                return Some((what, ENDS));
            }
            if connected.qp_type != failure.qp_type && is_known(&connected.qp_type) {
                let what = format!(
                    "the peer's queue pair, of {process}, is of type {} (ibv_create_qp), and this one of type {}",
                    connected.qp_type, failure.qp_type
                );
                return Some((what, TYPES));
            }
        }
        let unheard = self.unheard.filter(|_| self.connected.is_none())?;
        let process = report.process(unheard.process);
        match (unheard.cause.as_str(), unheard.state.as_deref()) {
            ("unknown qpn", _) => Some((
                format!(
                    "{process}, to which QP numbers like {:#x} belong, had no queue pair of that number",
                    unheard.ends.qpn
                ),
                ENDS,
            )),
            ("not ready", Some("ERR")) => Some((
                format!("the peer's queue pair, of {process}, was in ERR"),
                LEFT,
            )),
            ("not ready", Some(state @ ("RESET" | "INIT"))) => Some((
                format!(
                    "the peer's queue pair, of {process}, was in {state}: it takes packets from RTR on"
                ),
                READY,
            )),
            ("other service", _) => Some((
                format!(
                    "the peer's queue pair, of {process}, is of type {}, and this one of type {}",
                    unheard.state.as_deref().unwrap_or("another"),
                    failure.qp_type
                ),
                TYPES,
            )),
            _ => None,
        }
    }
}

/// So early that the first try of the request met it.
fn was_before(failure: &Failure, ns: u64) -> bool {
    let Some(request) = &failure.request else {
        return false;
    };
    let a_try = request.waited_ns / u64::from(request.tries.max(1));
    let first = failure.ns.saturating_sub(request.waited_ns);
    ns <= first.saturating_add(a_try)
}

/// A type of queue pair that cannot be the other end of every reliable one.
fn is_known(qp_type: &str) -> bool {
    matches!(qp_type, "RC" | "UC" | "UD")
}
