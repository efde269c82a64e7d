//! The file of `--pcap`: emptied before the program runs, if nothing but a capture is lost by that.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rnic_dissect::Decoder;

use crate::platform::failure::{Failure, Result};
use crate::platform::replace::may_be_replaced;

/// Empties or makes the file: the program's NIC writes the header when it finds nothing in it.
pub fn prepare(path: &Path) -> Result<PathBuf> {
    let unwritable = |error: io::Error| {
        Failure::new(format!("cannot write the capture file {}", path.display()))
            .cause(error.to_string())
            .next("choose a file in a folder that you may write to: --pcap /tmp/rnic.pcap")
    };
    let absolute = std::path::absolute(path).map_err(unwritable)?;
    if !may_be_replaced(&absolute, is_capture).map_err(unwritable)? {
        return Err(Failure::new(format!(
            "{} is not a capture: it is left alone",
            path.display()
        ))
        .cause("--pcap replaces FILE, and this one is neither empty nor a pcap or pcapng file")
        .next("choose another name, or remove the file yourself")
        .status(2));
    }
    File::create(&absolute).map_err(unwritable)?;
    Ok(absolute)
}

/// `rnic dissect` would read it.
fn is_capture(head: &[u8]) -> bool {
    let mut decoder = Decoder::new();
    decoder.feed(head);
    // A record that is cut short or damaged is one of a capture all the same.
    let _ = decoder.next_frame();
    decoder.format().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture_of_rnic() -> Vec<u8> {
        let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/captures");
        std::fs::read(captures.join("rc_read_v4.pcap")).expect("a capture")
    }

    #[test]
    fn captures_are_emptied_and_nothing_else_is() {
        let path = std::env::temp_dir().join(format!("rnic-capture-{}", std::process::id()));
        let (capture, source) = (
            capture_of_rnic(),
            b"int main(void) { return 0; }\n".to_vec(),
        );
        // The first block of a pcapng file, with a length of 28 bytes.
        let mut pcapng = vec![
            0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0,
        ];
        pcapng.extend([0xff; 8]);
        pcapng.extend([28, 0, 0, 0]);
        for old in [&capture[..], &capture[..30], &pcapng, b""] {
            std::fs::write(&path, old).unwrap();
            assert_eq!(prepare(&path).unwrap(), path);
            assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        }
        for old in [&source[..], b"old", &capture[1..]] {
            std::fs::write(&path, old).unwrap();
            let failure = prepare(&path).unwrap_err();
            assert_eq!(failure.status, 2);
            let text = failure.to_string();
            assert!(
                text.contains("is not a capture") && text.contains("next:"),
                "{text}"
            );
            assert_eq!(std::fs::read(&path).unwrap(), old, "as it was");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(prepare(&path).is_ok(), "there was none");
        std::fs::remove_file(&path).unwrap();
        let text = prepare(Path::new("/no/such/folder/x.pcap")).unwrap_err();
        let text = text.to_string();
        assert!(text.contains("/no/such/folder/x.pcap"), "{text}");
        assert!(may_be_replaced(Path::new("/dev/null"), is_capture).unwrap());
    }
}
