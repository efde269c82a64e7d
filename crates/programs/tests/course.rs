//! `rnic course`: what the learner meets, exercise by exercise. The broken program fails for the
//! reason that it was broken for, the solution passes, and a program that only says so does not.

use rnic_programs::{Finished, Place, Process, Trial, User, skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const TIME: Duration = Duration::from_secs(120);
/// Of a program that hangs: until the check ends it, it has to have come to where it hangs.
const HANGS: &str = "12";
const OTHERS: &str = "100";

/// A learner with a folder of the course.
struct Learner {
    trial: Trial,
    place: Place,
    number: usize,
}

impl Learner {
    /// None, said in words, where programs cannot be built.
    fn new(name: &str, number: usize) -> Option<Learner> {
        let trial = Trial::start_beside_others(name);
        if !skip::have_programs(name, &["cc"]) {
            return None;
        }
        if !Path::new("/usr/include/rdma/rdma_cma.h").exists() {
            skip::skipped(name, "librdmacm-dev is not installed");
            return None;
        }
        let place = trial.loopback(User::Current)?;
        Some(Learner {
            trial,
            place,
            number,
        })
    }

    fn course(&self, options: &[&str]) -> Finished {
        let mut command = self.place.command(self.place.rnic());
        command.args(["course", &self.number.to_string()]);
        command
            .arg("--folder")
            .arg(self.trial.folder().join("course"));
        Process::spawn(command_with(command, options)).wait(TIME)
    }

    fn check(&self, patience: &str) -> Finished {
        self.course(&["--patience", patience])
    }

    /// The program, which the course has written by then.
    fn program(&self) -> PathBuf {
        let course = self.trial.folder().join("course");
        let number = format!("{:02}-", self.number);
        let folder = entries(&course)
            .find(|path| has(path, &number))
            .expect("a folder");
        let program = entries(&folder).find(|path| path.extension().is_some_and(|c| c == "c"));
        program.expect("a program")
    }

    /// What the course says of another program.
    fn says_of(&self, text: &str) -> String {
        fs::write(self.program(), text).expect("own folder");
        let finished = self.check(OTHERS);
        assert!(!finished.ok(), "{text}\n{}", finished.describe());
        finished.stdout
    }
}

fn command_with(mut command: std::process::Command, options: &[&str]) -> std::process::Command {
    command.args(options);
    command
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let all = fs::read_dir(folder).expect("a folder");
    all.flatten().map(|entry| entry.path())
}

fn has(path: &Path, start: &str) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().starts_with(start)
}

/// Broken, solved, and only said to be so.
fn exercise(name: &str, number: usize, broken: &[&str], cheats: &[&str], also_right: &[&str]) {
    let Some(learner) = Learner::new(name, number) else {
        return;
    };
    // The goal comes first, and the program with it.
    let begun = learner.course(&[]);
    begun.expect_success();
    assert!(begun.stdout.contains(&format!("# Exercise {number}: ")));

    let patience = if number == 8 { HANGS } else { OTHERS };
    let finished = learner.check(patience);
    assert!(!finished.ok(), "{}", finished.describe());
    for words in broken {
        let said = finished
            .stdout
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert!(
            said.contains(words),
            "no {words:?} in {}",
            finished.describe()
        );
    }

    // A cheat says what a success says, and does nothing; or it leaves before it is judged.
    let done = format!("printf(\"Exercise {number} is done.\\n\");");
    let head =
        "#include \"course.h\"\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n";
    for cheat in cheats {
        for does in [&*done, "exit(0);"] {
            let said = learner.says_of(&format!("{head}{}", cheat.replace("CHEAT", does)));
            assert!(said.contains("wrong: "), "{cheat}: {said}");
        }
    }

    // Solutions come after the hints.
    assert!(!learner.course(&["--solution"]).ok());
    let mut hints = 0;
    while !learner.course(&["--hint"]).stdout.contains("the last one") {
        hints += 1;
        assert!(hints < 10);
    }
    let solution = learner.course(&["--solution"]);
    solution.expect_success();
    for text in also_right.iter().copied().chain([&*solution.stdout]) {
        let text = match text.contains("course.h") {
            true => text.to_owned(),
            false => format!("{head}{text}"),
        };
        fs::write(learner.program(), &text).expect("own folder");
        let finished = learner.check(OTHERS);
        finished.expect_success();
        let done = format!("Exercise {number} is done.");
        assert!(finished.stdout.contains(&done), "{}", finished.describe());
        assert!(
            !finished.stdout.contains("wrong:"),
            "{}",
            finished.describe()
        );
        assert!(
            !finished.stdout.contains("warning:"),
            "{}",
            finished.describe()
        );
    }
    let mut list = learner.place.command(learner.place.rnic());
    list.args(["course", "--folder"])
        .arg(learner.trial.folder().join("course"));
    let list = Process::spawn(list).wait(TIME).stdout;
    assert!(list.contains(&format!("{number:>2}  done")), "{list}");
}

#[test]
fn course_1_device() {
    exercise(
        "course_1_device",
        1,
        &["ports count from 1"],
        &[
            "int find_gid(const char *a) { CHEAT return 0; }",
            "int find_gid(const char *a) { CHEAT return -1; }",
        ],
        &[],
    );
}

