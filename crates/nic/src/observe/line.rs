//! One record as one line of JSON.

use std::fmt::Write;

/// A JSON object under construction. Records are flat and short: one write(2) takes each whole.
#[derive(Debug)]
pub(crate) struct Line {
    text: String,
}

impl Line {
    /// An object whose first member says what it is.
    pub(crate) fn new(record: &str) -> Line {
        let mut line = Line::open();
        line.text("record", record);
        line
    }

    fn open() -> Line {
        Line {
            text: String::from("{"),
        }
    }

    fn name(&mut self, name: &str) {
        if !self.text.ends_with('{') {
            self.text.push(',');
        }
        self.quote(name);
        self.text.push(':');
    }

    fn quote(&mut self, text: &str) {
        self.text.push('"');
        for c in text.chars() {
            match c {
                '"' | '\\' => {
                    self.text.push('\\');
                    self.text.push(c);
                }
                c if (c as u32) < 0x20 => {
                    let _ = write!(self.text, "\\u{:04x}", c as u32);
                }
                c => self.text.push(c),
            }
        }
        self.text.push('"');
    }

    pub(crate) fn text(&mut self, name: &str, value: &str) -> &mut Line {
        self.name(name);
        self.quote(value);
        self
    }

    pub(crate) fn number(&mut self, name: &str, value: u64) -> &mut Line {
        self.name(name);
        let _ = write!(self.text, "{value}");
        self
    }

    pub(crate) fn signed(&mut self, name: &str, value: i64) -> &mut Line {
        self.name(name);
        let _ = write!(self.text, "{value}");
        self
    }

    pub(crate) fn flag(&mut self, name: &str, value: bool) -> &mut Line {
        self.name(name);
        let _ = write!(self.text, "{value}");
        self
    }

    /// An object within.
    pub(crate) fn object(&mut self, name: &str, fill: impl FnOnce(&mut Line)) -> &mut Line {
        self.name(name);
        let mut inner = Line::open();
        fill(&mut inner);
        self.text.push_str(&inner.text);
        self.text.push('}');
        self
    }

    /// A list of objects.
    pub(crate) fn list<T>(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = T>,
        mut fill: impl FnMut(&mut Line, T),
    ) -> &mut Line {
        self.name(name);
        self.text.push('[');
        let mut between = "";
        for item in items {
            let mut inner = Line::open();
            fill(&mut inner, item);
            let _ = write!(self.text, "{between}{}}}", inner.text);
            between = ",";
        }
        self.text.push(']');
        self
    }

    /// The line, with its end.
    pub(crate) fn finish(mut self) -> String {
        self.text.push_str("}\n");
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::Line;

    #[test]
    fn members_are_quoted_and_nested() {
        let mut line = Line::new("x");
        line.text("a\"b", "c\\d\n\u{e9}")
            .number("n", u64::MAX)
            .signed("s", -2)
            .flag("f", false)
            .object("o", |o| {
                o.number("i", 1).text("j", "");
            })
            .object("empty", |_| {})
            .list("l", [1, 2], |l, i| {
                l.number("i", i);
            })
            .list("none", [0; 0], |_, _: i32| {});
        assert_eq!(
            line.finish(),
            "{\"record\":\"x\",\"a\\\"b\":\"c\\\\d\\u000a\u{e9}\",\"n\":18446744073709551615,\"s\":-2,\"f\":false,\
             \"o\":{\"i\":1,\"j\":\"\"},\"empty\":{},\"l\":[{\"i\":1},{\"i\":2}],\"none\":[]}\n"
        );
    }
}
