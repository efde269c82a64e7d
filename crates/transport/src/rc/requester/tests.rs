//! The requester against a peer that the test plays.

use crate::rc::testing::*;
use crate::{SendData, SendOp, SgList, Sge, Status};
use Operation::*;
use alloc::vec::Vec;
use alloc::{format, vec};
use rnic_wire::{NakCode, Operation, PathMtu, Psn, Reth, Syndrome, rnr_timer_ns};

const OK: Status = Status::Success;
const FLUSHED: Status = Status::WorkRequestFlushed;
const LEN: u32 = 3 * MTU as u32 + 10;

mod segmentation {
    use super::*;

    #[test]
    fn each_operation_is_cut_at_the_mtu() {
        let imm = [1, 2, 3, 4];
        let write_imm = SendOp::WriteImm {
            remote_addr: 0x5000,
            rkey: 5,
            imm,
        };
        let cases: [(SendOp, u32, &[Operation]); 12] = [
            (SendOp::Send, 0, &[SendOnly]),
            (SendOp::Send, 256, &[SendOnly]),
            (SendOp::Send, 257, &[SendFirst, SendLast]),
            (SendOp::Send, 513, &[SendFirst, SendMiddle, SendLast]),
            (SendOp::SendImm(imm), 1, &[SendOnlyImm]),
            (SendOp::SendImm(imm), 512, &[SendFirst, SendLastImm]),
            (SendOp::SendInvalidate(9), 3, &[SendOnlyInvalidate]),
            (
                SendOp::SendInvalidate(9),
                300,
                &[SendFirst, SendLastInvalidate],
            ),
            (WRITE, 0, &[WriteOnly]),
            (
                WRITE,
                800,
                &[WriteFirst, WriteMiddle, WriteMiddle, WriteLast],
            ),
            (write_imm, 9, &[WriteOnlyImm]),
            (write_imm, 300, &[WriteFirst, WriteLastImm]),
        ];
        for (op, len, want) in cases {
            let mut f = Fixture::new();
            f.post(op, len);
            let sent = f.poll();
            assert_eq!(
                sent.iter().map(|p| p.operation).collect::<Vec<_>>(),
                want,
                "{op:?} {len}"
            );
            let payload: Vec<u8> = sent.iter().flat_map(|p| p.payload.clone()).collect();
            assert_eq!(payload, f.bench.memory[..len as usize]);
            for (i, packet) in sent.iter().enumerate() {
                let last = i + 1 == sent.len();
                assert_eq!(packet.bth.psn, Psn::new(sq(i as u32)));
                assert_eq!(packet.bth.ack_req, last);
                assert_eq!(
                    packet.ext.reth.is_some(),
                    i == 0 && matches!(want[0], WriteOnly | WriteOnlyImm | WriteFirst)
                );
                assert_eq!(packet.ext.reth.map_or(len, |reth| reth.dma_len), len);
                assert_eq!(
                    packet.ext.ieth.is_some(),
                    last && matches!(op, SendOp::SendInvalidate(_))
                );
            }
        }
    }

    #[test]
    fn lists_are_gathered_across_entries() {
        let mut f = Fixture::new();
        let list = [sge(5, 100), sge(0, 0), sge(1000, 300), sge(4, 1)];
        f.post_with(SendOp::Send, 0, |wqe| {
            wqe.data = SendData::Gather(SgList::from_slice(&list))
        });
        let payload: Vec<u8> = f.poll().iter().flat_map(|p| p.payload.clone()).collect();
        let m = &f.bench.memory;
        assert_eq!(payload, [&m[5..105], &m[1000..1300], &m[4..5]].concat());
    }

    #[test]
    fn inline_data_is_sent_and_sent_again() {
        let mut f = Fixture::new();
        let bytes: Vec<u8> = (0..=255).chain(0..50).collect();
        f.post_with(WRITE, 0, |wqe| {
            wqe.data = SendData::Inline(bytes.iter().copied().collect())
        });
        for round in 0..2 {
            let sent = f.poll();
            assert_eq!(
                sent.iter()
                    .flat_map(|p| p.payload.clone())
                    .collect::<Vec<_>>(),
                bytes,
                "{round}"
            );
            if round == 0 {
                f.feed_nak(sq(0), NakCode::PsnSequenceError);
            }
        }
    }

    #[test]
    fn solicited_is_on_the_last_packet_of_what_consumes_a_receive() {
        for (op, want) in [(SendOp::Send, true), (WRITE, false)] {
            let mut f = Fixture::new();
            f.post_with(op, 300, |wqe| wqe.solicited = true);
            let flags: Vec<bool> = f.poll().iter().map(|p| p.bth.solicited).collect();
            assert_eq!(flags, [false, want]);
        }
    }

    /// Packets of a WRITE that ask, by their number.
    fn packets_with_ack_req(window_bytes: u32, packets: usize) -> Vec<usize> {
        let mut f = Fixture::with(crate::RcAttr {
            window_bytes,
            ..attr()
        });
        // Gathered from the same few packets' worth of memory over and over.
        let piece = Sge {
            addr: BASE,
            length: 50 * MTU as u32,
            lkey: LKEY,
        };
        let pieces = vec![piece; packets / 50];
        f.post_with(WRITE, 0, |wqe| {
            wqe.data = SendData::Gather(SgList::from_slice(&pieces));
        });
        let sent = f.poll();
        assert_eq!(sent.len(), packets);
        let asks = sent.iter().enumerate().filter(|(_, p)| p.bth.ack_req);
        asks.map(|(i, _)| i).collect()
    }

    #[test]
    fn long_messages_ask_for_acknowledges_on_the_way() {
        // Each packet takes 256 bytes and 64 of overhead.
        assert_eq!(
            packets_with_ack_req(4 * 20 * 320, 50),
            [19, 39, 49],
            "a quarter of the window"
        );
        assert_eq!(
            packets_with_ack_req(u32::MAX, 600),
            [255, 511, 599],
            "and no more than so many packets"
        );
    }
}

mod acknowledges {
    use super::*;

    #[test]
    fn past_awaited_and_future() {
        let mut f = Fixture::new();
        let (a, b) = (f.post(WRITE, 10), f.post(SendOp::Send, 10));
        f.poll();
        f.feed_ack(sq(2));
        assert_eq!(f.rc.counters().dropped, 1, "never sent");
        f.feed_ack(sq(0x80_0000 + 5));
        assert_eq!(f.sends(), [], "half the circle away");
        f.feed_ack(sq(0));
        assert_eq!(f.sends(), [(a, OK)]);
        f.feed_ack(sq(0));
        assert_eq!(f.sends(), []);
        f.feed_ack(sq(1));
        assert_eq!(f.sends(), [(b, OK)]);
        assert_eq!(f.rc.bytes_in_flight(), 0);
        assert_eq!(f.rc.next_timeout(), None);
    }

