//! What waits to be done in a row with others, without packets, is done although its program never
//! polls again; rows are done in the order in which they were posted, and with all that was posted
//! between them.

use crate::pair;
use crate::writes_without_polling;

use crate::region::{Region, wait};
use proptest::prelude::*;
use rnic_nic::{Context, RecvWqe, SendData, SendOp, SendWqe, SgList};

const ROOM: usize = 64 * 1024;
/// The longest; of longer ones none goes in a row.
const LONGEST: usize = 20_000;
const DEPTH: u32 = 128;

#[test]
fn posts_of_a_program_that_never_polls_arrive() {
    let by_memory = std::env::var_os("RNIC_HOST_PATH").is_none_or(|path| path != "off");
    writes_without_polling::posts_arrive(by_memory);
}

/// What is posted, and whether it is in a list with the next.
#[derive(Clone, Copy, Debug)]
struct Step {
    kind: Kind,
    here: usize,
    there: usize,
    len: usize,
    listed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Write,
    Read,
    Send,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = prop_oneof![
        8 => Just(Kind::Write),
        3 => Just(Kind::Read),
        1 => Just(Kind::Send),
    ];
    let len = prop_oneof![6 => 1..40_usize, 2 => 40..5000_usize, 1 => 5000..LONGEST];
    let place = 0..ROOM - LONGEST;
    let step = (kind, place.clone(), place, len, any::<bool>()).prop_map(
        |(kind, here, there, len, listed)| Step {
            kind,
            here,
            there,
            len,
            listed,
        },
    );
    prop::collection::vec(step, 1..DEPTH as usize)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn memory_is_as_if_they_were_done_one_by_one(steps in steps()) {
        let context = Context::open().expect("a device");
        let pd = context.alloc_pd();
        let cq = context.create_cq(4 * DEPTH, None, 0).expect("a completion queue");
        let [a, b] = [(); 2].map(|()| pair::create(&pd, &cq, &cq, None, DEPTH));
        pair::connect(&context, &a, &b);
        let here = Region::new(&pd, ROOM, |i| (i * 7) as u8);
        let there = Region::new(&pd, ROOM, |i| (i * 13 + 5) as u8);
        let (mut ours, mut theirs) = (here.bytes.to_vec(), there.bytes.to_vec());
        let mut list = Vec::new();
        for (n, step) in steps.iter().enumerate() {
            let Step { kind, here: at, there: to, len, listed } = *step;
            let (from, into) = (at..at + len, to..to + len);
            let remote_addr = there.mr.addr() + to as u64;
            let rkey = there.mr.rkey();
            let op = match kind {
                Kind::Write => {
                    theirs[into].copy_from_slice(&ours[from]);
                    SendOp::Write { remote_addr, rkey }
                }
                Kind::Read => {
                    ours[from].copy_from_slice(&theirs[into]);
                    SendOp::Read { remote_addr, rkey }
                }
                Kind::Send => {
                    theirs[into].copy_from_slice(&ours[from]);
                    let sges = SgList::from_slice(&[there.sge(to, len)]);
                    let receive = RecvWqe { wr_id: n as u64, sges };
                    b.post_recv(&mut std::iter::once(Ok(receive)))
                        .map_err(|(_, why)| why)
                        .expect("posted");
                    SendOp::Send
                }
            };
            list.push(SendWqe {
                wr_id: n as u64,
                op,
                data: SendData::Gather(here.pieces(at, len, len / 3, 0)),
                // What a READ brings may be what the next one sends.
                fence: true,
                ..SendWqe::default()
            });
            if !listed {
                pair::post(&a, &mut list);
            }
        }
        pair::post(&a, &mut list);
        let receives = steps.iter().filter(|step| step.kind == Kind::Send).count();
        wait(&cq, steps.len() + receives);
        prop_assert!(here.revoke()[..] == ours[..], "memory of this side");
        prop_assert!(there.revoke()[..] == theirs[..], "memory of the other side");
    }
}
