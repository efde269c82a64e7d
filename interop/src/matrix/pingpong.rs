//! rdma-core's examples, which check the bytes that they exchange.

use super::{Case, DIAGONAL, OTHER_DIAGONAL};
use crate::pair::{Pair, Select};
use rnic_programs::pingpong::expect_report;

fn case(program: &'static str, args: &str, size: u64, rounds: u64) -> Case {
    let args = format!("{args} -s {size} -n {rounds}");
    Case::new(format!("{program} {args}"), move |lab, way| {
        let pair = Pair {
            program,
            args: args.split_whitespace().map(str::to_owned).collect(),
            select: Select::Pingpong,
            options: &[],
        };
        expect_report(&pair.run(lab, way), size, rounds);
    })
}

pub fn add(cases: &mut Vec<Case>) {
    cases.push(case("ibv_rc_pingpong", "-c", 10000, 200).core(&DIAGONAL));
    cases.push(case("ibv_rc_pingpong", "-c -e -m 256", 10000, 200));
    cases.push(case("ibv_rc_pingpong", "-c -e -m 4096", 10000, 200));
    cases.push(case("ibv_uc_pingpong", "-c", 10000, 200).core(&OTHER_DIAGONAL));
    cases.push(case("ibv_uc_pingpong", "-c -e", 10000, 200));
    cases.push(case("ibv_ud_pingpong", "-c", 1000, 200).core(&DIAGONAL));
    cases.push(case("ibv_ud_pingpong", "-c -e", 1000, 200));
    cases.push(case("ibv_srq_pingpong", "-c", 10000, 200));
    cases.push(case("ibv_srq_pingpong", "-c -e -q 8", 10000, 200));
}
