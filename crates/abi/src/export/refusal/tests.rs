use super::*;

#[test]
fn a_refusal_without_a_reason_has_words() {
    for (refusal, words) in [
        (ENOMEM, "no memory is left"),
        (EOPNOTSUPP, "the device does not have it"),
        (NULL, "a pointer that it needs is NULL"),
        (EINVAL.because("port 7"), "port 7"),
        (Refusal::from(Errno(libc::EIO)), "an error of rnic itself"),
        (Refusal::from(Errno(libc::EINVAL)), "in place of an object"),
        (Refusal::from(Errno(libc::EXDEV)), "no more is known"),
    ] {
        assert!(refusal.words().contains(words), "{refusal:?}");
    }
}

#[test]
fn the_number_stays_what_it_is() {
    let refusal = EBUSY.because("in use").consequence();
    assert_eq!(
        (refusal.errno(), refusal.kind),
        (libc::EBUSY, Kind::Consequence)
    );
    let end = EINVAL.because("the end").answer();
    assert_eq!((end.errno(), end.kind), (libc::EINVAL, Kind::Answer));
    let device = Error::new("ibv_reg_mr", libc::EFAULT, "nothing is there");
    assert_eq!(Errno::from(device.clone()), Errno(libc::EFAULT));
    // Its words were said.
    let refusal = Refusal::from(device);
    assert_eq!((refusal.errno(), refusal.kind), (libc::EFAULT, Kind::Said));
}