    #[test]
    fn one_acknowledges_all_before_it_and_unsignaled_ones_are_silent() {
        let mut f = Fixture::new();
        for i in 0..10 {
            f.post_with(SendOp::Send, 300, |wqe| wqe.signaled = i % 3 == 0);
        }
        f.poll();
        f.feed_ack(sq(17));
        assert_eq!(f.sends(), [(0, OK), (3, OK), (6, OK)]);
        assert_eq!(f.rc.sends_outstanding(), 1);
        f.feed_ack(sq(19));
        assert_eq!(f.sends(), [(9, OK)]);
    }

    #[test]
    fn the_middle_of_a_message_moves_the_restart_point() {
        let mut f = Fixture::new();
        f.post(WRITE, LEN);
        f.poll();
        f.feed_ack(sq(1));
        f.fire_timer();
        assert_eq!(brief(&f.poll()), [(WriteMiddle, sq(2)), (WriteLast, sq(3))]);
        assert_eq!(f.rc.counters().retransmitted_packets, 2);
    }

    #[test]
    fn a_late_one_overtakes_what_was_to_be_sent_again() {
        let mut f = Fixture::new();
        f.post(WRITE, LEN);
        f.post(WRITE, 10);
        f.poll();
        f.fire_timer();
        f.feed_ack(sq(2));
        assert_eq!(brief(&f.poll()), [(WriteLast, sq(3)), (WriteOnly, sq(4))]);
        f.fire_timer();
        f.feed_ack(sq(4));
        assert_eq!(f.sends(), [(0, OK), (1, OK)]);
        assert_eq!(f.poll().len(), 0);
    }

    #[test]
    fn reserved_syndromes_and_codes_are_bad_responses() {
        for syndrome in [
            Syndrome::Reserved(0x40),
            Syndrome::Nak(NakCode::Other(9)),
            Syndrome::Nak(NakCode::InvalidRdRequest),
        ] {
            let mut f = Fixture::new();
            f.post(WRITE, 10);
            f.poll();
            f.feed_syndrome(sq(0), syndrome);
            assert_eq!(f.sends(), [(0, Status::BadResponse)], "{syndrome:?}");
        }
    }
}

mod window {
    use super::*;

    #[test]
    fn holds_back_and_opens() {
        let mut f = Fixture::with(crate::RcAttr {
            window_bytes: 1400,
            ..attr()
        });
        f.post(WRITE, 20 * MTU as u32);
        let sent = f.poll();
        assert_eq!(sent.len(), 4, "4 x (256 + overhead) fit");
        assert!(sent.iter().any(|p| p.bth.ack_req), "or it would never open");
        assert_eq!(f.rc.bytes_in_flight(), 4 * (256 + 64));
        f.feed_ack(sq(1));
        assert_eq!(
            brief(&f.poll()),
            [(WriteMiddle, sq(4)), (WriteMiddle, sq(5))]
        );
    }

    #[test]
    fn a_device_may_close_it_for_requests_alone() {
        let mut f = Fixture::with(attr());
        f.rc.hold_back(true);
        f.post(WRITE, MTU as u32);
        assert!(!f.rc.may_request() && !f.rc.awaits_answer());
        assert_eq!(f.poll().len(), 0);
        f.rc.hold_back(false);
        assert_eq!(f.poll().len(), 1);
        assert!(f.rc.awaits_answer());
        f.feed_ack(sq(0));
        assert_eq!((f.rc.awaits_answer(), f.sends()), (false, vec![(0, OK)]));
    }

    /// Or the peer, which answers only those that ask, would leave what is under way to the ACK
    /// timeout.
    #[test]
    fn what_is_under_way_then_is_asked_about() {
        let mut f = Fixture::with(crate::RcAttr {
            window_bytes: 12 * (MTU as u32 + 64),
            ..attr()
        });
        f.post(WRITE, 100 * MTU as u32);
        let first = f.poll();
        let asks = |packet: &Sent| packet.bth.ack_req;
        let asked = first.iter().position(asks).expect("one asks") as u32;
        f.feed_ack(sq(asked));
        // The window has room for some, the first of which do not ask.
        f.poll_some(1, usize::MAX);
        f.rc.hold_back(true);
        let last = f.poll();
        assert!(last.len() == 1 && asks(&last[0]), "{last:?}");
        f.feed_ack(last[0].bth.psn.value());
        assert!(!f.rc.awaits_answer() && f.poll().is_empty());
        assert_eq!(f.rc.counters().timeouts, 0);
        f.rc.hold_back(false);
        assert!(!asks(&f.poll()[0]));
    }

    #[test]
    fn one_held_back_is_flushed_as_any_other() {
        let mut f = Fixture::with(attr());
        f.rc.hold_back(true);
        f.post(WRITE, MTU as u32);
        f.rc.fail(&mut f.bench);
        assert_eq!(f.sends().len(), 1);
        assert!(!f.rc.may_request());
        f.rc.reset();
        assert!(!f.rc.is_held_back());
    }

    #[test]
    fn is_that_of_the_path_chosen_in_sqd() {
        let wide = attr();
        let mut f = Fixture::with(wide);
        f.rc.drain(false, &mut f.bench);
        f.rc.retune(crate::RcAttr {
            window_bytes: 1400,
            ..wide
        });
        f.rc.resume();
        f.post(WRITE, 20 * MTU as u32);
        assert_eq!(f.poll().len(), 4, "as many as fit");
    }

    #[test]
    fn one_packet_may_always_leave() {
        let mut f = Fixture::with(crate::RcAttr {
            window_bytes: 1,
            ..attr()
        });
        f.post(WRITE, 2 * MTU as u32);
        for i in 0..2 {
            let sent = f.poll();
            assert_eq!(sent.len(), 1);
            assert!(sent[0].bth.ack_req);
            f.feed_ack(sq(i));
        }
        assert_eq!(f.sends(), [(0, OK)]);
    }

    #[test]
    fn reads_wait_for_the_responses_asked_for() {
        let attr = crate::RcAttr {
            window_bytes: 1000,
            max_rd_atomic: 16,
            ..attr()
        };
        let mut f = Fixture::with(attr);
        for _ in 0..3 {
            f.post(READ, 3 * MTU as u32);
        }
        // 960 bytes with overhead each; three would be more than twice the window.
        assert_eq!(
            brief(&f.poll()),
            [(ReadRequest, sq(0)), (ReadRequest, sq(3))]
        );
        f.feed_read_response(ReadResponseFirst, sq(0), &[1; MTU]);
        assert_eq!(f.poll().len(), 0);
        f.feed_read_response(ReadResponseMiddle, sq(1), &[1; MTU]);
        f.feed_read_response(ReadResponseLast, sq(2), &[1; MTU]);
        assert_eq!(f.sends(), [(0, OK)]);
        assert_eq!(brief(&f.poll()), [(ReadRequest, sq(6))]);
    }

