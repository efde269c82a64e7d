use std::fs;
use std::path::PathBuf;

use super::{Place, SPARE_TREES, ensure, is_read_only, place, redirect, shown};

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("rnic-tree-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    dir
}

fn tree(path: &str) -> Option<Place> {
    Some(Place::Tree(path.as_bytes().to_vec()))
}

fn real(path: &str) -> Option<Place> {
    Some(Place::Real(path.as_bytes().to_vec()))
}

#[test]
fn only_our_entries_are_redirected() {
    for (path, expected) in [
        ("/sys/class/infiniband", tree("/sys/class/infiniband")),
        ("/sys/class/infiniband/.", tree("/sys/class/infiniband")),
        (
            "/sys/class/infiniband/rnic0",
            tree("/sys/class/infiniband/rnic0"),
        ),
        (
            "/sys/class/infiniband//rnic0/./ports/1/",
            tree("/sys/class/infiniband/rnic0/ports/1"),
        ),
        (
            "/sys/class/infiniband/rnic0/../rnic0/ports",
            tree("/sys/class/infiniband/rnic0/ports"),
        ),
        (
            "/sys/class/infiniband_verbs/uverbs0/ibdev",
            tree("/sys/class/infiniband_verbs/uverbs0/ibdev"),
        ),
        (
            "/sys/class/infiniband_verbs/abi_version",
            tree("/sys/class/infiniband_verbs/abi_version"),
        ),
        ("/dev/infiniband", tree("/dev/infiniband")),
        ("/dev/infiniband/uverbs0", Some(Place::Device)),
        ("/dev/infiniband//uverbs0", Some(Place::Device)),
        ("/sys/class/infiniband/..", real("/sys/class")),
        ("/sys/class/infiniband/../net/lo", real("/sys/class/net/lo")),
        (
            "/sys/class/infiniband/rnic0/../mlx5_0",
            real("/sys/class/infiniband/mlx5_0"),
        ),
        ("/dev/infiniband/../../../..", real("/")),
    ] {
        assert_eq!(place(path.as_bytes()), expected, "{path}");
    }
    for path in [
        "",
        "/",
        "/sys/class",
        "/sys/class/infiniband_mad/umad0",
        "/sys/class/infiniband/mlx5_0/ports",
        "/sys/class/infiniband/rnic01",
        "/sys/class/infinibandx",
        "/dev/infiniband/rdma_cm",
        "/dev/null",
        "sys/class/infiniband",
    ] {
        assert_eq!(place(path.as_bytes()), None, "{path}");
        assert_eq!(redirect(path.as_bytes()), None, "{path}");
    }
}

#[test]
fn the_character_device_can_be_read_and_written() {
    assert_eq!(
        redirect(b"/dev/infiniband/uverbs0").as_deref(),
        Some(c"/dev/null")
    );
    assert!(!is_read_only(b"/dev/infiniband/uverbs0"));
    assert!(is_read_only(b"/sys/class/infiniband/rnic0/node_desc"));
    assert!(!is_read_only(b"/sys/class/infiniband/mlx5_0/node_desc"));
    assert!(!is_read_only(b"/sys/class/infiniband/../../kernel"));
}

#[test]
fn a_tree_has_the_files_and_is_made_once() {
    let runtime = scratch("once");
    let root = ensure(&runtime).unwrap();
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    assert_eq!(read("sys/class/infiniband/rnic0/node_type"), "1: CA\n");
    assert_eq!(
        read("sys/class/infiniband/rnic0/ports/1/link_layer"),
        "Ethernet\n"
    );
    assert_eq!(
        read("sys/class/infiniband/rnic0/ports/1/gid_attrs/types/0"),
        "RoCE v2\n"
    );
    assert_eq!(read("sys/class/infiniband_verbs/uverbs0/ibdev"), "rnic0\n");
    let netdev = read("sys/class/infiniband/rnic0/parent");
    let interface = format!("sys/class/infiniband/rnic0/device/net/{}", netdev.trim());
    assert_eq!(read(&format!("{interface}/ifindex")).lines().count(), 1);
    assert_eq!(ensure(&runtime).unwrap(), root);
    // Nothing half-made is left, and a tree that was removed comes back.
    assert_eq!(fs::read_dir(&runtime).unwrap().count(), 1);
    fs::remove_dir_all(&root).unwrap();
    assert_eq!(ensure(&runtime).unwrap(), root);
    fs::remove_dir_all(&runtime).unwrap();
}

#[test]
fn old_trees_are_forgotten() {
    let runtime = scratch("old");
    fs::create_dir(&runtime).unwrap();
    for i in 0..SPARE_TREES + 5 {
        fs::create_dir(runtime.join(format!("sysfs-{i:016x}"))).unwrap();
    }
    fs::create_dir(runtime.join("net-1")).unwrap();
    let root = ensure(&runtime).unwrap();
    assert!(root.is_dir() && runtime.join("net-1").is_dir());
    assert_eq!(fs::read_dir(&runtime).unwrap().count(), SPARE_TREES + 2);
    fs::remove_dir_all(&runtime).unwrap();
}

#[test]
fn a_runtime_folder_that_others_may_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let runtime = scratch("open");
    fs::create_dir(&runtime).unwrap();
    fs::set_permissions(&runtime, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(ensure(&runtime).is_err());
    fs::remove_dir_all(&runtime).unwrap();
}

#[test]
fn canonical_names_are_those_that_programs_know() {
    let root = scratch("shown");
    let at = |path: &str| [root.as_os_str().as_encoded_bytes(), path.as_bytes()].concat();
    fs::create_dir(&root).unwrap();
    let path = "/sys/class/infiniband/rnic0/device";
    let messy = "/sys/class/infiniband//rnic0/./device/";
    let of_tree = shown(messy.as_bytes(), &at(path), &at(path));
    assert_eq!(of_tree, path.as_bytes());
    // By a link out of the tree.
    let link = "/sys/class/infiniband/rnic0/device/net/lo";
    let real = b"/sys/devices/virtual/net/lo";
    assert_eq!(shown(link.as_bytes(), &at(link), real), real);
    // What was never in it.
    let device = b"/dev/infiniband/uverbs0";
    assert_eq!(shown(device, b"/dev/null", b"/dev/null"), device);
    let out = b"/sys/class/infiniband/../net/lo";
    assert_eq!(shown(out, b"/sys/class/net/lo", real), real);
    fs::remove_dir(&root).unwrap();
}