#[test]
fn course_2_register() {
    exercise(
        "course_2_register",
        2,
        &["REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE as well"],
        &[
            "struct ibv_mr *share(struct ibv_pd *pd, char *b, size_t n) { CHEAT return ibv_reg_mr(pd, b, n, 0); }",
        ],
        &[],
    );
}

/// The second mistake of the exercise: only writing is granted.
#[test]
fn course_2_half_mended() {
    let Some(learner) = Learner::new("course_2_half_mended", 2) else {
        return;
    };
    learner.course(&[]).expect_success();
    let broken = fs::read_to_string(learner.program()).expect("a program");
    let said = learner.says_of(&broken.replace(
        "IBV_ACCESS_REMOTE",
        "IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE",
    ));
    assert!(said.contains("right:  your memory holds"), "{said}");
    assert!(said.contains("lacks IBV_ACCESS_REMOTE_READ"), "{said}");
}

#[test]
fn course_3_states() {
    exercise(
        "course_3_states",
        3,
        &["RESET to INIT also needs IBV_QP_PKEY_INDEX"],
        &[
            "int connect_qp(struct ibv_qp *q, const struct course_end *m, const struct course_end *p) { CHEAT return 0; }",
        ],
        &[],
    );
}

#[test]
fn course_4_receive() {
    exercise(
        "course_4_receive",
        4,
        &["the peer's message did not arrive", "status 13"],
        &["int receive(struct course *c) { CHEAT return 2000; }"],
        &[],
    );
}

#[test]
fn course_5_status() {
    exercise(
        "course_5_status",
        5,
        &[
            "8 messages that fit: all of them were sent",
            "is too long for the peer",
        ],
        &[
            "struct outcome send_all(struct course *c, const size_t *l, int n) \
           { CHEAT return (struct outcome){ n, -1, 0 }; }",
        ],
        &[],
    );
}

#[test]
fn course_6_write() {
    exercise(
        "course_6_write",
        6,
        &[
            "no region of that process has rkey",
            "the 12288 bytes in front of them are as they were",
        ],
        &[
            "int put(struct course *c) { CHEAT return 0; }",
            // Right bytes, and an answer that nobody has waited for.
            "int put(struct course *c) { CHEAT struct ibv_sge g = { (uintptr_t)c->buffer, c->length, c->mr->lkey }; \
             struct ibv_send_wr w = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .sg_list = &g, \
             .num_sge = 1 }, *b; w.wr.rdma.remote_addr = c->peer.addr + c->peer.length - c->length; \
             w.wr.rdma.rkey = c->peer.rkey; return ibv_post_send(c->qp, &w, &b); }",
            // The peer is another process: its memory is not here.
            "int put(struct course *c) { CHEAT memcpy((void *)(uintptr_t)(c->peer.addr + c->peer.length - c->length), \
             c->buffer, c->length); return 0; }",
        ],
        &[],
    );
}

#[test]
fn course_7_tell() {
    exercise(
        "course_7_tell",
        7,
        &["the bytes are in the peer's memory", "it got no completion"],
        &[
            "int put_and_tell(struct course *c, uint32_t n) { CHEAT return 0; }",
            // Told before the bytes are there, though the peer may be too slow to notice.
            "#include <arpa/inet.h>
             int put_and_tell(struct course *c, uint32_t n) { CHEAT \
             struct ibv_sge g = { (uintptr_t)c->buffer, c->length, c->mr->lkey }; struct ibv_wc wc; \
             struct ibv_send_wr w = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .sg_list = &g, \
             .num_sge = 1 }, t = { .next = &w, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htonl(n) }, *b; \
             w.wr.rdma.remote_addr = c->peer.addr; w.wr.rdma.rkey = c->peer.rkey; \
             if (ibv_post_send(c->qp, &t, &b)) return 1; while (!ibv_poll_cq(c->cq, 1, &wc)); return wc.status; }",
        ],
        // A SEND behind the WRITE.
        &["#include <arpa/inet.h>
int put_and_tell(struct course *c, uint32_t n)
{
	struct ibv_sge sge = { (uintptr_t)c->buffer, c->length, c->mr->lkey };
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htonl(n), .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr write = { .next = &send, .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1 }, *bad;
	write.wr.rdma.remote_addr = c->peer.addr;
	write.wr.rdma.rkey = c->peer.rkey;
	if (ibv_post_send(c->qp, &write, &bad))
		return 1;
	struct ibv_wc wc;
	while (ibv_poll_cq(c->cq, 1, &wc) == 0)
		;
	return (int)wc.status;
}
"],
    );
}