    #[test]
    fn a_long_read_is_asked_for_in_pieces() {
        for max_rd_atomic in [1, 2, 16] {
            let attr = crate::RcAttr {
                window_bytes: 1000,
                max_rd_atomic,
                ..attr()
            };
            let mut f = Fixture::with(attr);
            let len = 8 * MTU as u32 - 100;
            f.post(READ, len);
            f.post_with(WRITE, 1, |wqe| wqe.fence = true);
            let source: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let mut asked = Vec::new();
            let mut next = 0;
            while f.sends().is_empty() {
                for packet in f.poll() {
                    assert_eq!(packet.operation, ReadRequest, "the WRITE has a fence");
                    asked.push((packet.bth.psn.value(), packet.ext.reth.unwrap()));
                }
                let outstanding = asked.len() as u32 - next / 3;
                assert!((1..=u32::from(max_rd_atomic)).contains(&outstanding));
                let (from, to) = (next as usize * MTU, (next as usize + 1) * MTU);
                let op = match (next % 3, next == 7) {
                    (_, true) | (2, _) => ReadResponseLast,
                    (0, _) => ReadResponseFirst,
                    _ => ReadResponseMiddle,
                };
                f.feed_read_response(op, sq(next), &source[from..to.min(len as usize)]);
                next += 1;
            }
            let reth = |at: u64, dma_len| Reth {
                va: 0x5000 + at * 256,
                rkey: 5,
                dma_len,
            };
            let want = [
                (sq(0), reth(0, 768)),
                (sq(3), reth(3, 768)),
                (sq(6), reth(6, 412)),
            ];
            assert_eq!(asked, want);
            assert_eq!(f.bench.memory[..len as usize], source);
            assert_eq!(brief(&f.poll()), [(WriteOnly, sq(8))]);
        }
    }

    #[test]
    fn a_repetition_stays_within_the_request_of_before() {
        let attr = crate::RcAttr {
            window_bytes: 1000,
            max_rd_atomic: 16,
            ..attr()
        };
        let mut f = Fixture::with(attr);
        f.post(READ, 6 * MTU as u32);
        f.poll();
        f.feed_read_response(ReadResponseFirst, sq(0), &[1; MTU]);
        f.fire_timer();
        let sent = f.poll();
        assert_eq!(brief(&sent), [(ReadRequest, sq(1)), (ReadRequest, sq(3))]);
        let lens: Vec<u32> = sent.iter().map(|p| p.ext.reth.unwrap().dma_len).collect();
        assert_eq!(lens, [2 * 256, 3 * 256]);
    }

    #[test]
    fn a_repetition_that_was_cut_goes_on_when_it_is_answered() {
        let mut f = Fixture::new();
        let packets = 40;
        f.post(READ, packets * MTU as u32);
        f.post(READ, packets * MTU as u32);
        assert_eq!(
            brief(&f.poll()),
            [(ReadRequest, sq(0)), (ReadRequest, sq(packets))]
        );
        f.feed_read_response(ReadResponseFirst, sq(0), &[1; MTU]);
        f.fire_timer();
        let asked = |f: &mut Fixture| -> Vec<(u32, u32)> {
            let sent = f.poll();
            sent.iter()
                .map(|p| (p.bth.psn.value(), p.ext.reth.unwrap().dma_len / MTU as u32))
                .collect()
        };
        // After a timeout eight packets, and no more of that request before they have come.
        assert_eq!(asked(&mut f), [(sq(1), 8)]);
        for n in 1..9 {
            assert_eq!(asked(&mut f), []);
            f.feed_read_response(ReadResponseMiddle, sq(n), &[1; MTU]);
        }
        assert_eq!(asked(&mut f), [(sq(9), 9)]);
        for n in 9..packets - 1 {
            f.feed_read_response(ReadResponseMiddle, sq(n), &[1; MTU]);
            f.poll();
        }
        f.feed_read_response(ReadResponseLast, sq(packets - 1), &[1; MTU]);
        assert_eq!(f.sends(), [(0, OK)]);
        assert!(f.rc.bytes_in_flight() > 0);
    }

    #[test]
    fn psns_never_span_more_than_half_the_circle() {
        let mut f = Fixture::with(crate::RcAttr {
            window_bytes: u32::MAX,
            max_rd_atomic: 16,
            ..attr()
        });
        let huge = SendOp::Read {
            remote_addr: 0,
            rkey: 5,
        };
        let mut list = SgList::new();
        // 2^31 bytes in entries that lie within memory.
        list.resize(
            1 << 15,
            Sge {
                addr: BASE,
                length: 1 << 16,
                lkey: LKEY,
            },
        );
        f.post_with(huge, 0, |wqe| wqe.data = SendData::Gather(list));
        f.post(WRITE, 1);
        let sent = f.poll();
        assert_eq!(
            brief(&sent),
            [(ReadRequest, sq(0))],
            "2^23 PSNs: nothing more"
        );
        assert_eq!(sent[0].ext.reth.map(|r| r.dma_len), Some(1 << 31));
        f.feed_read_response(ReadResponseFirst, sq(0), &[1; MTU]);
        assert_eq!(brief(&f.poll()), [(WriteOnly, sq(1 << 23))]);
        assert_eq!(f.rc.sq_psn(), Psn::new(sq((1 << 23) + 1)));
    }
}

mod go_back_n {
    use super::*;

    #[test]
    fn a_sequence_nak_acknowledges_what_is_before_it() {
        let mut f = Fixture::new();
        let a = f.post(SendOp::Send, 10);
        f.post(WRITE, LEN);
        f.post(SendOp::Send, 1);
        f.poll();
        f.feed_nak(sq(3), NakCode::PsnSequenceError);
        assert_eq!(f.sends(), [(a, OK)]);
        assert_eq!(
            brief(&f.poll()),
            [(WriteMiddle, sq(3)), (WriteLast, sq(4)), (SendOnly, sq(5))]
        );
        assert_eq!(f.rc.counters().sequence_naks_received, 1);
        f.feed_ack(sq(5));
        assert_eq!(f.sends(), [(1, OK), (2, OK)]);
    }

