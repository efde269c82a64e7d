use std::os::unix::fs::MetadataExt;

use super::super::scratch::Scratch;
use super::*;

#[test]
fn all_names_lead_to_the_library() {
    let scratch = Scratch::new("names");
    let library = scratch.0.join("lib.so");
    std::fs::write(&library, "").unwrap();
    let dir = folder_in(&scratch.0, &library).unwrap();
    assert_eq!(
        dir,
        folder_in(&scratch.0, &library).unwrap(),
        "the same again"
    );
    for name in NAMES {
        assert_eq!(std::fs::read_link(dir.join(name)).unwrap(), library);
    }
    assert_eq!(
        std::fs::symlink_metadata(&dir).unwrap().mode() & 0o777,
        0o700
    );
    // A damaged folder is mended.
    std::fs::remove_file(dir.join(NAMES[2])).unwrap();
    std::fs::remove_file(dir.join(NAMES[0])).unwrap();
    symlink("/nowhere", dir.join(NAMES[0])).unwrap();
    folder_in(&scratch.0, &library).unwrap();
    for name in NAMES {
        assert_eq!(std::fs::read_link(dir.join(name)).unwrap(), library);
    }
}

#[test]
fn a_newer_build_at_the_same_place_has_the_same_folder() {
    let scratch = Scratch::new("rebuilt");
    let library = scratch.0.join("lib.so");
    std::fs::write(&library, "").unwrap();
    let before = folder_in(&scratch.0, &library).unwrap();
    let file = std::fs::File::options().write(true).open(&library).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(folder_in(&scratch.0, &library).unwrap(), before);
}

#[test]
fn concurrent_runs_agree() {
    let scratch = Scratch::new("concurrent");
    let library = scratch.0.join("lib.so");
    std::fs::write(&library, "").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            // Links of one process have one name, so only the outcome counts here.
            scope.spawn(|| folder_in(&scratch.0, &library));
        }
    });
    let dir = folder_in(&scratch.0, &library).unwrap();
    for name in NAMES {
        assert_eq!(std::fs::read_link(dir.join(name)).unwrap(), library);
    }
}

#[test]
fn folders_of_libraries_that_are_gone_go_too() {
    let scratch = Scratch::new("prune");
    let (old, new) = (scratch.0.join("old.so"), scratch.0.join("new.so"));
    std::fs::write(&old, "").unwrap();
    std::fs::write(&new, "").unwrap();
    let old_dir = folder_in(&scratch.0, &old).unwrap();
    folder_in(&scratch.0, &new).unwrap();
    assert!(old_dir.exists(), "its library is still there");
    std::fs::remove_file(&old).unwrap();
    folder_in(&scratch.0, &new).unwrap();
    assert!(!old_dir.exists());
}

#[test]
fn what_is_no_library_is_not_handed_to_the_loader() {
    let scratch = Scratch::new("named");
    let said = |bytes: &[u8]| {
        let path = scratch.0.join("lib.so");
        std::fs::write(&path, bytes).unwrap();
        named(&path).map_err(|error| error.to_string())
    };
    let own = std::fs::read("/proc/self/exe").unwrap();
    assert!(said(&own).is_ok());
    assert!(
        said(b"root:x:0:0")
            .unwrap_err()
            .contains("not a shared library")
    );
    let mut foreign = own;
    foreign[18..20].copy_from_slice(&243u16.to_le_bytes());
    assert!(said(&foreign).unwrap_err().contains("RISC-V"));
    assert!(named(&scratch.0).is_err(), "a folder");
}