#[test]
fn course_8_sleep() {
    exercise(
        "course_8_sleep",
        8,
        &["CQ 1 is not armed: it was, and each event disarms it"],
        &[
            "int receive_many(struct course *c, int n) { CHEAT return n; }",
            "int receive_many(struct course *c, int n) { CHEAT struct ibv_wc wc; int i = 0; \
             while (i < n) i += ibv_poll_cq(c->cq, 1, &wc); return i; }",
            // Armed after the last look, and asleep without another one.
            "int receive_many(struct course *c, int n) { CHEAT struct ibv_wc wc; int i = 0; struct ibv_cq *cq; void *x; \
             for (;;) { while (ibv_poll_cq(c->cq, 1, &wc) > 0) i++; if (i == n) return i; ibv_req_notify_cq(c->cq, 0); \
             ibv_get_cq_event(c->channel, &cq, &x); ibv_ack_cq_events(cq, 1); } }",
        ],
        // Looks again after arming, and only then sleeps.
        &["int receive_many(struct course *c, int n)
{
	struct ibv_wc wc;
	int taken = 0, armed = 0;
	while (taken < n) {
		if (ibv_poll_cq(c->cq, 1, &wc) > 0) {
			taken++;
			armed = 0;
		} else if (!armed) {
			ibv_req_notify_cq(c->cq, 0);
			armed = 1;
		} else {
			struct ibv_cq *cq;
			void *context;
			ibv_get_cq_event(c->channel, &cq, &context);
			ibv_ack_cq_events(cq, 1);
			armed = 0;
		}
	}
	return taken;
}
"],
    );
}

/// Events that nobody acknowledges: the check hangs where the program would, and says why.
#[test]
fn course_8_unacknowledged() {
    let Some(learner) = Learner::new("course_8_unacknowledged", 8) else {
        return;
    };
    learner.course(&[]).expect_success();
    while !learner.course(&["--hint"]).stdout.contains("the last one") {}
    let solution = learner.course(&["--solution"]).stdout;
    fs::write(
        learner.program(),
        solution.replace("ibv_ack_cq_events(cq, 1);", ""),
    )
    .expect("own folder");
    let finished = learner.check(HANGS);
    assert!(!finished.ok());
    let said = &finished.stdout;
    assert!(
        said.contains("ibv_destroy_cq") && said.contains("0 acknowledged"),
        "{said}"
    );
}

#[test]
fn course_9_signaled() {
    exercise(
        "course_9_signaled",
        9,
        &[
            "16 sends in a row without a signaled one",
            "16 of 1003 messages arrived",
        ],
        &[
            "int send_many(struct course *c, int n) { CHEAT return 0; }",
            // The last ones are not signaled, so that nothing tells when they are sent.
            "int send_many(struct course *c, int n) { CHEAT for (int i = 0; i < n; i++) { uint32_t x = i; \
             struct ibv_sge g = { (uintptr_t)&x, 4, 0 }; struct ibv_wc wc; struct ibv_send_wr w = { .opcode = IBV_WR_SEND, \
             .send_flags = IBV_SEND_INLINE | (i % 8 == 7 ? IBV_SEND_SIGNALED : 0), .sg_list = &g, .num_sge = 1 }, *b; \
             if (ibv_post_send(c->qp, &w, &b)) return 1; if (i % 8 == 7) while (!ibv_poll_cq(c->cq, 1, &wc)); } return 0; }",
        ],
        &[],
    );
}

#[test]
fn course_10_connect() {
    exercise(
        "course_10_connect",
        10,
        &["the id has its address resolved, but not the route"],
        &[
            "int ask(const char *h, const char *p, const char *q, char *a, size_t r) { CHEAT strcpy(a, \"yes\"); return 0; }",
        ],
        &[],
    );
}

/// Promise: what is missing on the machine is no mistake of the learner's.
#[test]
fn course_without_the_library() {
    let Some(learner) = Learner::new("course_without_the_library", 1) else {
        return;
    };
    learner.course(&[]).expect_success();
    let mut command = learner.place.command(learner.place.rnic());
    command.env("RNIC_LIB", "/nowhere/librnic_verbs.so");
    command.args(["course", "1", "--folder"]);
    command.arg(learner.trial.folder().join("course"));
    let finished = Process::spawn(command).wait(TIME);
    assert!(!finished.ok());
    let said = finished.describe();
    assert!(said.contains("/nowhere/librnic_verbs.so"), "{said}");
    assert!(
        !said.contains("exit()") && !said.contains("not right yet"),
        "{said}"
    );
}

/// What the compiler refuses is said in its words, about the learner's file; and a program that the
/// learner had is kept when the exercise is begun anew.
#[test]
fn course_files_of_the_learner() {
    let Some(learner) = Learner::new("course_files_of_the_learner", 1) else {
        return;
    };
    learner.course(&[]).expect_success();
    let program = learner.program();
    fs::write(
        &program,
        "#include \"course.h\"\nint find_gid(const char *a) { return x; }\n",
    )
    .expect("own folder");
    let finished = learner.check(OTHERS);
    assert!(!finished.ok());
    let place = format!("{}:2:", program.display());
    assert!(finished.stderr.contains(&place), "{}", finished.describe());
    assert!(
        finished.stderr.contains("does not compile"),
        "{}",
        finished.describe()
    );
    let again = learner.course(&["--start"]);
    again.expect_success();
    assert!(again.stdout.contains("kept as"), "{}", again.describe());
    assert_eq!(entries(program.parent().expect("a folder")).count(), 4);
}
