use super::*;

/// A little-endian 64-bit ELF file with one program header and `loader` behind it.
fn program(kind: u16, machine: u16, header_type: u32, loader: &[u8]) -> Vec<u8> {
    let mut file = vec![0; 64 + 56];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    file[16..18].copy_from_slice(&kind.to_le_bytes());
    file[18..20].copy_from_slice(&machine.to_le_bytes());
    file[32..40].copy_from_slice(&64u64.to_le_bytes());
    file[54..56].copy_from_slice(&56u16.to_le_bytes());
    file[56..58].copy_from_slice(&1u16.to_le_bytes());
    file[64..68].copy_from_slice(&header_type.to_le_bytes());
    file[72..80].copy_from_slice(&120u64.to_le_bytes());
    file[96..104].copy_from_slice(&(loader.len() as u64).to_le_bytes());
    file.extend_from_slice(loader);
    file
}

#[test]
fn dynamic_and_static() {
    let dynamic = program(ET_DYN, MACHINE, PT_INTERP, b"/lib/ld.so\0");
    assert_eq!(
        kind(&dynamic),
        Kind::Dynamic {
            loader: "/lib/ld.so".into()
        }
    );
    let fixed = program(ET_EXEC, MACHINE, PT_INTERP, b"/lib/ld.so\0");
    assert_eq!(
        kind(&fixed),
        Kind::Dynamic {
            loader: "/lib/ld.so".into()
        }
    );
    assert_eq!(kind(&program(ET_EXEC, MACHINE, 1, b"")), Kind::Static);
    assert_eq!(
        kind(&program(ET_DYN, MACHINE, 1, b"")),
        Kind::Static,
        "static-pie"
    );
}

#[test]
fn the_programs_of_this_machine_are_dynamic() {
    for path in ["/bin/sh", "/proc/self/exe"] {
        let bytes = std::fs::read(path).unwrap();
        assert!(
            matches!(kind(&bytes), Kind::Dynamic { .. }),
            "{path}: {:?}",
            kind(&bytes)
        );
    }
}

#[test]
fn other_machines() {
    let other = if MACHINE == 62 { 183 } else { 62 };
    let foreign = program(ET_DYN, other, PT_INTERP, b"/lib/ld.so\0");
    assert_eq!(
        kind(&foreign),
        Kind::OtherMachine {
            machine: other,
            bits: 64
        }
    );
    let mut narrow = program(ET_DYN, 3, PT_INTERP, b"");
    narrow[4] = 1;
    assert_eq!(
        kind(&narrow),
        Kind::OtherMachine {
            machine: 3,
            bits: 32
        }
    );
    let mut big_endian = program(ET_EXEC, 0, PT_INTERP, b"");
    big_endian[5] = 2;
    big_endian[18..20].copy_from_slice(&22u16.to_be_bytes());
    assert_eq!(
        kind(&big_endian),
        Kind::OtherMachine {
            machine: 22,
            bits: 64
        }
    );
    assert_eq!(machine_name(22), "S/390");
}

#[test]
fn damaged_files_are_no_programs_and_no_panics() {
    assert!(matches!(
        kind(&program(1, MACHINE, PT_INTERP, b"")),
        Kind::NotAProgram(_)
    ));
    let good = program(ET_DYN, MACHINE, PT_INTERP, b"/lib/ld.so\0");
    for len in 4..good.len() {
        assert!(
            matches!(kind(&good[..len]), Kind::NotAProgram(_)),
            "cut off after {len}"
        );
    }
    // Every byte of the headers at its extremes.
    for at in 4..120 {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bad = good.clone();
            bad[at] = value;
            let _ = kind(&bad);
        }
    }
    let mut far = good.clone();
    far[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(matches!(kind(&far), Kind::NotAProgram(_)));
    assert_eq!(kind(b""), Kind::Unknown);
    assert_eq!(kind(b"\x7fEL"), Kind::Unknown);
}

#[test]
fn scripts() {
    let script = |line: &str| kind(line.as_bytes());
    assert_eq!(
        script("#!/bin/sh\necho"),
        Kind::Script {
            interpreter: "/bin/sh".into(),
            argument: None
        }
    );
    assert_eq!(
        script("#! /usr/bin/env  python3 -u \n"),
        Kind::Script {
            interpreter: "/usr/bin/env".into(),
            argument: Some("python3 -u".into())
        }
    );
    assert_eq!(script("#!\n"), Kind::Unknown);
    assert_eq!(script("echo"), Kind::Unknown);
}

#[test]
fn libraries() {
    let other = if MACHINE == 62 { 183 } else { 62 };
    assert!(is_library(&program(ET_DYN, MACHINE, 1, b"")));
    assert!(!is_library(&program(ET_EXEC, MACHINE, 1, b"")));
    assert!(!is_library(&program(ET_DYN, other, 1, b"")));
    assert!(!is_library(b"root:x:0:0:root:/root:/bin/bash\n"));
    assert!(!is_library(b"\x7fELF"));
}
