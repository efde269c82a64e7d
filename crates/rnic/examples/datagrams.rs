//! Datagrams: a queue pair of UD talks with anybody, without a connection. What is lost is lost, so
//! the question is asked again until it is answered.
#![forbid(unsafe_code)]

use std::time::Duration;

use rnic::{Context, DatagramQueuePair, Destination, Error, HEADER_LEN, Result, SendRequest, Ud};

/// Answers one question.
fn answer(qp: &DatagramQueuePair, cq: &rnic::CompletionQueue) -> Result<()> {
    let question = cq.wait(Duration::from_secs(10))?.ok()?;
    let (from, qpn) = question.source().expect("a datagram says where it is from");
    println!(
        "{:?} from {from}, QP {qpn}",
        question.message().escape_ascii().to_string()
    );
    let back = Destination {
        ah: qp.pd().create_ah_from(&question)?,
        qpn,
        qkey: qp.qkey(),
    };
    qp.post(SendRequest::send_inline(b"fine").unsignaled(), &back)?;
    Ok(())
}

/// Asks and answers.
pub fn main() -> Result<()> {
    let context = Context::open()?;
    let gid = context.loopback_gid()?;
    let pd = context.alloc_pd()?;
    let [ask_cq, answer_cq] = [0; 2].map(|_| context.create_cq(64).build());
    let (ask_cq, answer_cq) = (ask_cq?, answer_cq?);
    let asks = pd.create_qp::<Ud>(&ask_cq, &ask_cq).gid(&gid).build()?;
    let answers = pd
        .create_qp::<Ud>(&answer_cq, &answer_cq)
        .gid(&gid)
        .build()?;
    // A datagram lands behind a header of the network.
    asks.post_recv(pd.buffer(HEADER_LEN + 64)?, 1)?;
    answers.post_recv(pd.buffer(HEADER_LEN + 64)?, 1)?;
    let to = Destination {
        ah: pd.create_ah(&gid, gid.addr)?,
        qpn: answers.qpn(),
        qkey: answers.qkey(),
    };
    let mut answered = false;
    for _ in 0..100 {
        asks.post(SendRequest::send_inline(b"how are you?").unsignaled(), &to)?;
        if !answered {
            answer(&answers, &answer_cq)?;
            answered = true;
        }
        match ask_cq.wait(Duration::from_millis(100)) {
            Ok(said) => {
                assert_eq!(said.ok()?.message(), b"fine");
                println!("\"fine\"");
                return Ok(());
            }
            Err(Error::Timeout(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::Timeout(Duration::from_secs(10)))
}
