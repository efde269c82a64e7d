//! The ten exercises: what each is about, and the files that it is made of.

/// An exercise.
#[derive(Debug)]
pub struct Exercise {
    pub number: usize,
    pub title: &'static str,
    /// Of the learner, below the folder of the course.
    pub folder: &'static str,
    /// What the learner mends.
    pub file: &'static str,
    pub readme: &'static str,
    pub broken: &'static str,
    pub solution: &'static str,
    /// Its part of the check, in C.
    pub judge: &'static str,
    hints: &'static str,
    /// A right solution has requests that fail.
    pub fails_on_purpose: bool,
    /// What the NIC has to have counted: operations, and how many at least.
    pub requested: Option<(&'static str, u64)>,
}

impl Exercise {
    /// What the program that is built is called.
    pub fn program(&self) -> &'static str {
        self.file.trim_end_matches(".c")
    }

    /// From the first, which says least.
    pub fn hints(&self) -> Vec<&'static str> {
        self.hints.lines().collect()
    }
}

/// An exercise of these files, which is judged by what its own check says.
macro_rules! exercise {
    ($number:literal, $folder:literal, $file:literal, $title:literal) => {
        Exercise {
            number: $number,
            title: $title,
            folder: $folder,
            file: $file,
            readme: include_str!(concat!("c/", $folder, "/README.md")),
            broken: include_str!(concat!("c/", $folder, "/", $file)),
            solution: include_str!(concat!("c/", $folder, "/solution.c")),
            judge: include_str!(concat!("c/", $folder, "/judge.c")),
            hints: include_str!(concat!("c/", $folder, "/hints.txt")),
            fails_on_purpose: false,
            requested: None,
        }
    };
}

/// What the learner's programs include.
pub const HEADER: &str = include_str!("c/course.h");
/// What all checks share.
pub const HARNESS: [(&str, &str); 2] = [
    ("harness.h", include_str!("c/harness.h")),
    ("harness.c", include_str!("c/harness.c")),
];

pub static ALL: [Exercise; 10] = [
    exercise!(
        1,
        "01-device",
        "device.c",
        "Open the device and find the GID"
    ),
    exercise!(
        2,
        "02-register",
        "register.c",
        "Register memory that the peer may use"
    ),
    exercise!(3, "03-states", "states.c", "Connect a queue pair"),
    exercise!(
        4,
        "04-receive",
        "receive.c",
        "Post a receive before the peer sends"
    ),
    Exercise {
        fails_on_purpose: true,
        ..exercise!(
            5,
            "05-status",
            "status.c",
            "Look at the status of each completion"
        )
    },
    Exercise {
        requested: Some(("write", 1)),
        ..exercise!(6, "06-write", "write.c", "Write into the peer's memory")
    },
    Exercise {
        requested: Some(("write", 1)),
        ..exercise!(
            7,
            "07-tell",
            "tell.c",
            "Tell the peer that the data is there"
        )
    },
    exercise!(8, "08-sleep", "sleep.c", "Sleep until something has come"),
    Exercise {
        requested: Some(("send", 1003)),
        ..exercise!(
            9,
            "09-signaled",
            "signaled.c",
            "Many sends, few completions"
        )
    },
    exercise!(
        10,
        "10-connect",
        "connect.c",
        "A client of the connection manager"
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: each exercise has a goal, hints from the vaguest on, and a solution that is another
    /// program than the broken one. No line is longer than a terminal of 100 columns.
    #[test]
    fn each_exercise_is_whole() {
        for (n, exercise) in ALL.iter().enumerate() {
            assert_eq!(exercise.number, n + 1);
            assert!(exercise.folder.starts_with(&format!("{:02}-", n + 1)));
            let heading = format!("# Exercise {}: ", n + 1);
            assert!(exercise.readme.starts_with(&heading), "{}", exercise.folder);
            let check = format!("`rnic course {}`", n + 1);
            assert!(exercise.readme.contains(&check), "{}", exercise.folder);
            assert!(
                exercise.readme.contains(exercise.file),
                "{}",
                exercise.folder
            );
            assert!(exercise.hints().len() >= 2, "{}", exercise.folder);
            assert_ne!(exercise.broken, exercise.solution);
            for text in [exercise.readme, HEADER] {
                let long = text.lines().find(|line| line.chars().count() > 100);
                assert_eq!(long, None, "{}", exercise.folder);
            }
        }
    }

    /// Promise: a word that a goal tells to look up is one that `rnic explain` knows.
    #[test]
    fn the_words_of_the_goals_are_explained() {
        let mut asked = 0;
        for exercise in &ALL {
            for rest in exercise.readme.split("`rnic explain ").skip(1) {
                let word = rest.split('`').next().unwrap_or_default().trim_matches('"');
                asked += 1;
                let known = crate::topics::words::find(word).is_some()
                    || word.parse::<u32>().is_ok_and(|n| n < 24);
                assert!(known, "{}: {word}", exercise.folder);
            }
        }
        assert!(asked > 25, "{asked}");
    }
}
