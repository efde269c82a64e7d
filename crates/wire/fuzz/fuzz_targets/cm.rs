//! Any bytes as a message of the connection manager: no panic, what was read is written again such that it reads the
//! same, and it is for the same addressee.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rnic_wire::cm::{Addressee, IpCmHeader, Mad, Message};

fuzz_target!(|bytes: &[u8]| {
    let addressee = Addressee::of(bytes);
    let Ok(mad) = Mad::parse(bytes) else {
        return;
    };
    let again = mad.emit();
    assert_eq!(Mad::parse(&again), Ok(mad));
    assert_eq!(Addressee::of(&again), addressee);
    let private_data = match &mad.message {
        Message::Req(req) => &req.private_data[..],
        Message::SidrReq(req) => &req.private_data[..],
        _ => return,
    };
    if let Ok(header) = IpCmHeader::parse(private_data) {
        let mut out = [0; IpCmHeader::LEN];
        header.emit(&mut out);
        assert_eq!(IpCmHeader::parse(&out), Ok(header));
    }
});
