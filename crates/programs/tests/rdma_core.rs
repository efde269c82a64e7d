//! rdma-core's own test suite, as Debian ships it with the documentation, passes on the device.
//!
//! Its tests skip what a device says it lacks, so the number of those that pass is checked too.

use rnic_programs::{Trial, User, skip};
use std::path::Path;
use std::process::Command;

const SUITE: &str = "/usr/share/doc/rdma-core/tests";

/// Unpacks the suite, runs the modules that are named, and reports how many tests ended how.
const SCRIPT: &str = r#"
import gzip, importlib, os, shutil, sys, tempfile, unittest

source, modules = sys.argv[1], sys.argv[2:]
with tempfile.TemporaryDirectory() as work:
    folder = os.path.join(work, "tests")
    os.mkdir(folder)
    for name in os.listdir(source):
        path = os.path.join(source, name)
        if name.endswith(".gz"):
            with gzip.open(path) as packed, open(os.path.join(folder, name[:-3]), "wb") as plain:
                shutil.copyfileobj(packed, plain)
        else:
            shutil.copy(path, folder)
    sys.path[:0] = [work, folder]
    sys.argv = ["rdma-core"]
    from args_parser import parser
    parser.parse_args()
    suite = unittest.TestSuite()
    for module in modules:
        loaded = importlib.import_module("tests." + module)
        suite.addTests(unittest.defaultTestLoader.loadTestsFromModule(loaded))
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite)
failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
print("passed", result.testsRun - failed - len(result.skipped) - len(result.expectedFailures))
print("skipped", len(result.skipped))
sys.exit(not result.wasSuccessful())
"#;

/// Runs modules of the suite, of whose tests at least `passed` must pass and none fail.
fn suite(name: &str, modules: &[&str], passed: usize) {
    let trial = Trial::start_beside_others(name);
    let bindings = Command::new("/usr/bin/python3")
        .args(["-c", "import pyverbs.device"])
        .output();
    if !bindings.is_ok_and(|output| output.status.success()) || !Path::new(SUITE).is_dir() {
        skip::skipped(
            trial.name(),
            "python3-pyverbs and rdma-core are not installed",
        );
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let arguments = [&["-c", SCRIPT, SUITE], modules].concat();
    let finished = place.finish("/usr/bin/python3", arguments);
    finished.expect_success();
    let counted = finished
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("passed "))
        .and_then(|number| number.parse::<usize>().ok());
    assert!(
        counted.is_some_and(|counted| counted >= passed),
        "fewer than {passed} passed\n{}",
        finished.describe()
    );
}

#[test]
fn completion_queues() {
    suite(
        "completion_queues",
        &["test_cq", "test_cq_events", "test_cqex"],
        11,
    );
}

#[test]
fn queue_pairs() {
    suite(
        "queue_pairs",
        &[
            "test_qp",
            "test_qpex",
            "test_atomic",
            "test_relaxed_ordering",
            "test_addr",
        ],
        56,
    );
}

#[test]
fn devices_and_domains() {
    suite(
        "devices_and_domains",
        &["test_device", "test_pd", "test_fork"],
        27,
    );
}

#[test]
fn memory() {
    suite(
        "memory",
        &[
            "test_mr",
            "test_odp",
            "test_parent_domain",
            "test_shared_pd",
        ],
        38,
    );
}
