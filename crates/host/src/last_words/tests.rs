use proptest::prelude::*;

use super::*;
use rnic_skip::Folder;

const PATIENCE: Duration = Duration::from_secs(10);

fn open(folder: &Folder) -> Registry {
    Registry::open(folder.path()).unwrap()
}

fn create(registry: &Registry) -> LastWordsFile {
    LastWordsFile::create(registry, &registry.lock(PATIENCE).unwrap()).unwrap()
}

fn take(registry: &Registry) -> Vec<DeadProcess> {
    take_from_the_dead(registry, &registry.lock(PATIENCE).unwrap())
}

/// As by SIGKILL: nothing is removed.
fn kill(mut file: LastWordsFile) {
    file.file.pid = 0;
}

fn record(n: u8) -> LastWords {
    [n; LAST_WORDS_LEN]
}

fn sorted(process: &DeadProcess) -> Vec<LastWords> {
    let mut records = process.last_words().to_vec();
    records.sort_unstable();
    records
}

#[test]
fn what_the_dead_left_is_taken_once() {
    let folder = Folder::new();
    let (a, b) = (open(&folder), open(&folder));
    let mut file = create(&a);
    let ids = [0, 1, 2, 3].map(|n| file.write(&record(n)).unwrap());
    file.remove(ids[1]);
    file.remove(LastWordsId(77));
    // A place is used again.
    let again = file.write(&record(9)).unwrap();
    assert_eq!(again, ids[1]);
    file.remove(ids[3]);
    assert!(take(&b).is_empty(), "taken from the living");
    kill(file);
    let dead = take(&b);
    assert_eq!(dead.len(), 1);
    assert_eq!(sorted(&dead[0]), [record(0), record(2), record(9)]);
    // By nobody else meanwhile, and not again.
    assert!(take(&a).is_empty() && take(&b).is_empty());
    drop(dead);
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
fn a_process_that_dies_over_it_leaves_it_to_the_next() {
    let folder = Folder::new();
    let (a, b) = (open(&folder), open(&folder));
    let mut file = create(&a);
    file.write(&record(5)).unwrap();
    kill(file);
    let mut dead = take(&a);
    dead[0]._file.pid = 0;
    drop(dead);
    assert_eq!(sorted(&take(&b)[0]), [record(5)]);
}

#[test]
fn a_process_that_ends_in_order_leaves_nothing() {
    let folder = Folder::new();
    let a = open(&folder);
    let mut file = create(&a);
    file.write(&record(5)).unwrap();
    drop(file);
    assert!(take(&a).is_empty() && names(&a).is_empty());
    // Nor does one that had nothing to leave.
    kill(create(&a));
    assert_eq!(names(&a).len(), 1);
    assert!(take(&a).is_empty() && names(&a).is_empty());
}

#[test]
fn many_find_room() {
    let folder = Folder::new();
    let a = open(&folder);
    let mut file = create(&a);
    let ids: Vec<LastWordsId> = (0..2000)
        .map(|n| file.write(&record(n as u8)).unwrap())
        .collect();
    for id in &ids[..1990] {
        file.remove(*id);
    }
    file.write(&record(1)).unwrap();
    kill(file);
    assert_eq!(take(&a)[0].last_words().len(), 11);
}

#[test]
fn garbage_is_no_record() {
    let folder = Folder::new();
    let a = open(&folder);
    for (i, garbage) in [vec![], vec![7; 5], vec![0xff; 100_000], vec![0; 1000]]
        .iter()
        .enumerate()
    {
        std::fs::write(a.path().join(format!("{PREFIX}{i}")), garbage).unwrap();
    }
    std::os::unix::fs::symlink("/etc/passwd", a.path().join(format!("{PREFIX}link"))).unwrap();
    std::fs::create_dir(a.path().join(format!("{PREFIX}dir"))).unwrap();
    assert!(take(&a).is_empty());
    assert_eq!(names(&a).len(), 2, "{:?}", names(&a));
    // A record cut short, and one with a bit changed, take nothing from the others.
    let mut file = create(&a);
    for n in 0..3 {
        file.write(&record(n)).unwrap();
    }
    sys::write_at(&file.file.fd, &[0x55], RECORD_LEN as u64 + 9).unwrap();
    sys::truncate(&file.file.fd, 3 * RECORD_LEN as u64 - 1).unwrap();
    kill(file);
    assert_eq!(take(&a)[0].last_words(), [record(0)]);
}

proptest! {
    #[test]
    fn a_record_survives_and_a_broken_one_does_not(record in proptest::array::uniform::<_, LAST_WORDS_LEN>(any::<u8>()), bit in 0usize..8 * RECORD_LEN) {
        let mut written = encode(&record);
        prop_assert_eq!(decode(&written), Some(record));
        written[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(decode(&written), None);
    }
}