    #[test]
    fn naks_of_past_and_future_psns_change_nothing() {
        let mut f = Fixture::new();
        f.post(WRITE, LEN);
        f.poll();
        f.feed_ack(sq(1));
        for psn in [sq(0), sq(1), sq(4)] {
            f.feed_nak(psn, NakCode::PsnSequenceError);
            f.feed_nak(psn, NakCode::RemoteAccessError);
            f.feed_syndrome(psn, Syndrome::RnrNak { timer: 1 });
            assert_eq!(f.poll().len(), 0);
        }
        assert!(!f.rc.is_error());
    }

    #[test]
    fn an_echo_of_a_nak_costs_no_retry_before_anything_was_sent_again() {
        let mut f = Fixture::new();
        f.post(WRITE, 10);
        f.poll();
        for _ in 0..20 {
            f.feed_nak(sq(0), NakCode::PsnSequenceError);
        }
        assert_eq!(f.poll().len(), 1);
        f.feed_ack(sq(0));
        assert_eq!(f.sends(), [(0, OK)]);
    }

    #[test]
    fn naks_without_progress_exhaust_the_retries() {
        let mut f = Fixture::new();
        let (a, b) = (f.post(WRITE, 10), f.post(WRITE, 10));
        for _ in 0..3 {
            assert_eq!(f.poll().len(), 2);
            f.feed_nak(sq(0), NakCode::PsnSequenceError);
        }
        f.poll();
        assert_eq!(f.sends(), []);
        f.feed_nak(sq(0), NakCode::PsnSequenceError);
        assert_eq!(f.sends(), [(a, Status::RetryExceeded), (b, FLUSHED)]);
        assert!(f.rc.is_error());
    }

    #[test]
    fn timeouts_exhaust_the_retries_and_progress_restores_them() {
        let mut f = Fixture::new();
        let (a, b) = (f.post(WRITE, 10), f.post(WRITE, 10));
        f.post_receive(77, &[]);
        f.poll();
        assert_eq!(f.rc.next_timeout(), Some(f.now.after(4096 << 10)));
        for _ in 0..3 {
            f.fire_ack_timeout();
            assert_eq!(f.poll().len(), 2);
        }
        f.feed_ack(sq(0));
        for _ in 0..3 {
            f.fire_ack_timeout();
            assert_eq!(brief(&f.poll()), [(WriteOnly, sq(1))]);
        }
        assert_eq!(f.sends(), [(a, OK)]);
        f.fire_ack_timeout();
        assert_eq!(f.sends(), [(b, Status::RetryExceeded)]);
        assert_eq!(f.recvs(), [(77, FLUSHED)]);
        assert_eq!(f.rc.next_timeout(), None);
        assert_eq!(f.rc.counters().timeouts, 7);
    }

    #[test]
    fn progress_restarts_the_timeout() {
        let mut f = Fixture::new();
        f.post(WRITE, 10);
        f.post(WRITE, 10);
        f.poll();
        f.now = f.now.after(4096 << 9);
        f.feed_ack(sq(0));
        assert_eq!(f.rc.next_timeout(), Some(f.now.after(4096 << 10)));
        f.feed_ack(sq(0));
        f.now = f.now.after(5);
        assert_ne!(
            f.rc.next_timeout(),
            Some(f.now.after(4096 << 10)),
            "an echo is no progress"
        );
    }

    #[test]
    fn timeout_zero_waits_for_ever() {
        let mut f = Fixture::with(crate::RcAttr {
            timeout: 0,
            ..attr()
        });
        f.post(WRITE, 10);
        f.poll();
        assert_eq!(f.rc.next_timeout(), None);
    }
}

mod tail_loss_probes {
    use super::*;

    /// A queue pair on a path that has lost a packet, with `n` WRITEs of two packets under way.
    fn lossy(n: u32) -> Fixture {
        let mut f = Fixture::new();
        f.post(WRITE, 1);
        f.poll();
        f.fire_timer();
        f.poll();
        f.feed_ack(sq(0));
        for _ in 0..n {
            f.post(WRITE, 2 * MTU as u32);
        }
        assert_eq!(f.poll().len(), 2 * n as usize);
        f.sends();
        f
    }

    #[test]
    fn none_on_a_path_that_loses_nothing() {
        let mut f = Fixture::new();
        for n in 0..100 {
            f.post(WRITE, 1);
            f.poll();
            assert_eq!(f.rc.next_timeout(), Some(f.now.after(4096 << 10)));
            f.now = f.now.after(2_000_000);
            f.feed_ack(sq(n));
        }
    }

    #[test]
    fn the_oldest_packet_alone_at_growing_intervals() {
        let mut f = lossy(2);
        let start = f.now;
        let mut waits = Vec::new();
        while f.rc.counters().timeouts == 1 {
            waits.push(f.rc.next_timeout().unwrap().0 - f.now.0);
            f.fire_timer();
            if f.rc.counters().timeouts == 1 {
                let sent = f.poll();
                assert_eq!(brief(&sent), [(WriteFirst, sq(1))]);
                assert!(sent[0].bth.ack_req);
            }
        }
        assert_eq!(waits[..4], [200_000, 400_000, 800_000, 1_600_000]);
        assert_eq!(
            f.now,
            start.after(4096 << 10),
            "the ACK timeout comes when it would have come"
        );
        assert_eq!(brief(&f.poll()).len(), 4, "and sends all again");
        for _ in 0..3 {
            assert!(!f.rc.is_error());
            f.fire_ack_timeout();
            f.poll_some(usize::MAX, usize::MAX);
        }
        assert_eq!(
            f.sends()[0],
            (1, Status::RetryExceeded),
            "after three retries, probes or not"
        );
    }

    /// A device that has no room for the probe, or holds it back, must not keep a dead peer alive.
    #[test]
    fn the_ack_timeout_ends_though_no_probe_has_left() {
        let mut f = lossy(2);
        let start = f.now;
        f.fire_timer();
        f.rc.hold_back(true);
        assert!(f.rc.awaits_answer());
        while f.rc.awaits_answer() {
            f.fire_timer();
            assert_eq!(f.poll().len(), 0);
        }
        assert_eq!(
            (f.rc.counters().timeouts, f.rc.consecutive_ack_timeouts()),
            (2, 1)
        );
        assert_eq!(f.now, start.after(4096 << 10));
        f.rc.hold_back(false);
        assert_eq!(f.poll().len(), 4);
    }

    #[test]
    fn an_answer_lets_the_rest_follow() {
        let mut f = lossy(2);
        f.fire_timer();
        f.poll();
        f.feed_ack(sq(1));
        assert_eq!(
            brief(&f.poll()),
            [(WriteLast, sq(2)), (WriteFirst, sq(3)), (WriteLast, sq(4))]
        );
        f.fire_timer();
        f.poll();
        f.feed_ack(sq(4));
        assert_eq!(f.sends(), [(1, OK), (2, OK)]);
        assert_eq!(f.rc.next_timeout(), None);
    }

