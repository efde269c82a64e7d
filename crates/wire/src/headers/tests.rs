use super::*;

#[test]
fn the_destination_qpn_is_found_without_the_rest() {
    let mut packet = [0xee; 16];
    packet[5..8].copy_from_slice(&[0x12, 0x34, 0x56]);
    assert_eq!(Bth::dest_qpn_of_sealed(&packet), Some(0x12_3456));
    assert_eq!(Bth::dest_qpn_of_sealed(&packet[..15]), None);
    assert_eq!(Bth::dest_qpn_of_sealed(&[]), None);
    assert_eq!(Bth::dest_qpn(&packet[..12]), Some(0x12_3456));
    assert_eq!(Bth::dest_qpn(&packet[..11]), None);
}
