#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rnic_fuzz::run("handover", bytes));