    #[test]
    fn a_nak_or_an_rnr_nak_is_obeyed() {
        let mut f = lossy(2);
        f.fire_timer();
        f.poll();
        f.feed_nak(sq(3), NakCode::PsnSequenceError);
        assert_eq!(brief(&f.poll()), [(WriteFirst, sq(3)), (WriteLast, sq(4))]);
        f.fire_timer();
        f.poll();
        f.feed_syndrome(sq(3), Syndrome::RnrNak { timer: 12 });
        assert_eq!(f.rc.next_timeout(), Some(f.now.after(rnr_timer_ns(12))));
        f.fire_timer();
        assert_eq!(f.poll().len(), 2);
    }

    #[test]
    fn a_read_is_probed_for_its_next_packets() {
        let mut f = Fixture::new();
        f.post(WRITE, 1);
        f.poll();
        f.feed_nak(sq(0), NakCode::PsnSequenceError);
        f.poll();
        f.feed_ack(sq(0));
        f.post(READ, 20 * MTU as u32);
        f.poll();
        f.feed_read_response(ReadResponseFirst, sq(1), &[1; MTU]);
        f.fire_timer();
        let sent = f.poll();
        assert_eq!(brief(&sent), [(ReadRequest, sq(2))]);
        assert_eq!(sent[0].ext.reth.unwrap().dma_len, 8 * MTU as u32);
    }

    #[test]
    fn what_was_late_and_not_lost_is_not_sent_again() {
        let mut f = lossy(3);
        f.fire_timer();
        assert_eq!(brief(&f.poll()), [(WriteFirst, sq(1))]);
        // The first message and a half had been in the peer's receive buffer, and so has the rest.
        f.feed_ack(sq(3));
        assert_eq!(f.sends(), [(1, OK)]);
        assert_eq!(brief(&f.poll()), []);
        let again = f.rc.counters().retransmitted_packets;
        f.post(WRITE, 1);
        assert_eq!(brief(&f.poll()), [(WriteOnly, sq(7))]);
        // The answer to the probe, which says nothing new.
        f.feed_ack(sq(3));
        assert_eq!(brief(&f.poll()), []);
        f.feed_ack(sq(7));
        assert_eq!(f.sends(), [(2, OK), (3, OK), (4, OK)]);
        assert_eq!(f.rc.counters().retransmitted_packets, again);
    }

    #[test]
    fn what_was_lost_behind_it_is_asked_for_again() {
        let mut f = lossy(3);
        f.fire_timer();
        f.poll();
        f.feed_ack(sq(3));
        f.fire_timer();
        assert_eq!(brief(&f.poll()), [(WriteLast, sq(4))]);
        // The peer was waiting for just that.
        f.feed_ack(sq(4));
        assert_eq!(brief(&f.poll()), [(WriteFirst, sq(5)), (WriteLast, sq(6))]);
    }

    #[test]
    fn a_path_that_became_slow_is_waited_for() {
        let mut f = lossy(4);
        let first = f.rc.next_timeout().unwrap().0 - f.now.0;
        f.fire_timer();
        f.poll();
        // Which packet this answers is not known, so neither is how long the way takes now.
        f.feed_ack(sq(3));
        let second = f.rc.next_timeout().unwrap().0 - f.now.0;
        assert_eq!(second, 2 * first);
        // One that was sent once, and took this long.
        f.feed_ack(sq(8));
        f.post(WRITE, 1);
        f.poll();
        f.now = f.now.after(20_000);
        f.feed_ack(sq(9));
        f.post(WRITE, 1);
        f.poll();
        let third = f.rc.next_timeout().unwrap().0 - f.now.0;
        assert_eq!(third, first);
    }

    /// What looks needless may be an answer that was lost, again and again.
    #[test]
    fn where_answers_are_lost_it_goes_on_asking_early() {
        let mut f = lossy(4);
        let wait = |f: &Fixture| f.rc.next_timeout().unwrap().0 - f.now.0;
        let first = wait(&f);
        let mut longest = first;
        for n in 0..20 {
            f.fire_timer();
            f.poll();
            f.feed_ack(sq(2 * n + 2));
            longest = longest.max(wait(&f));
            f.post(WRITE, 2 * MTU as u32);
            f.poll();
        }
        assert_eq!(longest, 16 * first);
        // One that took what it had not: the path loses.
        f.fire_timer();
        f.poll();
        f.feed_ack(sq(41));
        f.poll();
        assert_eq!(wait(&f), first);
    }

    #[test]
    fn what_takes_no_psn_is_done_once() {
        let mut f = lossy(1);
        let invalidate = f.post(SendOp::LocalInvalidate(5), 0);
        f.post(WRITE, 2 * MTU as u32);
        assert_eq!(brief(&f.poll()), [(WriteFirst, sq(3)), (WriteLast, sq(4))]);
        f.fire_timer();
        f.poll();
        f.feed_ack(sq(3));
        assert_eq!(f.sends().last().unwrap().0, invalidate);
        assert_eq!(brief(&f.poll()), []);
        let behind = f.post(WRITE, 1);
        assert_eq!(brief(&f.poll()), [(WriteOnly, sq(5))]);
        f.feed_ack(sq(5));
        assert_eq!(f.sends().last(), Some(&(behind, OK)));
    }

    #[test]
    fn reads_under_way_are_asked_for_again() {
        let mut f = lossy(3);
        f.post(READ, MTU as u32);
        assert_eq!(brief(&f.poll()), [(ReadRequest, sq(7))]);
        f.fire_timer();
        f.poll();
        f.feed_ack(sq(3));
        assert_eq!(
            brief(&f.poll()),
            [
                (WriteLast, sq(4)),
                (WriteFirst, sq(5)),
                (WriteLast, sq(6)),
                (ReadRequest, sq(7))
            ]
        );
    }

    #[test]
    fn waits_four_round_trips() {
        let mut f = lossy(0);
        for n in 0..200 {
            f.post(WRITE, 1);
            f.poll();
            f.now = f.now.after(100_000);
            f.feed_ack(sq(n + 1));
        }
        f.post(WRITE, 1);
        f.poll();
        let wait = f.rc.next_timeout().unwrap().0 - f.now.0;
        assert!((390_000..=410_000).contains(&wait), "{wait}");
    }
}

mod receiver_not_ready {
    use super::*;

    const RNR: Syndrome = Syndrome::RnrNak { timer: 12 };

