//! What a project has: a test that needs an RDMA device.

/// With SAMPLE_BREAK the project has a defect: it writes one byte past the end of its memory.
#[test]
fn bytes_arrive() {
    let past = u64::from(std::env::var_os("SAMPLE_BREAK").is_some());
    let (status, arrived) = sample::write_to_itself(past).expect("an RDMA device");
    assert_eq!(status, 0);
    assert!(arrived);
}
