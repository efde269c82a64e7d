use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::process::{Command, Stdio};
use std::sync::Barrier;

use lzma_rust2::{LzipOptions, LzipWriter};

use super::super::scratch::Scratch;
use super::*;

/// Longer than the pieces in which it is read.
fn content() -> Vec<u8> {
    (0..200_000u32)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect()
}

fn compressed() -> Vec<u8> {
    let mut lzip = LzipWriter::new(Vec::new(), LzipOptions::with_preset(0));
    lzip.write_all(&content()).unwrap();
    lzip.finish().unwrap()
}

fn embedded(lzip: &[u8]) -> Embedded<'_> {
    Embedded {
        stem: "librnic_verbs",
        lzip,
        id: "1234",
    }
}

#[track_caller]
fn lay(lzip: &[u8], folder: &Path) -> PathBuf {
    match embedded(lzip).lay(&[folder.into()]) {
        Ok(Laid::File(path)) => path,
        Ok(Laid::Memory(..)) => panic!("in memory, though {} is there", folder.display()),
        Err(unusable) => panic!("{unusable:?}"),
    }
}

/// Promise: the library is written once, owner-only, and used from then on.
#[test]
fn it_is_written_once() {
    let (scratch, lzip) = (Scratch::new("once"), compressed());
    let folder = scratch.0.join("rnic");
    let path = lay(&lzip, &folder);
    assert_eq!(std::fs::read(&path).unwrap(), content());
    let first = std::fs::metadata(&path).unwrap();
    assert_eq!(first.mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
    assert_eq!(lay(&lzip, &folder), path);
    let second = std::fs::metadata(&path).unwrap();
    assert_eq!(
        (first.ino(), first.ctime_nsec()),
        (second.ino(), second.ctime_nsec())
    );
    assert_eq!(
        std::fs::read_dir(&folder).unwrap().count(),
        1,
        "nothing else"
    );
    // Another build has another file.
    let other = Embedded {
        stem: "librnic_verbs",
        lzip: &lzip,
        id: "5678",
    };
    let Ok(Laid::File(other)) = other.lay(&[folder]) else {
        panic!()
    };
    assert_ne!(other, path);
}

/// Promise: a damaged file, or one that others could have changed, is replaced before any program
/// loads it.
#[test]
fn what_is_damaged_or_strange_is_replaced() {
    let (scratch, lzip) = (Scratch::new("damaged"), compressed());
    let folder = scratch.0.join("rnic");
    let path = lay(&lzip, &folder);
    let other = scratch.0.join("other");
    std::fs::write(&other, content()).unwrap();
    let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode));
    let truncate = || std::fs::write(&path, &content()[..100_000]);
    let damage = || {
        let mut bytes = content();
        bytes[150_000] ^= 1;
        std::fs::write(&path, bytes)
    };
    let put_link = || std::fs::remove_file(&path).and_then(|()| symlink(&other, &path));
    let put_hard_link =
        || std::fs::remove_file(&path).and_then(|()| std::fs::hard_link(&other, &path));
    let put_socket = || {
        std::fs::remove_file(&path)?;
        std::os::unix::net::UnixListener::bind(&path).map(drop)
    };
    let strange: [(&str, &dyn Fn() -> io::Result<()>); 7] = [
        ("truncated", &truncate),
        ("a byte differs", &damage),
        ("empty", &|| std::fs::write(&path, "")),
        ("writable for all", &|| mode(0o666)),
        ("a link to the right content", &put_link),
        ("a second name of a file elsewhere", &put_hard_link),
        ("a socket", &put_socket),
    ];
    for (what, prepare) in strange {
        prepare().unwrap();
        assert_eq!(lay(&lzip, &folder), path, "{what}");
        let meta = std::fs::symlink_metadata(&path).unwrap();
        assert!(
            meta.is_file() && meta.nlink() == 1 && !meta.file_type().is_socket(),
            "{what}"
        );
        assert_eq!(meta.mode() & 0o777, 0o600, "{what}");
        assert_eq!(std::fs::read(&path).unwrap(), content(), "{what}");
        assert_eq!(
            std::fs::read(&other).unwrap(),
            content(),
            "{what}: not through a link"
        );
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "{what}");
    }
}

/// Promise: what cannot be replaced is refused with the name of the culprit; it is never loaded.
#[test]
fn a_folder_in_its_place_is_refused() {
    let (scratch, lzip) = (Scratch::new("refused"), compressed());
    let folder = scratch.0.join("rnic");
    let path = lay(&lzip, &folder);
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let Err(Unusable::Strange(_, cause)) = embedded(&lzip).lay(std::slice::from_ref(&folder))
    else {
        panic!("it was used")
    };
    assert!(cause.contains("is a folder; remove it"), "{cause}");
    assert_eq!(
        std::fs::read_dir(&folder).unwrap().count(),
        1,
        "nothing is left over"
    );
    // Everybody could write to the folder itself.
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(
        embedded(&lzip).lay(&[folder]),
        Err(Unusable::Strange(..))
    ));
}