    #[test]
    fn waits_as_long_as_asked_and_continues_there() {
        let mut f = Fixture::new();
        let a = f.post(SendOp::Send, 10);
        f.post(SendOp::Send, 300);
        f.post(SendOp::Send, 1);
        f.poll();
        f.feed_syndrome(sq(1), RNR);
        assert_eq!(f.sends(), [(a, OK)]);
        assert_eq!(f.poll().len(), 0);
        assert_eq!(f.rc.next_timeout(), Some(f.now.after(rnr_timer_ns(12))));
        // Linux says so of the packets behind, and repeats itself when the network does.
        f.feed_nak(sq(1), NakCode::PsnSequenceError);
        f.feed_syndrome(sq(1), RNR);
        assert_eq!(f.poll().len(), 0);
        f.fire_timer();
        assert_eq!(
            brief(&f.poll()),
            [(SendFirst, sq(1)), (SendLast, sq(2)), (SendOnly, sq(3))]
        );
    }

    #[test]
    fn retries_are_counted_and_restored_by_progress() {
        let mut f = Fixture::new();
        let (a, b) = (f.post(SendOp::Send, 10), f.post(SendOp::Send, 10));
        for psn in [0, 1] {
            for _ in 0..3 {
                f.poll();
                f.feed_syndrome(sq(psn), RNR);
                f.fire_timer();
            }
            f.poll();
            if psn == 0 {
                f.feed_ack(sq(0));
            }
        }
        assert_eq!(f.sends(), [(a, OK)]);
        f.feed_syndrome(sq(1), RNR);
        assert_eq!(f.sends(), [(b, Status::RnrRetryExceeded)]);
    }

    #[test]
    fn seven_is_for_ever() {
        let mut f = Fixture::with(crate::RcAttr {
            rnr_retry: 7,
            ..attr()
        });
        f.post(SendOp::Send, 10);
        for _ in 0..100 {
            assert_eq!(f.poll().len(), 1);
            f.feed_syndrome(sq(0), RNR);
            f.fire_timer();
        }
        assert!(!f.rc.is_error());
    }

    #[test]
    fn a_late_acknowledge_ends_the_wait() {
        let mut f = Fixture::new();
        f.post(SendOp::Send, 10);
        f.post(SendOp::Send, 10);
        f.poll();
        f.feed_syndrome(sq(0), RNR);
        f.feed_ack(sq(0));
        assert_eq!(brief(&f.poll()), [(SendOnly, sq(1))]);
    }
}

mod reads {
    use super::*;

    fn respond(f: &mut Fixture, from: u32, to: u32, of: u32) {
        for i in from..to {
            let op = match (i == 0, i + 1 == of) {
                (true, true) => ReadResponseOnly,
                (true, false) => ReadResponseFirst,
                (false, false) => ReadResponseMiddle,
                (false, true) => ReadResponseLast,
            };
            let len = if i + 1 == of { 10 } else { MTU };
            f.feed_read_response(op, sq(i), &vec![100 + i as u8; len]);
        }
    }

    #[test]
    fn scatters_and_completes_with_its_length() {
        let mut f = Fixture::new();
        let list = [sge(0, 100), sge(1000, LEN - 100)];
        f.post_with(READ, 0, |wqe| {
            wqe.data = SendData::Gather(SgList::from_slice(&list))
        });
        let sent = f.poll();
        assert_eq!(brief(&sent), [(ReadRequest, sq(0))]);
        let reth = sent[0].ext.reth.unwrap();
        assert_eq!((reth.va, reth.rkey, reth.dma_len), (0x5000, 5, LEN));
        assert_eq!(f.rc.sq_psn(), Psn::new(sq(4)));
        respond(&mut f, 0, 4, 4);
        let completion = f.bench.sends[0];
        assert_eq!((completion.status, completion.byte_len), (OK, LEN));
        let data = [
            &f.bench.memory[..100],
            &f.bench.memory[1000..1000 + LEN as usize - 100],
        ]
        .concat();
        let want: Vec<u8> = [
            vec![100; 256],
            vec![101; 256],
            vec![102; 256],
            vec![103; 10],
        ]
        .concat();
        assert_eq!(data, want);
    }

    #[test]
    fn empty() {
        let mut f = Fixture::new();
        f.post_with(READ, 0, |wqe| wqe.data = SendData::Gather(SgList::new()));
        assert_eq!(f.poll().len(), 1);
        f.feed_read_response(ReadResponseOnly, sq(0), &[]);
        assert_eq!(f.sends(), [(0, OK)]);
    }

    #[test]
    fn a_response_acknowledges_earlier_sends() {
        let mut f = Fixture::new();
        f.post(SendOp::Send, 10);
        f.post(READ, 10);
        f.poll();
        f.feed_read_response(ReadResponseOnly, sq(1), &[1; 10]);
        assert_eq!(f.sends(), [(0, OK), (1, OK)]);
    }

    #[test]
    fn a_lost_response_is_asked_for_at_once_and_once() {
        let mut f = Fixture::new();
        f.post(READ, LEN);
        f.poll();
        respond(&mut f, 0, 1, 4);
        f.feed_read_response(ReadResponseMiddle, sq(2), &[9; MTU]);
        f.feed_read_response(ReadResponseLast, sq(3), &[9; 10]);
        let sent = f.poll();
        assert_eq!(brief(&sent), [(ReadRequest, sq(1))]);
        let reth = sent[0].ext.reth.unwrap();
        assert_eq!((reth.va, reth.dma_len), (0x5000 + 256, LEN - 256));
        f.feed_read_response(ReadResponseLast, sq(3), &[9; 10]);
        assert_eq!(f.poll().len(), 0, "of the first answer still");
        // The repetition's own head is lost: the PSNs step back.
        f.feed_read_response(ReadResponseMiddle, sq(2), &[9; MTU]);
        assert_eq!(brief(&f.poll()), [(ReadRequest, sq(1))]);
        respond(&mut f, 1, 4, 4);
        assert_eq!(f.sends(), [(0, OK)]);
    }

    #[test]
    fn a_repeated_request_may_be_answered_with_first_or_middle() {
        for (op, then) in [
            (ReadResponseFirst, ReadResponseLast),
            (ReadResponseMiddle, ReadResponseLast),
        ] {
            let mut f = Fixture::new();
            f.post(READ, LEN);
            f.poll();
            respond(&mut f, 0, 2, 4);
            f.fire_timer();
            assert_eq!(brief(&f.poll()), [(ReadRequest, sq(2))]);
            f.feed_read_response(op, sq(2), &[9; MTU]);
            f.feed_read_response(then, sq(3), &[9; 10]);
            assert_eq!(f.sends(), [(0, OK)]);
        }
    }

