//! Long rows of packets: the sockets take them, where the kernel cuts what a socket is given (GSO).
//!
//! Past the network stack the kernel copies packet by packet, and tells the card of each. Of a row
//! in one piece the card is told once, so from some packets on that is much faster, whatever the
//! stack takes. Zero copy needs none of this.
//!
//! Packets of one path are not to overtake each other, or RC repeats and UC loses them. A path
//! leaves the one way only once what it sent there is through: the driver has all frames, or the
//! card is done with them where it has several queues; or the socket has nothing unsent. Until then
//! it stays. And all of its packets in one batch go the same way.

use std::sync::Arc;

use crate::staging::batch::Run;
use crate::staging::path::Route;
use rnic_sys as sys;

/// So many packets are a long row. An RDMA WRITE's first packet is longer than the next, so that
/// one of 4 KiB in packets of 1 KiB is two short ones: the stack takes longer for two than for four
/// packets past it.
const LONG: usize = 4;

/// Which paths of a batch take the socket.
#[derive(Debug, Default)]
pub(super) struct Rows {
    any: bool,
    decided: Vec<(Arc<Route>, bool)>,
}

impl Rows {
    /// A batch is to be sent.
    #[inline]
    pub(super) fn begin(&mut self, batch: &[Run]) {
        self.any = batch.iter().any(is_long);
    }

    /// It was sent.
    #[inline]
    pub(super) fn end(&mut self) {
        self.decided.clear();
    }

    /// There is something to decide for this path.
    #[inline]
    pub(super) fn concern(&self, route: &Route) -> bool {
        self.any && route.gso() || route.goes_in_rows()
    }

    /// The packets of this path in the batch take the socket. `may_leave`: what it sent past the
    /// stack would not be overtaken.
    pub(super) fn take_socket(
        &mut self,
        batch: &[Run],
        route: &Arc<Route>,
        may_leave: impl FnOnce() -> bool,
    ) -> bool {
        let known = self.decided.iter().find(|(of, _)| Arc::ptr_eq(of, route));
        if let Some(&(_, takes)) = known {
            return takes;
        }
        let takes = if route.goes_in_rows() {
            are_long(batch, route) || !have_left(route)
        } else {
            are_long(batch, route) && may_leave()
        };
        route.set_in_rows(takes);
        self.decided.push((route.clone(), takes));
        takes
    }
}

#[inline]
fn is_long(run: &Run) -> bool {
    run.count >= LONG
}

/// This path has a long row in the batch, which the kernel would cut.
fn are_long(batch: &[Run], route: &Arc<Route>) -> bool {
    let its = |run: &Run| run.route.as_ref().is_some_and(|of| Arc::ptr_eq(of, route));
    route.gso() && batch.iter().any(|run| is_long(run) && its(run))
}

/// What the socket of this path was given has left the host.
fn have_left(route: &Route) -> bool {
    !route.socket.is_full() && sys::unsent(route.socket.fd()).is_ok_and(|bytes| bytes == 0)
}

#[cfg(test)]
mod tests {
    //! Long rows take the socket, and nothing overtakes anything. That both ways carry them in
    //! order is in `tests/xdp.rs`.

    use super::*;
    use crate::staging::batch::TxBatch;
    use crate::staging::path::tests::route;

    fn path(dest_qpn: u32) -> Arc<Route> {
        route("127.0.0.1", "127.0.0.1", dest_qpn)
    }

    /// Rows of so many packets each, of these paths.
    fn batch(rows: &[(&Arc<Route>, usize)]) -> TxBatch {
        let mut batch = TxBatch::default();
        for (n, &(route, count)) in rows.iter().enumerate() {
            for _ in 0..count {
                // No two rows are one.
                let room = batch.packet(Some(route), 96 + 4 * n, 64);
                room.expect("room").fill(0);
            }
        }
        batch.finish();
        batch
    }

    /// For each row whether it takes the socket.
    fn take_socket(rows: &[(&Arc<Route>, usize)], may_leave: bool) -> Vec<bool> {
        let batch = batch(rows);
        let runs = batch.runs();
        assert_eq!(runs.len(), rows.len());
        let mut rows = Rows::default();
        rows.begin(runs);
        let takes = |run: &Run| {
            let route = run.route.as_ref().expect("a path");
            rows.concern(route) && rows.take_socket(runs, route, || may_leave)
        };
        runs.iter().map(takes).collect()
    }

    #[test]
    fn all_packets_of_a_path_that_has_a_long_row_take_the_socket() {
        let [a, b] = [0x5000, 0x6000].map(path);
        let long = [(&a, 2), (&b, LONG - 1), (&a, LONG), (&a, 1)];
        assert_eq!(take_socket(&long, true), [true, false, true, true]);
        assert_eq!(take_socket(&[(&a, LONG - 1), (&b, 1)], true), [false; 2]);
    }

    #[test]
    fn no_row_overtakes_what_is_on_its_way_past_the_stack() {
        let a = path(0x5000);
        assert_eq!(take_socket(&[(&a, LONG)], false), [false]);
        assert_eq!(take_socket(&[(&a, LONG)], true), [true]);
        // And one that went by the socket needs no leave to do so again.
        assert_eq!(take_socket(&[(&a, LONG)], false), [true]);
    }

    #[test]
    fn a_path_stays_with_the_socket_until_all_has_left() {
        let a = path(0x5000);
        assert_eq!(take_socket(&[(&a, LONG)], true), [true]);
        a.socket.set_full(true);
        assert_eq!(take_socket(&[(&a, 1)], true), [true]);
        a.socket.set_full(false);
        assert_eq!(take_socket(&[(&a, 1)], true), [false]);
    }

    #[test]
    fn where_the_kernel_does_not_cut_there_are_no_rows() {
        let a = path(0x5000);
        assert_eq!(take_socket(&[(&a, LONG)], true), [true]);
        a.refuse_gso();
        assert_eq!(take_socket(&[(&a, LONG)], true), [false]);
    }
}
