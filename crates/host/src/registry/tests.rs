use proptest::prelude::*;

use super::*;
use rnic_skip::Folder;

pub(crate) fn claim(registry: &mut Registry) -> u32 {
    let locked = registry.lock(Duration::from_secs(10)).unwrap();
    registry
        .claim(&locked, None)
        .unwrap()
        .expect("a free range")
}

#[test]
fn ranges_are_exclusive_and_come_in_turn() {
    let folder = Folder::new();
    let mut a = Registry::open(folder.path()).unwrap();
    let mut b = Registry::open(folder.path()).unwrap();
    assert_eq!(a.cookie(), b.cookie());
    let r = [claim(&mut a), claim(&mut b), claim(&mut a)];
    let next = |r: u32| if r == RANGES - 2 { 1 } else { r + 1 };
    assert_eq!([r[1], r[2]], [next(r[0]), next(r[1])]);
    assert!(a.owns(r[0]) && !a.owns(r[1]) && a.owns(r[2]));
    assert!(!a.owns(0) && !a.owns(u32::MAX));
    let live: Vec<u32> = b.live().unwrap().iter().map(|l| l.0).collect();
    let mut expected = r.to_vec();
    expected.sort_unstable();
    assert_eq!(live, expected);
    assert_eq!(b.entry(r[2]).unwrap().first_range, r[0]);
    // A process ends without a word: its ranges are dead, the others' are not, and the numbers rest
    // for a round.
    drop(a);
    let mut dead: Vec<u32> = b.dead().unwrap().iter().map(|l| l.0).collect();
    let mut expected = vec![r[0], r[2]];
    expected.sort_unstable();
    dead.sort_unstable();
    assert_eq!(dead, expected);
    assert_eq!(claim(&mut b), next(r[2]));
}

#[test]
fn all_ranges_can_be_had_and_no_more() {
    let folder = Folder::new();
    let mut a = Registry::open(folder.path()).unwrap();
    let mut all: Vec<u32> = (0..RANGES - 2).map(|_| claim(&mut a)).collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(1..RANGES - 1));
    let mut b = Registry::open(folder.path()).unwrap();
    let locked = b.lock(Duration::from_secs(10)).unwrap();
    assert_eq!(b.claim(&locked, None).unwrap(), Err(1));
    drop(locked);
    a.release_all();
    claim(&mut b);
    assert_eq!(b.live().unwrap().len(), 1);
}

#[test]
fn places_are_published() {
    let folder = Folder::new();
    let mut a = Registry::open(folder.path()).unwrap();
    let b = Registry::open(folder.path()).unwrap();
    let r = [claim(&mut a), claim(&mut a)];
    let locked = a.lock(Duration::from_secs(10)).unwrap();
    a.publish_slot(&locked, Some(9)).unwrap();
    for range in r {
        let expected = Entry {
            pid: std::process::id(),
            first_range: r[0],
            slot: Some(9),
        };
        assert_eq!(b.entry(range), Some(expected));
    }
}

#[test]
fn the_lock_excludes_and_patience_ends() {
    let folder = Folder::new();
    let a = Registry::open(folder.path()).unwrap();
    let b = Registry::open(folder.path()).unwrap();
    let locked = a.lock(Duration::ZERO).unwrap();
    let error = b.lock(Duration::from_millis(2)).err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    drop(locked);
    drop(b.lock(Duration::ZERO).unwrap());
}

#[test]
fn a_folder_of_others_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let error = Registry::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("other users may enter it"), "{error}");
    // The folder that is wrong is named, and not one in it.
    let named = format!("{}: ", folder.path().display());
    assert!(error.contains(&named), "{error}");
    // A link to a folder that would do.
    let good = Folder::new();
    let link = good.path().join("link");
    let target = good.path().join("target");
    sys::make_dir_at(None, &c_string(target.as_os_str()).unwrap(), 0o700).unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    assert!(Registry::open(&link).is_err());
    assert!(Registry::open(&target).is_ok());
    assert!(Registry::open(Path::new("/nonexistent/deep")).is_err());
}