    #[test]
    fn an_acknowledge_behind_an_unfinished_read_means_its_response_is_lost() {
        let mut f = Fixture::new();
        f.post(READ, LEN);
        f.post(SendOp::Send, 10);
        f.post(FETCH_ADD, 8);
        f.poll();
        respond(&mut f, 0, 3, 4);
        f.feed_ack(sq(4));
        assert_eq!(f.sends(), []);
        assert_eq!(
            brief(&f.poll()),
            [(ReadRequest, sq(3)), (SendOnly, sq(4)), (FetchAdd, sq(5))]
        );
        respond(&mut f, 3, 4, 4);
        f.feed_ack(sq(4));
        assert_eq!(f.sends(), [(0, OK), (1, OK)]);
        f.feed_ack(sq(5));
        assert_eq!(brief(&f.poll()), [(FetchAdd, sq(5))]);
        f.feed_atomic_ack(sq(5), 1);
        assert_eq!(f.sends(), [(2, OK)]);
    }

    #[test]
    fn wrong_answers_break_the_queue_pair() {
        type Case = (&'static str, fn(&mut Fixture));
        let cases: [Case; 6] = [
            ("short", |f| {
                f.feed_read_response(ReadResponseFirst, sq(0), &[0; MTU - 4])
            }),
            ("long", |f| {
                f.feed_read_response(ReadResponseFirst, sq(0), &[0; MTU + 4])
            }),
            ("middle for first", |f| {
                f.feed_read_response(ReadResponseMiddle, sq(0), &[0; MTU])
            }),
            ("atomic", |f| f.feed_atomic_ack(sq(0), 1)),
            ("last for first", |f| {
                f.feed_read_response(ReadResponseLast, sq(0), &[0; MTU]);
            }),
            ("first for last", |f| {
                respond(f, 0, 3, 4);
                f.feed_read_response(ReadResponseFirst, sq(3), &[0; 10]);
            }),
        ];
        for (name, feed) in cases {
            let mut f = Fixture::new();
            f.post(READ, LEN);
            f.poll();
            feed(&mut f);
            assert_eq!(f.sends(), [(0, Status::BadResponse)], "{name}");
        }
        let mut f = Fixture::new();
        f.post(SendOp::Send, 10);
        f.poll();
        f.feed_read_response(ReadResponseOnly, sq(0), &[0; 10]);
        assert_eq!(f.sends(), [(0, Status::BadResponse)], "response to a SEND");
    }

    #[test]
    fn past_and_future_responses_are_dropped() {
        let mut f = Fixture::new();
        f.post(READ, LEN);
        f.poll();
        respond(&mut f, 0, 2, 4);
        f.feed_read_response(ReadResponseFirst, sq(0), &[7; MTU]);
        f.feed_read_response(ReadResponseOnly, sq(4), &[7; MTU]);
        assert_eq!(f.bench.memory[0], 100);
        assert_eq!(
            (f.rc.counters().duplicates_received, f.rc.counters().dropped),
            (1, 1)
        );
        respond(&mut f, 2, 4, 4);
        assert_eq!(f.sends(), [(0, OK)]);
    }

    #[test]
    fn memory_that_vanished_fails_the_read() {
        let mut f = Fixture::new();
        f.post(READ, LEN);
        f.poll();
        respond(&mut f, 0, 1, 4);
        f.bench.memory.truncate(300);
        f.feed_read_response(ReadResponseMiddle, sq(1), &[7; MTU]);
        assert_eq!(f.sends(), [(0, Status::LocalProtectionError)]);
    }

    #[test]
    fn no_more_outstanding_than_agreed() {
        let mut f = Fixture::new();
        for _ in 0..2 {
            f.post(FETCH_ADD, 8);
            f.post(READ, 10);
        }
        f.post(WRITE, 1);
        assert_eq!(brief(&f.poll()), [(FetchAdd, sq(0)), (ReadRequest, sq(1))]);
        f.feed_atomic_ack(sq(0), 0x0102_0304_0506_0708);
        assert_eq!(f.bench.memory[..8], 0x0102_0304_0506_0708u64.to_ne_bytes());
        assert_eq!(
            (f.bench.sends[0].byte_len, f.bench.sends[0].status),
            (8, OK)
        );
        assert_eq!(brief(&f.poll()), [(FetchAdd, sq(2))]);
        f.feed_read_response(ReadResponseOnly, sq(1), &[0; 10]);
        assert_eq!(brief(&f.poll()), [(ReadRequest, sq(3)), (WriteOnly, sq(4))]);
    }

    /// Or each of them would be a packet by itself, and its answer, too.
    #[test]
    fn short_ones_leave_together_where_that_costs_less() {
        const AGREED: u8 = 8;
        let attr = crate::RcAttr {
            max_rd_atomic: AGREED,
            window_bytes: 1 << 20,
            ..attr()
        };
        let mut f = Fixture::with(attr);
        f.rc.send_in_trains(true);
        for _ in 0..40 {
            f.post(READ, 10);
        }
        assert_eq!(f.poll().len(), usize::from(AGREED));
        let mut answered = 0;
        let mut next = |f: &mut Fixture| {
            f.feed_read_response(ReadResponseOnly, sq(answered), &[0; 10]);
            answered += 1;
            f.poll().len()
        };
        for _ in 0..3 {
            let sizes: Vec<usize> = (0..4).map(|_| next(&mut f)).collect();
            assert_eq!(sizes, [0, 0, 0, 4]);
        }
        // Nobody waits for what is lost: all that were under way are asked for again, and those
        // behind them.
        next(&mut f);
        f.fire_timer();
        assert_eq!(f.poll().len(), usize::from(AGREED));
        // Nor when each costs the same from now on.
        f.rc.send_in_trains(false);
        assert_eq!((next(&mut f), next(&mut f)), (1, 1));
    }

    #[test]
    fn a_fence_waits_for_reads_and_atomics_but_not_for_writes() {
        let mut f = Fixture::new();
        f.post(WRITE, 1);
        f.post_with(WRITE, 1, |wqe| wqe.fence = true);
        f.post(READ, 10);
        f.post_with(SendOp::Send, 1, |wqe| wqe.fence = true);
        f.post(WRITE, 1);
        assert_eq!(
            brief(&f.poll()),
            [(WriteOnly, sq(0)), (WriteOnly, sq(1)), (ReadRequest, sq(2))]
        );
        f.feed_ack(sq(1));
        assert_eq!(f.poll().len(), 0);
        f.feed_read_response(ReadResponseOnly, sq(2), &[0; 10]);
        assert_eq!(brief(&f.poll()), [(SendOnly, sq(3)), (WriteOnly, sq(4))]);
    }
}

mod errors {
    use super::*;

