use super::*;
use std::os::unix::fs::PermissionsExt;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("rnic-program-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        Scratch(dir)
    }

    fn file(&self, name: &str, bytes: &[u8], mode: u32) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(result: Result<impl std::fmt::Debug>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn programs_are_found_as_a_shell_does() {
    assert!(find(OsStr::new("sh")).unwrap().is_absolute());
    check(&find(OsStr::new("sh")).unwrap()).unwrap();
    let failure = find(OsStr::new("no-such-program")).unwrap_err();
    assert_eq!(failure.status, 127);
    let said = failure.to_string();
    assert!(
        said.contains("no-such-program") && said.contains("/bin"),
        "{said}"
    );
    assert_eq!(
        find(OsStr::new("/no/such/program")).unwrap_err().status,
        127
    );
    assert!(find(OsStr::new("")).is_err());
    assert!(find(OsStr::new("/")).is_err());
    let missing = package(OsStr::new("ib_write_bw"));
    assert_eq!(missing, Some("perftest"));
}

#[test]
fn what_is_not_executable_is_said() {
    let scratch = Scratch::new("mode");
    let path = scratch.file("plain", b"#!/bin/sh\n", 0o644);
    let failure = find(path.as_os_str()).unwrap_err();
    assert_eq!(failure.status, 126);
    assert!(failure.to_string().contains("chmod +x"), "{failure}");
}

#[test]
fn scripts_are_judged_by_their_interpreter() {
    let scratch = Scratch::new("scripts");
    for line in [
        "#!/bin/sh\n",
        "#!/usr/bin/env sh\n",
        "#!/usr/bin/env -S A=b sh -e\n",
        "#! /bin/sh -e\n",
    ] {
        check(&scratch.file("good", line.as_bytes(), 0o755)).unwrap();
    }
    let said = text(check(&scratch.file(
        "lost",
        b"#!/no/such/interpreter\n",
        0o755,
    )));
    assert!(
        said.contains("/no/such/interpreter") && said.contains("lost"),
        "{said}"
    );
    let said = text(check(&scratch.file("plain", b"echo\n", 0o755)));
    assert!(said.contains("rnic run -- sh"), "{said}");
    let own = scratch.0.join("loop");
    scratch.file("loop", format!("#!{}\n", own.display()).as_bytes(), 0o755);
    assert!(check(&own).is_err(), "its own interpreter");
}

#[test]
fn static_foreign_musl_and_setuid_programs_are_refused_with_a_reason() {
    let scratch = Scratch::new("elf");
    let sh = std::fs::read("/bin/sh").unwrap();
    // Without its PT_INTERP header it is a static-pie program.
    let table = u64::from_le_bytes(sh[32..40].try_into().unwrap()) as usize;
    let count = u16::from_le_bytes(sh[56..58].try_into().unwrap()) as usize;
    let interp = (0..count)
        .map(|i| table + 56 * i)
        .find(|at| sh[*at..*at + 4] == [3, 0, 0, 0])
        .unwrap();
    let mut fixed = sh.clone();
    fixed[interp] = 0;
    let said = text(check(&scratch.file("static", &fixed, 0o755)));
    assert!(
        said.contains("statically linked") && said.contains("next:"),
        "{said}"
    );
    let script = scratch.file(
        "script",
        format!("#!{}/static\n", scratch.0.display()).as_bytes(),
        0o755,
    );
    let said = text(check(&script));
    assert!(
        said.contains("interpreter of") && said.contains("statically"),
        "{said}"
    );

    let mut foreign = sh.clone();
    foreign[18..20].copy_from_slice(&243u16.to_le_bytes());
    let said = text(check(&scratch.file("foreign", &foreign, 0o755)));
    assert!(said.contains("RISC-V"), "{said}");

    if rnic_sys::effective_uid() == 0 {
        let path = scratch.file("setuid", &sh, 0o755);
        std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(text(check(&path)).contains("setuid"));
    }
}
