//! A setting is what the environment says, or its default; nonsense is told, with what is possible.

use super::*;

/// One test, as the environment belongs to all threads.
#[test]
fn what_the_environment_says_is_in_force() {
    let set = |variable: &Variable, value: &str| {
        // SAFETY: no other thread of this program reads the environment.
        #[allow(unsafe_code, reason = "there is no other way to have an environment")]
        unsafe {
            env::set_var(variable.name, value)
        };
    };
    assert_eq!(host_path(), Ok(HostPath::On));
    assert_eq!(gso(), Ok(Gso::On));
    assert_eq!(wait(), Ok(Wait::Adaptive));
    assert_eq!(shards(), Ok(None));
    assert!(!STRICT.is_on());
    let found = ALL.iter().filter(|v| v.in_force().is_set).count();
    assert_eq!(found, 0, "the tests' own environment has none");

    for (value, meaning) in [
        ("rings", Ok(HostPath::Rings)),
        ("0", Ok(HostPath::Off)),
        ("", Ok(HostPath::On)),
    ] {
        set(&HOST_PATH, value);
        assert_eq!(host_path(), meaning);
    }
    set(&WAIT, "now and then");
    let invalid = wait().expect_err("no such way");
    assert_eq!(invalid.variable, "RNIC_WAIT");
    assert_eq!(
        invalid.why,
        "\"now and then\" is none of adaptive, sleep, spin"
    );
    assert_eq!(WAIT.in_force().problem, Some(invalid.why));

    for (value, number) in [("3", Some(3)), ("16", Some(16)), ("auto", None)] {
        set(&SHARDS, value);
        assert_eq!(shards(), Ok(number));
    }
    for value in ["0", "17", "-1", "many"] {
        set(&SHARDS, value);
        let why = shards().expect_err("no number of engines").why;
        assert!(why.ends_with("is none of 1 to 16 and auto"), "{why}");
    }
    assert_eq!(pkeys(), Ok(vec![0xffff]));
    for (value, table) in [
        ("0x8001", vec![0x8001]),
        (
            "0xffff, 0x8001,0x0001,0X7ffe",
            vec![0xffff, 0x8001, 1, 0x7ffe],
        ),
        ("32769,1", vec![0x8001, 1]),
    ] {
        set(&PKEYS, value);
        assert_eq!(pkeys(), Ok(table), "{value}");
    }
    let many: Vec<String> = (1..=129).map(|n| n.to_string()).collect();
    set(&PKEYS, &many[..128].join(","));
    assert_eq!(pkeys().map(|table| table.len()), Ok(128));
    for value in [
        "0",
        "0x8000",
        "0x10000",
        "-1",
        "+1",
        "0x+1",
        "",
        "0xffff,",
        ",",
        "all",
        "0x8001,0x8001",
        &many.join(","),
    ] {
        set(&PKEYS, value);
        // An empty variable is none.
        assert_eq!(pkeys().is_ok(), value.is_empty(), "{value:?}");
    }
    set(&PKEYS, "0x8000");
    let why = pkeys().expect_err("no P_Key").why;
    assert!(
        why.contains("is none of lists of different P_Keys"),
        "{why}"
    );

    for (value, on) in [("1", true), ("yes", true), ("0", false), ("off", false)] {
        set(&STRICT, value);
        assert_eq!(STRICT.is_on(), on);
    }
    let strict = STRICT.in_force();
    assert_eq!((strict.value.as_str(), strict.is_set), ("off", true));
}
