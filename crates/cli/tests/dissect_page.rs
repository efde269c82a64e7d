//! The page of `rnic dissect --html`: its data is complete and cannot become markup; and in a real
//! browser it does what it should when somebody points, clicks, filters, types and scrolls.

use crate::browser;
use crate::markup;
#[allow(dead_code, reason = "the tests of rnic-dissect use all of it")]
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::browser::Browser;
use crate::made::{ACK, ACKNOWLEDGE, Made, SEND_ONLY, SEQUENCE_ERROR, aeth, pcap};
use serde_json::Value;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("rnic-page-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).expect("a folder");
        Scratch(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/captures")
}

/// The page of a capture file.
fn page(scratch: &Scratch, capture: &Path) -> String {
    let out = scratch.0.join("page.html");
    let output = Command::new(env!("CARGO_BIN_EXE_rnic"))
        .arg("dissect")
        .arg(capture)
        .arg("--html")
        .arg(&out)
        .output()
        .expect("rnic starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("The page: "));
    fs::read_to_string(out).unwrap()
}

const OPEN: &str = "<script type=\"application/json\" id=\"data\">";

fn island(page: &str) -> &str {
    let rest = page.split_once(OPEN).expect("data").1;
    rest.split_once("</script>").expect("its end").0
}

#[test]
fn the_data_is_complete() {
    let scratch = Scratch::new("data");
    let mut seen = 0;
    for entry in fs::read_dir(captures()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ext| ext != "pcap") {
            continue;
        }
        let page = page(&scratch, &path);
        let data: Value = serde_json::from_str(island(&page)).expect("JSON");
        let output = Command::new(env!("CARGO_BIN_EXE_rnic"))
            .args(["dissect", "--json"])
            .arg(&path)
            .output()
            .unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let len = |value: &Value| value.as_array().map(Vec::len);
        assert_eq!(
            len(&data["packets"]).map(|n| n as u64),
            report["packets"].as_u64()
        );
        assert_eq!(len(&data["conversations"]), len(&report["conversations"]));
        for (shown, known) in data["conversations"]
            .as_array()
            .unwrap()
            .iter()
            .zip(report["conversations"].as_array().unwrap())
        {
            let messages: usize = known["sides"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|side| len(&side["messages"]))
                .sum();
            assert_eq!(len(&shown["messages"]), Some(messages));
        }
        // Whatever is in the packets, the page has its own elements and no other, and asks nobody
        // for anything.
        assert_eq!(page.matches("<script").count(), 2, "{}", path.display());
        for word in ["http://", "https://", "src=", "href="] {
            let own = page.replace("http://www.w3.org/2000/svg", "");
            assert!(
                !own.contains(word),
                "{word} in the page of {}",
                path.display()
            );
        }
        markup::is_well_formed(&page);
        seen += 1;
    }
    assert!(seen > 60);
}

/// A request of a connection whose private data would be a script if it became markup.
fn hostile(scratch: &Scratch) -> PathBuf {
    let mut bytes = fs::read(captures().join("cm_private_v4.pcap")).unwrap();
    let at = bytes
        .windows(14)
        .position(|window| window == b"client-private")
        .expect("the private data");
    let attack = b"</script><img src=x onerror=pwned=1>";
    bytes[at..at + attack.len()].copy_from_slice(attack);
    // The ICRC no longer holds; a shorter snap length keeps it from being looked at. Each record is
    // 4 bytes shorter.
    let mut cut = bytes[..24].to_vec();
    let mut at = 24;
    while at < bytes.len() {
        let len = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap());
        cut.extend(&bytes[at..at + 8]);
        cut.extend((len - 4).to_le_bytes());
        cut.extend(&bytes[at + 12..at + 16]);
        cut.extend(&bytes[at + 16..at + 16 + len as usize - 4]);
        at += 16 + len as usize;
    }
    let path = scratch.0.join("<img src=x onerror=pwned=1>.pcap");
    fs::write(&path, cut).unwrap();
    path
}

#[test]
fn hostile_private_data_and_names_stay_text() {
    let scratch = Scratch::new("hostile");
    let page = page(&scratch, &hostile(&scratch));
    assert!(!page.contains("<img"), "{page}");
    markup::is_well_formed(&page);
    let data: Value = serde_json::from_str(island(&page)).unwrap();
    let about = data["conversations"][0]["about"].to_string();
    assert!(about.contains("<img src=x"), "{about}");
}

/// Runs one of the scripts of `dissect_page` in the page of a capture, in a browser. Each line that
/// it says begins with "ok" if something is as it should be.
fn browse(scratch: &Scratch, capture: &Path, script: &str) -> Vec<String> {
    browse_on(None, scratch, capture, script)
}

