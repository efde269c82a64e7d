//! The files beside this one, in one program, which is linked once. Each test has a process of its
//! own, by cargo-nextest.

mod bench;
#[path = "dissect_page/browser.rs"]
mod browser;
mod cli;
mod common;
mod demo_page;
mod dissect;
mod dissect_page;
mod environment;
#[path = "common/fields.rs"]
mod fields;
mod json;
#[allow(dead_code, reason = "the tests of rnic-dissect use all of it")]
#[path = "../../dissect/tests/support/made.rs"]
mod made;
#[path = "common/markup.rs"]
mod markup;
mod plurals;
mod report_lines;
mod run;
mod study;
mod top;
mod trace;
mod verify;
mod width;
mod words;
