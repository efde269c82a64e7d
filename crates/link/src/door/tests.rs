use proptest::prelude::*;

use super::*;

fn train() -> Train {
    Train {
        src: "10.0.0.1".parse().unwrap(),
        dst: "fd00::2".parse().unwrap(),
        src_port: 50_123,
        len: 100,
        segment: 60,
    }
}

#[test]
fn a_header_comes_back_as_it_was() {
    let mut message = encode_header(&train()).to_vec();
    message.resize(HEADER_LEN + 100, 0xee);
    assert_eq!(decode_header(&message), Some(train()));
}

proptest! {
    #[test]
    fn anything_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200), magic in any::<bool>()) {
        let mut bytes = bytes;
        if magic && bytes.len() >= 8 {
            bytes[..8].copy_from_slice(&MAGIC);
        }
        if let Some(train) = decode_header(&bytes) {
            prop_assert_eq!(train.len, bytes.len() - HEADER_LEN);
            prop_assert!(train.segment >= 1);
        }
    }
}

#[test]
fn packets_pass_and_nobody_is_an_error() {
    let folder = crate::registry::tests::Folder::new();
    let dir = sys::open_at(
        None,
        &folder.c_path(),
        libc::O_RDONLY | libc::O_DIRECTORY,
        0,
    )
    .unwrap();
    let mut a = Door::open(&dir, folder.path(), 5).unwrap();
    let b = Door::open(&dir, folder.path(), 6).unwrap();
    let mut buffer = vec![0; 70_000];
    assert_eq!(b.receive(&mut buffer).unwrap(), Arrival::Empty);
    a.send(&dir, folder.path(), 6, &train(), &[9; 100]).unwrap();
    assert_eq!(b.receive(&mut buffer).unwrap(), Arrival::Train(train()));
    assert_eq!(buffer[HEADER_LEN..HEADER_LEN + 100], [9; 100]);
    // As long as a train can be.
    let long = Train {
        len: 65_507,
        ..train()
    };
    a.send(&dir, folder.path(), 6, &long, &vec![1; 65_507])
        .unwrap();
    assert_eq!(b.receive(&mut buffer).unwrap(), Arrival::Train(long));
    // Too short for a header.
    let address = address(&dir, folder.path(), 6).unwrap();
    sys::send_to(&a.outbound, &[1, 2, 3], Some(&address)).unwrap();
    assert_eq!(b.receive(&mut buffer).unwrap(), Arrival::Useless);
    // Its process is gone, its name is not.
    drop(b);
    assert!(a.send(&dir, folder.path(), 6, &train(), &[9; 100]).is_err());
    assert!(a.send(&dir, folder.path(), 7, &train(), &[9; 100]).is_err());
    // A newcomer takes the name over.
    let b = Door::open(&dir, folder.path(), 6).unwrap();
    a.send(&dir, folder.path(), 6, &train(), &[9; 100]).unwrap();
    assert!(matches!(b.receive(&mut buffer).unwrap(), Arrival::Train(_)));
}

#[test]
fn a_full_door_is_an_error_and_does_not_block() {
    let folder = crate::registry::tests::Folder::new();
    let dir = sys::open_at(
        None,
        &folder.c_path(),
        libc::O_RDONLY | libc::O_DIRECTORY,
        0,
    )
    .unwrap();
    let mut a = Door::open(&dir, folder.path(), 5).unwrap();
    let _b = Door::open(&dir, folder.path(), 6).unwrap();
    let full = (0..100_000).any(|_| {
        a.send(&dir, folder.path(), 6, &train(), &[0; 1000])
            .is_err()
    });
    assert!(full);
}

#[test]
fn a_folder_with_a_long_name_has_doors_too() {
    let folder = crate::registry::tests::Folder::new();
    let long = folder.path().join("x".repeat(150));
    std::fs::create_dir(&long).unwrap();
    let name = CString::new(long.as_os_str().as_bytes()).unwrap();
    let dir = sys::open_at(None, &name, libc::O_RDONLY | libc::O_DIRECTORY, 0).unwrap();
    let mut a = Door::open(&dir, &long, 5).unwrap();
    let b = Door::open(&dir, &long, 6).unwrap();
    a.send(&dir, &long, 6, &train(), &[9; 100]).unwrap();
    assert!(matches!(
        b.receive(&mut vec![0; 70_000]).unwrap(),
        Arrival::Train(_)
    ));
}
