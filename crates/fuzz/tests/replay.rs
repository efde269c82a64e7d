//! Every fuzz target with the inputs that are kept of it, and with changed ones.

use std::path::{Path, PathBuf};

use rnic_fuzz::TARGETS;

/// Changed inputs of each target, which take a second.
const CHANGED: usize = 20_000;

fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("seeds")
        .join(target);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<_> = files.map(|file| file.expect("an entry").path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).expect("a file");
        (path, bytes)
    };
    paths.into_iter().map(read).collect()
}

/// Says which input it was if the target panics.
struct Named<'a>(&'a str, String, &'a [u8]);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let hex: String = self.2.iter().map(|byte| format!("{byte:02x}")).collect();
            eprintln!("target {}, {}: {hex}", self.0, self.1);
        }
    }
}

fn with(target: &str, what: impl Into<String>, bytes: &[u8]) {
    let named = Named(target, what.into(), bytes);
    rnic_fuzz::run(target, bytes);
    drop(named);
}

#[test]
fn what_is_kept_is_survived() {
    for (target, _) in TARGETS {
        let seeds = seeds(target);
        assert!(seeds.len() >= 5, "{target}: {} seeds", seeds.len());
        with(target, "nothing", &[]);
        for (path, bytes) in &seeds {
            with(target, path.display().to_string(), bytes);
        }
    }
}

/// Bits flipped, bytes and pieces of others put in, taken out, doubled, cut.
fn changed(rng: &mut fastrand::Rng, seeds: &[(PathBuf, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = rng.choice(seeds).expect("some").1.clone();
    for _ in 0..rng.usize(1..6) {
        let at = rng.usize(0..=bytes.len());
        match rng.u8(0..7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << rng.u8(0..8),
            1 if at < bytes.len() => bytes[at] = rng.u8(..),
            2 if at < bytes.len() => {
                bytes[at] = *rng.choice(&[0, 1, 0x7f, 0x80, 0xff]).expect("one")
            }
            3 => bytes.truncate(at),
            4 => bytes.insert(at, rng.u8(..)),
            5 => {
                let end = rng.usize(at..=bytes.len()).min(at + 64);
                bytes.drain(at..end);
            }
            _ => {
                let other = &rng.choice(seeds).expect("some").1;
                let from = rng.usize(0..=other.len());
                let to = rng.usize(from..=other.len()).min(from + 256);
                bytes.splice(at..at, other[from..to].iter().copied());
            }
        }
    }
    bytes
}

#[test]
fn what_is_changed_is_survived() {
    std::thread::scope(|scope| {
        for (number, (target, _)) in TARGETS.into_iter().enumerate() {
            scope.spawn(move || {
                let seeds = seeds(target);
                let mut rng = fastrand::Rng::with_seed(number as u64);
                for round in 0..CHANGED {
                    let bytes = changed(&mut rng, &seeds);
                    with(target, format!("round {round}"), &bytes);
                }
            });
        }
    });
}

/// A target without a program would be fuzzed by nobody.
#[test]
fn each_target_has_its_program() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let manifest = std::fs::read_to_string(fuzz.join("Cargo.toml")).expect("the manifest");
    for (target, _) in TARGETS {
        let program = format!("fuzz_targets/{target}.rs");
        let text = std::fs::read_to_string(fuzz.join(&program)).expect("a program");
        assert!(text.contains(&format!("run(\"{target}\"")), "{program}");
        assert!(manifest.contains(&program), "{program} in Cargo.toml");
    }
}