/// The same on a screen of a given width and height, dark or not.
fn browse_on(
    screen: Option<(u32, u32, bool)>,
    scratch: &Scratch,
    capture: &Path,
    script: &str,
) -> Vec<String> {
    page(scratch, capture);
    let shared = include_str!("dissect_page/shared.js");
    let script = format!(
        "(async () => {{ {shared}\ntry {{ {script}\n}} catch (error) {{ said.push(`WRONG ${{error.stack}}`); }} \
         return said.join(\"\\n\"); }})()"
    );
    let mut browser = Browser::start(&scratch.0.join("profile"));
    browser.open_on(screen, &scratch.0.join("page.html"));
    let said = browser.run(&script);
    let said: Vec<_> = said.lines().map(str::to_owned).collect();
    let wrong = said.iter().any(|line| !line.starts_with("ok "));
    assert!(!wrong, "{}", said.join("\n"));
    said
}

fn have_chromium(test: &str) -> bool {
    if browser::is_here() {
        return true;
    }
    rnic_skip::skipped(test, "chromium is not installed");
    false
}

#[test]
fn a_browser_shows_it() {
    if !have_chromium("a_browser_shows_it") {
        return;
    }
    let scratch = Scratch::new("browser");
    let capture = captures().join("drop_send_mid_v4.pcap");
    let said = browse(&scratch, &capture, include_str!("dissect_page/pointing.js"));
    assert!(said.len() > 12, "{said:?}");
}

/// On a phone and on a desktop, light and dark: nothing sticks out, the findings are first, text
/// can be told from paper.
#[test]
fn a_browser_shows_it_on_any_screen() {
    if !have_chromium("a_browser_shows_it_on_any_screen") {
        return;
    }
    let scratch = Scratch::new("screens");
    let capture = captures().join("drop_send_mid_v4.pcap");
    let script = include_str!("dissect_page/screen.js");
    for (width, height) in [(390, 844), (1280, 800)] {
        for dark in [false, true] {
            let script = format!("const WIDTH = {width}, DARK = {dark};\n{script}");
            let screen = Some((width, height, dark));
            let said = browse_on(screen, &scratch, &capture, &script);
            assert!(said.len() > 8, "{said:?}");
        }
    }
}

/// The messages of the connection manager have their names in the diagram and in what is said of a
/// packet, and hostile bytes in them stay text.
#[test]
fn a_browser_names_the_connection_managers_messages() {
    if !have_chromium("a_browser_names_the_connection_managers_messages") {
        return;
    }
    let scratch = Scratch::new("names");
    let script = include_str!("dissect_page/names.js");
    let said = browse(&scratch, &hostile(&scratch), script);
    assert!(said.len() > 8, "{said:?}");
}

/// So many SENDs and their ACKs, one packet each 10 us.
fn many(sends: u32) -> Made {
    let mut made = Made::default();
    for psn in 0..sends {
        made.a(SEND_ONLY, psn, &[], 8);
        made.b(ACKNOWLEDGE, psn, &aeth(ACK), 0);
    }
    made
}

/// Only what can be seen is drawn, and that is what belongs there, wherever somebody scrolls to and
/// whatever way.
#[test]
fn a_browser_scrolls_through_thousands_of_packets() {
    if !have_chromium("a_browser_scrolls_through_thousands_of_packets") {
        return;
    }
    let mut made = many(2000);
    // One is lost, asked for, and sent again.
    made.a(SEND_ONLY, 2000, &[], 8);
    made.a(SEND_ONLY, 2001, &[], 8);
    made.b(ACKNOWLEDGE, 2000, &aeth(SEQUENCE_ERROR), 0);
    let nak = made.frames.len();
    for psn in 2000..2500 {
        made.a(SEND_ONLY, psn, &[], 8);
        made.b(ACKNOWLEDGE, psn, &aeth(ACK), 0);
    }
    let scratch = Scratch::new("scrolling");
    let capture = scratch.0.join("thousands.pcap");
    fs::write(&capture, pcap(&made.frames)).unwrap();
    let script = format!(
        "const ALL = {}, FINDING = 0, NAK = {nak};\n{}",
        made.frames.len(),
        include_str!("dissect_page/scrolling.js")
    );
    let said = browse(&scratch, &capture, &script);
    assert!(said.len() > 120, "{said:?}");
}

/// So many that they are taller, one below the other, than what a browser lays out.
#[test]
fn a_browser_reaches_the_last_of_as_many_packets_as_a_page_holds() {
    if !have_chromium("a_browser_reaches_the_last_of_as_many_packets_as_a_page_holds") {
        return;
    }
    const MOST: u32 = 200_000;
    let scratch = Scratch::new("most");
    let capture = scratch.0.join("most.pcap");
    fs::write(&capture, pcap(&many(MOST / 2).frames)).unwrap();
    let script = include_str!("dissect_page/most.js");
    browse(
        &scratch,
        &capture,
        &format!("const ALL = {MOST};\n{script}"),
    );
}
