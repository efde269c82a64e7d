//! The questions: what each varies, what it looks at, and what there is to say about it.

mod latency;
mod rate;

use serde::Serialize;

use super::setup::Setup;

/// What a chart has on its vertical axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Microseconds of one operation: the median of a run.
    Latency,
    /// Microseconds of processor time of both processes for each message.
    Processor,
    /// Messages or operations per second.
    Messages,
    /// Bytes of payload per second.
    Bytes,
}

impl Metric {
    pub fn unit(self) -> &'static str {
        match self {
            Metric::Latency | Metric::Processor => "us",
            Metric::Messages => "1/s",
            Metric::Bytes => "B/s",
        }
    }
}

/// As the data have it.
pub fn name(metric: Metric) -> &'static str {
    match metric {
        Metric::Latency => "latency",
        Metric::Processor => "processor",
        Metric::Messages => "messages",
        Metric::Bytes => "bytes",
    }
}

/// What a chart has on its horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Varied {
    /// Bytes of a message.
    Size,
    /// Bytes of the path MTU.
    PathMtu,
    /// A number of something.
    Count,
}

/// Points with all the same parameters but one.
pub struct Series {
    pub name: &'static str,
    pub points: Vec<(u64, Setup)>,
    /// Whether the model of a card is drawn beside it.
    pub model: bool,
}

impl Series {
    /// A point for each of `xs`.
    fn new(name: &'static str, xs: &[u64], setup: impl Fn(usize) -> Setup) -> Series {
        let points = xs.iter().map(|x| (*x, setup(*x as usize))).collect();
        Series {
            name,
            points,
            model: false,
        }
    }

    fn with_model(mut self) -> Series {
        self.model = true;
        self
    }
}

/// One chart.
pub struct Panel {
    pub title: &'static str,
    pub metric: Metric,
    pub varied: Varied,
    /// Of the horizontal axis, with its unit.
    pub x_title: &'static str,
    /// The vertical axis is logarithmic.
    pub log: bool,
    pub series: Vec<Series>,
}

/// What the sentence of a question compares.
#[derive(Clone, Copy, Debug)]
pub enum Look {
    /// Two series at one place, by name.
    Between {
        panel: usize,
        first: &'static str,
        second: &'static str,
        x: u64,
    },
    /// One series at two places.
    Along {
        panel: usize,
        series: &'static str,
        from: u64,
        to: u64,
    },
}

/// A figure of the teaching texts, of a ConnectX-3.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    pub panel: usize,
    pub series: &'static str,
    pub x: u64,
    pub value: f64,
}

pub struct Question {
    /// The word of the command line, and of the lines of code.
    pub id: &'static str,
    pub title: &'static str,
    pub panels: Vec<Panel>,
    pub looks: Vec<Look>,
    pub figures: Vec<Figure>,
    /// Why it is so: a sentence or two.
    pub why: &'static str,
    /// What a software NIC cannot show of it.
    pub note: &'static str,
}

impl Question {
    /// Setups to measure in each round.
    pub fn setups(&self) -> impl Iterator<Item = &Setup> {
        let series = self.panels.iter().flat_map(|panel| &panel.series);
        series.flat_map(|series| series.points.iter().map(|(_, setup)| setup))
    }
}

/// All of them, in the order in which one learns.
pub fn all() -> Vec<Question> {
    vec![
        latency::inline(),
        latency::operation(),
        latency::polling(),
        rate::signaled(),
        rate::batch(),
        rate::depth(),
        rate::mtu(),
        latency::service(),
        rate::qps(),
        rate::srq(),
        latency::registration(),
        rate::throughput(),
        rate::atomics(),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A setup that the other side refuses, or a look at what is not measured, would be found by
    /// whoever runs it.
    #[test]
    fn questions_are_whole() {
        let questions = all();
        assert_eq!(questions.len(), 13);
        let ids: BTreeSet<_> = questions.iter().map(|question| question.id).collect();
        assert_eq!(ids.len(), questions.len());
        for question in &questions {
            let id = question.id;
            for setup in question.setups() {
                setup
                    .check()
                    .unwrap_or_else(|error| panic!("{id}: {error}"));
            }
            let is_there = |panel: usize, name: &str, x: u64| {
                let mut series = question.panels[panel].series.iter();
                let series = series.find(|series| series.name == name);
                let series = series.unwrap_or_else(|| panic!("{id}: no series {name}"));
                assert!(series.points.iter().any(|(at, _)| *at == x), "{id}: {x}");
            };
            assert!(!question.looks.is_empty(), "{id}");
            for look in &question.looks {
                match *look {
                    Look::Between {
                        panel,
                        first,
                        second,
                        x,
                    } => [first, second]
                        .iter()
                        .for_each(|name| is_there(panel, name, x)),
                    Look::Along {
                        panel,
                        series,
                        from,
                        to,
                    } => [from, to].iter().for_each(|x| is_there(panel, series, *x)),
                }
            }
            for figure in &question.figures {
                is_there(figure.panel, figure.series, figure.x);
            }
            for text in [question.why, question.note, question.title] {
                assert!(!text.is_empty(), "{id}");
            }
        }
    }

    /// The reason that `srq` gives names numbers: they are those of its setups.
    #[test]
    fn receives_are_as_many_as_the_words_say() {
        let question = rate::srq();
        let most = |series: &Series| {
            let receives = series.points.iter().map(|(_, setup)| setup.receives());
            receives.max().expect("points")
        };
        let [own, shared] = &question.panels[0].series[..] else {
            panic!("two series")
        };
        assert_eq!((most(own), most(shared)), (4160, 65));
        for number in [
            "65 for each queue pair",
            "4160 with 64",
            "65 in the shared one",
        ] {
            assert!(question.why.contains(number), "{number}");
        }
    }
}
