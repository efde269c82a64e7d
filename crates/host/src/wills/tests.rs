use proptest::prelude::*;

use super::*;
use rnic_skip::Folder;

const PATIENCE: Duration = Duration::from_secs(10);

fn open(folder: &Folder) -> Registry {
    Registry::open(folder.path()).unwrap()
}

fn create(registry: &Registry) -> Wills {
    Wills::create(registry, &registry.lock(PATIENCE).unwrap()).unwrap()
}

fn take(registry: &Registry) -> Vec<Estate> {
    take_of_the_dead(registry, &registry.lock(PATIENCE).unwrap())
}

/// As by SIGKILL: nothing is removed.
fn kill(mut wills: Wills) {
    wills.file.pid = 0;
}

fn will(n: u8) -> Will {
    [n; WILL_LEN]
}

fn sorted(estate: &Estate) -> Vec<Will> {
    let mut wills = estate.wills().to_vec();
    wills.sort_unstable();
    wills
}

#[test]
fn what_the_dead_left_is_taken_once() {
    let folder = Folder::new();
    let (a, b) = (open(&folder), open(&folder));
    let mut wills = create(&a);
    let ids = [0, 1, 2, 3].map(|n| wills.write(&will(n)).unwrap());
    wills.strike(ids[1]);
    wills.strike(WillId(77));
    // A place is used again.
    let again = wills.write(&will(9)).unwrap();
    assert_eq!(again, ids[1]);
    wills.strike(ids[3]);
    assert!(take(&b).is_empty(), "taken from the living");
    kill(wills);
    let estates = take(&b);
    assert_eq!(estates.len(), 1);
    assert_eq!(sorted(&estates[0]), [will(0), will(2), will(9)]);
    // By nobody else meanwhile, and not again.
    assert!(take(&a).is_empty() && take(&b).is_empty());
    drop(estates);
    assert!(take(&a).is_empty());
    assert!(names(&a).is_empty());
}

fn names(registry: &Registry) -> Vec<String> {
    let files = std::fs::read_dir(registry.path()).unwrap();
    files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with(PREFIX))
        .collect()
}

#[test]
fn who_dies_over_it_leaves_it_to_the_next() {
    let folder = Folder::new();
    let (a, b) = (open(&folder), open(&folder));
    let mut wills = create(&a);
    wills.write(&will(5)).unwrap();
    kill(wills);
    let mut estates = take(&a);
    estates[0]._file.pid = 0;
    drop(estates);
    assert_eq!(sorted(&take(&b)[0]), [will(5)]);
}

#[test]
fn who_ends_in_order_leaves_nothing() {
    let folder = Folder::new();
    let a = open(&folder);
    let mut wills = create(&a);
    wills.write(&will(5)).unwrap();
    drop(wills);
    assert!(take(&a).is_empty() && names(&a).is_empty());
    // Nor does who had nothing to leave.
    kill(create(&a));
    assert_eq!(names(&a).len(), 1);
    assert!(take(&a).is_empty() && names(&a).is_empty());
}

#[test]
fn many_find_room() {
    let folder = Folder::new();
    let a = open(&folder);
    let mut wills = create(&a);
    let ids: Vec<WillId> = (0..2000)
        .map(|n| wills.write(&will(n as u8)).unwrap())
        .collect();
    for id in &ids[..1990] {
        wills.strike(*id);
    }
    wills.write(&will(1)).unwrap();
    kill(wills);
    assert_eq!(take(&a)[0].wills().len(), 11);
}

#[test]
fn garbage_is_no_will() {
    let folder = Folder::new();
    let a = open(&folder);
    for (i, garbage) in [vec![], vec![7; 5], vec![0xff; 100_000], vec![0; 1000]]
        .iter()
        .enumerate()
    {
        std::fs::write(a.path().join(format!("{PREFIX}{i}")), garbage).unwrap();
    }
    std::os::unix::fs::symlink("/etc/passwd", a.path().join("will.link")).unwrap();
    std::fs::create_dir(a.path().join("will.dir")).unwrap();
    assert!(take(&a).is_empty());
    assert_eq!(names(&a).len(), 2, "{:?}", names(&a));
    // A record cut short, and one with a bit changed, take nothing from the others.
    let mut wills = create(&a);
    for n in 0..3 {
        wills.write(&will(n)).unwrap();
    }
    sys::write_at(&wills.file.fd, &[0x55], RECORD_LEN as u64 + 9).unwrap();
    sys::truncate(&wills.file.fd, 3 * RECORD_LEN as u64 - 1).unwrap();
    kill(wills);
    assert_eq!(take(&a)[0].wills(), [will(0)]);
}

proptest! {
    #[test]
    fn a_will_survives_and_a_broken_one_does_not(will in proptest::array::uniform::<_, WILL_LEN>(any::<u8>()), bit in 0usize..8 * RECORD_LEN) {
        let mut record = encode(&will);
        prop_assert_eq!(decode(&record), Some(will));
        record[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(decode(&record), None);
    }
}
