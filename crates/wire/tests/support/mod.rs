//! Reads the captures of Linux Soft-RoCE (tests/captures/README.md).

use rnic_wire::ROCE_PORT;
use rnic_wire::ip::{IpError, IpUdp};
use std::fs;
use std::path::{Path, PathBuf};

/// The IP packets of a classic little endian pcap file of Ethernet frames.
fn ip_packets(file: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(file).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(20)), (0xa1b2_c3d4, 1), "{}", file.display());
    let mut packets = Vec::new();
    let mut at = 24;
    while at < bytes.len() {
        let len = word(at + 8) as usize;
        assert_eq!(
            word(at + 8),
            word(at + 12),
            "cut short in {}",
            file.display()
        );
        packets.push(bytes[at + 16 + 14..at + 16 + len].to_vec());
        at += 16 + len;
    }
    packets
}

/// A RoCEv2 packet: what its IP and UDP headers say, and the UDP payload.
pub type Captured = (IpUdp, Vec<u8>);

/// File name and RoCEv2 packets of each capture.
pub fn captures() -> Vec<(String, Vec<Captured>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures");
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.retain(|file| file.extension().is_some_and(|ext| ext == "pcap"));
    files.sort();
    let packets = |file: &PathBuf| {
        let parsed =
            ip_packets(file)
                .into_iter()
                .filter_map(|packet| match IpUdp::parse(&packet) {
                    Ok((meta, payload)) => {
                        (meta.flow.dst_port == ROCE_PORT).then(|| (meta, payload.to_vec()))
                    }
                    // IGMP reports of cm_mckey_v4 (with the router alert option).
                    Err(IpError::Protocol | IpError::Options) => None,
                    Err(error) => panic!("{}: {error}", file.display()),
                });
        parsed.collect()
    };
    files
        .iter()
        .map(|file| {
            (
                file.file_stem().unwrap().to_string_lossy().into_owned(),
                packets(file),
            )
        })
        .collect()
}