/// In /tmp somebody else may have made the folder first: what would be written there would be his
/// to read and to change.
#[test]
fn a_folder_that_another_user_made_is_refused() {
    const NOBODY: u32 = 65534;
    let folder = Folder::new();
    if std::os::unix::fs::chown(folder.path(), Some(NOBODY), None).is_err() {
        rnic_skip::skipped(
            "a_folder_that_another_user_made_is_refused",
            "only root can give a folder away",
        );
        return;
    }
    let error = Registry::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("it belongs to uid 65534"), "{error}");
}

/// Whatever the umask is, others may neither look into it nor write.
#[test]
fn others_may_do_nothing_in_a_folder_of_ours() {
    use std::os::unix::fs::MetadataExt;
    let folder = Folder::new();
    let base = folder.path().join("runtime");
    let registry = Registry::open(&base).unwrap();
    crate::source_ports::SourcePorts::open(&registry).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!([mode(&base), mode(registry.path())], [0o700; 2]);
    let files: Vec<PathBuf> = std::fs::read_dir(registry.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(files.len(), 3, "{files:?}");
    for file in files {
        assert_eq!(mode(&file) & 0o077, 0, "{}", file.display());
    }
}

fn file_of(folder: &Folder) -> PathBuf {
    let net = std::fs::read_dir(folder.path())
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    net.path().join("registry")
}

#[test]
fn a_spoilt_header_is_written_anew_and_live_ranges_stay() {
    let folder = Folder::new();
    let mut a = Registry::open(folder.path()).unwrap();
    let range = claim(&mut a);
    for content in [
        vec![],
        b"short".to_vec(),
        vec![0xff; FILE_LEN],
        vec![0; FILE_LEN + 1],
    ] {
        std::fs::write(file_of(&folder), content).unwrap();
        let mut b = Registry::open(folder.path()).unwrap();
        let c = Registry::open(folder.path()).unwrap();
        assert_eq!(b.cookie(), c.cookie());
        for _ in 0..3 {
            assert_ne!(claim(&mut b), range);
        }
    }
}

#[test]
fn truncated_under_way_is_no_disaster() {
    let folder = Folder::new();
    let mut a = Registry::open(folder.path()).unwrap();
    let range = claim(&mut a);
    std::fs::write(file_of(&folder), b"").unwrap();
    assert_eq!(a.entry(range), None);
    assert!(a.live().unwrap().is_empty());
    assert!(a.dead().unwrap().is_empty());
    let more = claim(&mut a);
    assert_ne!(more, range);
    a.release_all();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn whatever_the_entries_say_is_checked(seed in any::<u64>(), density in 1u64..64) {
        let folder = Folder::new();
        let mut a = Registry::open(folder.path()).unwrap();
        let own = claim(&mut a);
        let path = file_of(&folder);
        let mut bytes = std::fs::read(&path).unwrap();
        let mut x = seed | 1;
        for byte in &mut bytes[16..] {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            if x % density == 0 {
                *byte = (x >> 32) as u8;
            }
        }
        std::fs::write(&path, bytes).unwrap();
        for range in 0..RANGES + 2 {
            if let Some(entry) = a.entry(range) {
                prop_assert!(may_be_claimed(range) && may_be_claimed(entry.first_range) && entry.pid != 0);
            }
        }
        for (range, entry) in a.live().unwrap() {
            prop_assert_eq!(range, own);
            prop_assert!(may_be_claimed(entry.first_range));
        }
        for (range, _) in a.dead().unwrap() {
            prop_assert_ne!(range, own);
        }
        let mut b = Registry::open(folder.path()).unwrap();
        for _ in 0..5 {
            let range = claim(&mut b);
            prop_assert!(may_be_claimed(range) && range != own);
        }
    }
}

#[test]
fn a_thread_in_another_network_has_another_registry() {
    let runtime = Path::new("/runtime");
    let there = rnic_skip::in_another_namespace(|| Registry::place(runtime));
    assert_ne!(there, Some(Registry::place(runtime)));
}
