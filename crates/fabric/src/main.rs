//! x
fn main() {
    let n: u64 = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(100);
    let from: u64 = std::env::args()
        .nth(2)
        .and_then(|n| n.parse().ok())
        .unwrap_or(0);
    let start = std::time::Instant::now();
    let (mut sent, mut harmed) = (0, 0);
    for seed in from..from + n {
        let s = rnic_fabric::Scenario::random(seed, &rnic_fabric::Shape::default());
        let o = rnic_fabric::run(&s);
        sent += o.network.sent;
        harmed += o.network.harmed();
        if let Some(f) = &o.failure {
            println!("seed {seed}: {f}");
        }
        if seed % 7 == 0 && rnic_fabric::run(&s) != o {
            println!("seed {seed}: not the same twice");
        }
    }
    println!(
        "{n} scenarios, {sent} packets, {harmed} harmed, {:?}",
        start.elapsed()
    );
}