/// Promise: runs that start at once all get a whole library.
#[test]
fn runs_at_once_agree() {
    let (scratch, lzip) = (Scratch::new("at-once"), compressed());
    let folder = scratch.0.join("rnic");
    for _ in 0..5 {
        let together = Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    together.wait();
                    let path = lay(&lzip, &folder);
                    assert!(std::fs::read(path).unwrap() == content());
                });
            }
        });
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

/// Promise: a folder that cannot be written to, as in a read-only home, is passed over.
#[test]
fn the_next_folder_is_taken_where_the_first_cannot_be_written() {
    let (scratch, lzip) = (Scratch::new("next"), compressed());
    let folder = scratch.0.join("rnic");
    let places = [
        "/proc/rnic".into(),
        "/no/such/folder/rnic".into(),
        folder.clone(),
    ];
    let Ok(Laid::File(path)) = embedded(&lzip).lay(&places) else {
        panic!("in memory, or refused")
    };
    assert!(path.starts_with(&folder));
}

/// Promise: a folder whose files cannot be mapped as code is passed over: the loader would say no
/// more than that it failed.
#[test]
fn a_folder_without_execution_is_passed_over() {
    let (scratch, lzip) = (Scratch::new("noexec"), compressed());
    let mount = "mount -t tmpfs -o mode=700,noexec tmpfs \"$0\" && echo ready && read end";
    let mut holder = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", mount])
        .arg(&scratch.0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("unshare, of util-linux");
    let mut said = String::new();
    let mut answer = BufReader::new(holder.stdout.take().expect("piped"));
    answer.read_line(&mut said).expect("a line or the end");
    if said != "ready\n" {
        let _ = holder.wait();
        rnic_skip::skipped("a folder without execution", "no namespaces of users");
        return;
    }
    // As that process sees it.
    let inside = PathBuf::from(format!("/proc/{}/root{}", holder.id(), scratch.0.display()));
    let places = [inside.join("rnic"), scratch.0.join("rnic")];
    assert!(folders::private(&places[0]).is_ok(), "it can be written");
    let laid = embedded(&lzip).lay(&places);
    let none = embedded(&lzip).lay(&places[..1]);
    drop(holder.stdin.take());
    holder.wait().expect("it ends with its input");
    assert!(matches!(laid, Ok(Laid::File(path)) if path.starts_with(&places[1])));
    assert!(matches!(none, Ok(Laid::Memory(..))));
}

/// Promise: with no folder at all, the library is in memory, whole, unchangeable, and has a name
/// while it is held.
#[test]
fn without_any_folder_it_is_in_memory() {
    let lzip = compressed();
    let Ok(Laid::Memory(path, held)) = embedded(&lzip).lay(&["/proc/rnic".into()]) else {
        panic!("it was written to /proc")
    };
    assert_eq!(std::fs::read(&path).unwrap(), content());
    let refused = File::options()
        .write(true)
        .open(&path)
        .and_then(|mut f| f.write_all(b"x"));
    assert!(refused.is_err(), "it is sealed");
    drop(held);
    assert!(File::open(&path).is_err(), "it is gone");
}

/// Promise: what a killed run left half written does not stay for ever, and what another one is
/// writing now stays.
#[test]
fn unfinished_files_go() {
    let (scratch, lzip) = (Scratch::new("unfinished"), compressed());
    let folder = scratch.0.join("rnic");
    std::fs::remove_file(lay(&lzip, &folder)).unwrap();
    let (old, new) = (".librnic_verbs-0.so.1", ".librnic_verbs-0.so.2");
    for name in [old, new] {
        std::fs::write(folder.join(name), "half").unwrap();
    }
    let file = File::options().write(true).open(folder.join(old)).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    lay(&lzip, &folder);
    assert!(!folder.join(old).exists() && folder.join(new).exists());
}

/// Promise: a library beside the program is used only if it is the one inside.
#[test]
fn a_library_of_another_build_is_not_taken() {
    let (scratch, lzip) = (Scratch::new("beside"), compressed());
    let place = scratch.0.join("librnic_verbs.so");
    std::fs::write(&place, content()).unwrap();
    assert!(embedded(&lzip).lies_at(&place));
    let mut other = content();
    other[7] ^= 1;
    std::fs::write(&place, other).unwrap();
    assert!(!embedded(&lzip).lies_at(&place));
    assert!(!embedded(&lzip).lies_at(&scratch.0), "a folder");
}
