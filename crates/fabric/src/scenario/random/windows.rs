//! Random memory windows of a flow.

use rnic_nic::MwType;

use crate::scenario::{Direction, Flow, Grant, Kind, Op, Window};

/// Some operations of a direction go through windows. Of every other flow the last ones are
/// refused.
pub(super) fn add(rng: &mut fastrand::Rng, flow: &mut Flow) {
    let end = rng.usize(..2);
    let direction = &mut flow.directions[end];
    direction.windows = (0..rng.usize(1..=3)).map(|_| window(rng)).collect();
    let mut open = vec![false; direction.windows.len()];
    let ops = std::mem::take(&mut direction.ops);
    for mut op in ops {
        let at = rng.usize(..open.len());
        if rng.u8(..6) == 0 {
            change(rng, direction, at, &mut open[at]);
        }
        if open[at] && suits(&direction.windows[at], &op) && rng.u8(..4) != 0 {
            op.window = Some(at as u8);
        }
        direction.ops.push(op);
    }
    if rng.bool() {
        refused(rng, direction, &open);
    }
}

fn window(rng: &mut fastrand::Rng) -> Window {
    let mw_type = [MwType::Type1, MwType::Type2][rng.usize(..2)];
    let from = rng.u32(..4000);
    Window {
        mw_type,
        grant: [Grant::Write, Grant::Write, Grant::Read, Grant::Atomic][rng.usize(..4)],
        range: (from, from + rng.u32(1..=10_000)),
        zero_based: mw_type == MwType::Type2 && rng.bool(),
    }
    .usual()
}

/// The operation is granted by that window when it is open.
fn suits(window: &Window, op: &Op) -> bool {
    let right = match window.grant {
        Grant::Write => op.kind.is_write(),
        Grant::Read => op.kind == Kind::Read,
        Grant::Atomic => op.kind.is_atomic(),
    };
    right && op.len <= window.len()
}

/// Binds or closes a window.
fn change(rng: &mut fastrand::Rng, direction: &mut Direction, at: usize, is_open: &mut bool) {
    let is_type_2 = direction.windows[at].mw_type == MwType::Type2;
    let kind = match (*is_open, is_type_2) {
        (false, _) => Kind::Bind,
        (true, false) => [Kind::Bind, Kind::Unbind][rng.usize(..2)],
        (true, true) => [Kind::SendInvalidate, Kind::Unbind][rng.usize(..2)],
    };
    *is_open = kind == Kind::Bind;
    let len = match kind {
        Kind::SendInvalidate => rng.u32(..3000),
        _ => 0,
    };
    direction.ops.push(Op {
        window: Some(at as u8),
        // Or it may overtake READs and atomics (IBTA vol. 1, 10.8.3.3).
        fence: kind == Kind::SendInvalidate,
        ..Op::new(kind, len)
    });
}

/// An access that is refused, and some operations behind it.
fn refused(rng: &mut fastrand::Rng, direction: &mut Direction, open: &[bool]) {
    let at = rng.usize(..open.len());
    let window = &direction.windows[at];
    let is_beyond = Op::new(Kind::Write, window.len() + 1);
    let kinds = [Kind::Write, Kind::Read, Kind::FetchAdd];
    let others = kinds.map(|kind| Op::new(kind, 8));
    let mut all = others.into_iter().chain([is_beyond]);
    let Some(op) = all.find(|op| !open[at] || !suits(window, op)) else {
        return;
    };
    direction.ops.push(Op {
        window: Some(at as u8),
        ..op
    });
    let behind = [Kind::Send, Kind::Write, Kind::Read].map(|kind| Op::new(kind, 100));
    direction.ops.extend(&behind[..rng.usize(..=3)]);
}
