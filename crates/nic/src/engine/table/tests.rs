use super::*;

const SECOND: u64 = 1_000_000_000;

/// A process that makes and ends queue pairs, on a host with some ranges of four numbers.
struct Churn {
    table: QpTable,
    claimed: u32,
    host_has: u32,
    /// Another process is at the registry.
    busy: bool,
}

impl Churn {
    fn new(host_has: u32) -> Churn {
        Churn {
            table: QpTable::default(),
            claimed: 0,
            host_has,
            busy: false,
        }
    }

    fn allocate(&mut self, now_ns: u64) -> Result<Option<u32>, LinkError> {
        let (claimed, host_has, busy) = (&mut self.claimed, self.host_has, self.busy);
        self.table.allocate(now_ns, || {
            if busy {
                return Err(LinkError::Runtime {
                    path: "/runtime".into(),
                    source: std::io::ErrorKind::TimedOut.into(),
                });
            }
            if *claimed == host_has {
                return Err(LinkError::NoQpnRange { live: 1 });
            }
            *claimed += 1;
            Ok(QpnRange {
                first: *claimed * 16,
                count: 4,
            })
        })
    }

    /// A queue pair that ends at once.
    fn visit(&mut self, now_ns: u64) -> u32 {
        let qpn = self.allocate(now_ns).unwrap().unwrap();
        self.table.let_rest(qpn, now_ns);
        qpn
    }
}

#[test]
fn a_number_rests_before_it_is_used_again() {
    let mut churn = Churn::new(100);
    let start = 20 * SECOND;
    let numbers: Vec<u32> = (0..4).map(|i| churn.visit(start + i)).collect();
    assert_eq!((numbers, churn.claimed), (vec![16, 17, 18, 19], 1));
    assert_eq!(churn.visit(start + REST_NS - 1), 32);
    assert_eq!(churn.claimed, 2);
    // The rest of the new range first, then the old one, and no third.
    let later = start + 2 * REST_NS;
    let numbers: Vec<u32> = (0..6).map(|_| churn.visit(later)).collect();
    assert_eq!((numbers, churn.claimed), (vec![33, 34, 35, 16, 17, 18], 2));
}

#[test]
fn the_ranges_for_that_are_bounded() {
    let mut churn = Churn::new(100);
    let numbers: Vec<u32> = (0..4 * 16).map(|_| churn.visit(SECOND)).collect();
    assert_eq!(churn.claimed as usize, RANGES_FOR_REST);
    // Then they go round.
    let again: Vec<u32> = (0..4 * 16).map(|_| churn.visit(SECOND)).collect();
    assert_eq!(again, numbers);
    assert_eq!(churn.claimed as usize, RANGES_FOR_REST);
}

#[test]
fn a_host_without_ranges_is_no_reason_to_fail() {
    let mut churn = Churn::new(1);
    let numbers: Vec<u32> = (0..8).map(|_| churn.visit(SECOND)).collect();
    assert_eq!(numbers, [16, 17, 18, 19, 16, 17, 18, 19]);
    let mut none = Churn::new(0);
    let error = none.allocate(SECOND).expect_err("there is none");
    assert!(matches!(error, LinkError::NoQpnRange { live: 1 }));
}

#[test]
fn a_moment_in_which_no_range_can_be_had_is_no_limit() {
    let mut churn = Churn::new(100);
    let numbers: Vec<u32> = (0..4).map(|_| churn.visit(SECOND)).collect();
    churn.busy = true;
    assert!(churn.allocate(SECOND).is_err_and(|e| e.is_busy()));
    churn.busy = false;
    assert!(!numbers.contains(&churn.visit(SECOND)), "they rest");
}