    #[test]
    fn refusals_complete_earlier_ones_first_and_flush_the_rest() {
        let cases = [
            (NakCode::InvalidRequest, Status::RemoteInvalidRequest),
            (NakCode::RemoteAccessError, Status::RemoteAccessError),
            (
                NakCode::RemoteOperationalError,
                Status::RemoteOperationError,
            ),
        ];
        for (code, status) in cases {
            let mut f = Fixture::new();
            f.post(WRITE, 10);
            f.post_with(WRITE, LEN, |wqe| wqe.signaled = false);
            f.post_with(WRITE, 10, |wqe| wqe.signaled = false);
            f.post_receive(50, &[]);
            f.post_receive(51, &[]);
            f.poll();
            f.feed_nak(sq(2), code);
            assert_eq!(f.sends(), [(0, OK), (1, status), (2, FLUSHED)]);
            assert_eq!(f.recvs(), [(50, FLUSHED), (51, FLUSHED)]);
            assert!(f.rc.is_error());
            assert_eq!((f.poll().len(), f.rc.next_timeout()), (0, None));
            f.post(WRITE, 1);
            assert_eq!(f.poll().len(), 0);
            f.rc.fail(&mut f.bench);
            assert_eq!(f.sends(), [(3, FLUSHED)]);
        }
    }

    #[test]
    fn a_bad_list_fails_in_its_turn_and_sends_nothing() {
        let mut f = Fixture::new();
        f.post(WRITE, 10);
        f.post_with(WRITE, 0, |wqe| {
            let bad = Sge {
                addr: BASE,
                length: 10,
                lkey: 99,
            };
            wqe.data = SendData::Gather(SgList::from_slice(&[sge(0, 1000), bad]));
        });
        f.post(WRITE, 10);
        assert_eq!(brief(&f.poll()), [(WriteOnly, sq(0))]);
        assert_eq!(f.sends(), []);
        f.feed_ack(sq(0));
        assert_eq!(
            f.sends(),
            [(0, OK), (1, Status::LocalProtectionError), (2, FLUSHED)]
        );
        assert_eq!(f.poll().len(), 0);
    }

    #[test]
    fn a_bad_list_behind_a_retransmission_is_found_again() {
        let mut f = Fixture::new();
        f.post(WRITE, 10);
        f.post_with(READ, 10, |wqe| {
            wqe.data = SendData::Gather(SgList::from_slice(&[sge(0, 5), sge(u64::MAX / 2, 5)]));
        });
        f.poll();
        f.fire_timer();
        assert_eq!(brief(&f.poll()), [(WriteOnly, sq(0))]);
        f.feed_ack(sq(0));
        assert_eq!(f.sends(), [(0, OK), (1, Status::LocalProtectionError)]);
    }

    #[test]
    fn memory_that_vanishes_in_the_middle_of_a_message() {
        let mut f = Fixture::new();
        f.post(WRITE, LEN);
        assert_eq!(f.poll_some(usize::MAX, 1).len(), 1);
        f.bench.memory.clear();
        assert_eq!(f.poll().len(), 0, "the packet was taken back");
        assert_eq!(f.sends(), [(0, Status::LocalProtectionError)]);
    }

    #[test]
    fn requests_that_cannot_be() {
        let none = crate::RcAttr {
            max_rd_atomic: 0,
            ..attr()
        };
        let list = |sges: &[Sge]| SendData::Gather(SgList::from_slice(sges));
        let too_long = [sge(0, u32::MAX)];
        let cases = [
            (
                attr(),
                FETCH_ADD,
                list(&[sge(0, 4)]),
                Status::LocalLengthError,
            ),
            (attr(), WRITE, list(&too_long), Status::LocalLengthError),
            (attr(), READ, list(&too_long), Status::LocalLengthError),
            (
                attr(),
                READ,
                SendData::Inline([1, 2].into_iter().collect()),
                Status::LocalQpOperationError,
            ),
            (
                none,
                READ,
                list(&[sge(0, 4)]),
                Status::LocalQpOperationError,
            ),
        ];
        for (attr, op, data, status) in cases {
            let mut f = Fixture::with(attr);
            let name = format!("{op:?}");
            f.post_with(op, 0, |wqe| wqe.data = data);
            assert_eq!(f.poll().len(), 0);
            assert_eq!(f.sends(), [(0, status)], "{name}");
        }
    }

    #[test]
    fn a_shared_receive_queue_is_not_flushed() {
        let mut f = Fixture::new();
        f.bench.srq = true;
        f.post_receive(1, &[]);
        f.rc.fail(&mut f.bench);
        f.rc.fail(&mut f.bench);
        assert_eq!(f.recvs(), []);
        assert_eq!(f.bench.events, [crate::QpEvent::LastWqeReached]);
    }

    #[test]
    fn reset_forgets_without_completions() {
        let mut f = Fixture::new();
        f.post(WRITE, 10);
        f.poll();
        f.rc.reset();
        assert_eq!(
            (
                f.rc.sends_outstanding(),
                f.rc.next_timeout(),
                f.sends().len()
            ),
            (0, None, 0)
        );
        f.feed_ack(sq(0));
        assert_eq!(f.rc.counters().dropped, 1);
        f.rc.receive_ready(attr());
        f.rc.send_ready(attr());
        f.post(WRITE, 10);
        assert_eq!(brief(&f.poll()), [(WriteOnly, sq(0))]);
    }
}

#[test]
fn a_full_sink_loses_nothing() {
    for room in [1, 2, 3] {
        let mut f = Fixture::with(crate::RcAttr {
            mtu: PathMtu::M256,
            ..attr()
        });
        f.post(WRITE, LEN);
        f.post(READ, 10);
        let mut all = Vec::new();
        while f.rc.wants_transmit() {
            let sent = f.poll_some(usize::MAX, room);
            assert!((1..=room).contains(&sent.len()));
            all.extend(sent);
        }
        let want = [
            (WriteFirst, sq(0)),
            (WriteMiddle, sq(1)),
            (WriteMiddle, sq(2)),
            (WriteLast, sq(3)),
            (ReadRequest, sq(4)),
        ];
        assert_eq!(brief(&all), want);
    }
}

#[test]
fn a_budget_ends_with_the_packet_that_crosses_it() {
    let mut f = Fixture::new();
    f.post(WRITE, LEN);
    assert_eq!(f.poll_some(1, usize::MAX).len(), 1);
    assert_eq!(f.poll_some(256 + 12 + 1, usize::MAX).len(), 2);
    assert_eq!(f.poll_some(0, usize::MAX).len(), 0);
}
