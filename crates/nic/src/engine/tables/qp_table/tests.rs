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

fn sorted(numbers: &[u32]) -> Vec<u32> {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted
}

/// Whoever knows a process's range and the numbers of some of its queue pairs does not know the
/// next one's.
#[test]
fn numbers_come_in_an_order_that_nobody_can_tell() {
    let [one, other] = [(); 2].map(|()| shuffled(4096, &Host::system()));
    assert!(
        sorted(&one.iter().map(|n| (*n).into()).collect::<Vec<_>>())
            .into_iter()
            .eq(0..4096)
    );
    // By chance one is where it was.
    let same = |a: &[u16], b: &[u16]| a.iter().zip(b).filter(|(a, b)| a == b).count();
    let inorder: Vec<u16> = (0..4096).collect();
    assert!(same(&one, &other) < 50 && same(&one, &inorder) < 50);
    let next = one.windows(2).filter(|w| w[0].abs_diff(w[1]) == 1).count();
    assert!(next < 50, "{next} neighbours");
}

#[test]
fn a_number_rests_before_it_is_used_again() {
    let mut churn = Churn::new(100);
    let start = 20 * SECOND;
    let first: Vec<u32> = (0..4).map(|i| churn.visit(start + i)).collect();
    assert_eq!((sorted(&first), churn.claimed), (vec![16, 17, 18, 19], 1));
    let mut second = vec![churn.visit(start + REST_NS - 1)];
    assert_eq!(churn.claimed, 2);
    // The rest of the new range first, then the old one, and no third.
    let later = start + 2 * REST_NS;
    second.extend((0..3).map(|_| churn.visit(later)));
    assert_eq!(sorted(&second), [32, 33, 34, 35]);
    let again: Vec<u32> = (0..3).map(|_| churn.visit(later)).collect();
    assert_eq!((again, churn.claimed), (first[..3].to_vec(), 2));
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
    assert_eq!(sorted(&numbers[..4]), [16, 17, 18, 19]);
    assert_eq!(numbers[..4], numbers[4..]);
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
