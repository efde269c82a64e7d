//! A document in Markdown, taken apart: prose, headings, links and code, each with its line.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// Stands for a piece of code in prose. It counts as a word, and as nothing that is forbidden.
pub const CODE: &str = "`code`";

/// A piece of prose: a paragraph, an item of a list or a cell of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prose {
    /// Line on which it begins, from 1.
    pub line: usize,
    /// Its text without marks; [`CODE`] in place of each piece of code.
    pub text: String,
    /// Whether it is a heading.
    pub is_heading: bool,
}

/// Something at a line of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    /// Its line, from 1.
    pub line: usize,
    /// The text.
    pub text: String,
}

/// A block of code between fences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// Line of the fence, from 1.
    pub line: usize,
    /// The language that the fence names.
    pub language: String,
    /// What is between the fences.
    pub text: String,
}

/// A document in Markdown, taken apart.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// Path from the root of the repository.
    pub path: String,
    /// The whole text.
    pub text: String,
    /// Paragraphs, items, cells and headings in order.
    pub prose: Vec<Prose>,
    /// Anchors of the headings, as GitHub makes them.
    pub anchors: Vec<String>,
    /// Targets of links and pictures.
    pub links: Vec<At>,
    /// Code within prose.
    pub code: Vec<At>,
    /// Code between fences.
    pub fenced: Vec<Fenced>,
}

impl Document {
    /// Takes a text apart. Whatever it is, it is some document.
    pub fn parse(path: &str, text: &str) -> Document {
        let starts = line_starts(text);
        let line_of = |offset: usize| starts.partition_point(|start| *start <= offset);
        let mut document = Document {
            path: path.to_owned(),
            text: text.to_owned(),
            ..Document::default()
        };
        let mut prose = Collector::default();
        let mut fence: Option<Fenced> = None;
        let options = Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES;
        for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
            let line = line_of(range.start);
            match event {
                Event::Start(Tag::CodeBlock(kind)) => {
                    prose.flush(&mut document.prose);
                    let language = match kind {
                        pulldown_cmark::CodeBlockKind::Fenced(info) => info.to_string(),
                        pulldown_cmark::CodeBlockKind::Indented => String::new(),
                    };
                    fence = Some(Fenced {
                        line,
                        language,
                        text: String::new(),
                    });
                }
                Event::End(TagEnd::CodeBlock) => document.fenced.extend(fence.take()),
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    prose.begin(line);
                    document.links.push(At {
                        line,
                        text: dest_url.to_string(),
                    });
                }
                Event::Start(Tag::Heading { .. }) => {
                    prose.flush(&mut document.prose);
                    prose.is_heading = true;
                }
                Event::End(TagEnd::Heading(_)) => {
                    let anchor = unique(slug(&prose.anchor), &document.anchors);
                    document.anchors.push(anchor);
                    prose.flush(&mut document.prose);
                }
                Event::Start(
                    Tag::Emphasis | Tag::Strong | Tag::Strikethrough | Tag::Superscript,
                )
                | Event::End(
                    TagEnd::Emphasis
                    | TagEnd::Strong
                    | TagEnd::Strikethrough
                    | TagEnd::Superscript
                    | TagEnd::Link
                    | TagEnd::Image,
                ) => {}
                Event::Start(_) | Event::End(_) | Event::Rule => prose.flush(&mut document.prose),
                Event::Text(words) => match &mut fence {
                    Some(fence) => fence.text.push_str(&words),
                    None => prose.push(line, &words, &words),
                },
                Event::Code(code) => {
                    prose.push(line, CODE, &code);
                    document.code.push(At {
                        line,
                        text: code.to_string(),
                    });
                }
                Event::SoftBreak | Event::HardBreak => prose.push(line, " ", " "),
                // A line of its own in a cell of a table.
                Event::InlineHtml(html) if &*html == "<br>" => prose.flush(&mut document.prose),
                _ => {}
            }
        }
        prose.flush(&mut document.prose);
        document
    }

    /// The lines of the text with their numbers, and whether each is within fences.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str, bool)> {
        let inside = |line: usize| {
            self.fenced.iter().any(|fence| {
                let length = fence.text.lines().count();
                (fence.line..=fence.line + length + 1).contains(&line)
            })
        };
        self.text
            .lines()
            .enumerate()
            .map(move |(nth, line)| (nth + 1, line, inside(nth + 1)))
    }
}

#[derive(Debug, Default)]
struct Collector {
    line: usize,
    text: String,
    anchor: String,
    is_heading: bool,
}

impl Collector {
    fn begin(&mut self, line: usize) {
        if self.text.is_empty() {
            self.line = line;
        }
    }

    /// Adds what is read as prose, and what an anchor is made of.
    fn push(&mut self, line: usize, words: &str, anchor: &str) {
        self.begin(line);
        self.text.push_str(words);
        self.anchor.push_str(anchor);
    }

    fn flush(&mut self, into: &mut Vec<Prose>) {
        if !self.text.trim().is_empty() {
            into.push(Prose {
                line: self.line,
                text: std::mem::take(&mut self.text),
                is_heading: self.is_heading,
            });
        }
        *self = Collector::default();
    }
}

fn line_starts(text: &str) -> Vec<usize> {
    let ends = text.match_indices('\n').map(|(at, _)| at + 1);
    std::iter::once(0).chain(ends).collect()
}

/// The anchor of a heading, as GitHub makes it: small letters, spaces as hyphens, and nothing else
/// but hyphens and underscores.
pub fn slug(heading: &str) -> String {
    heading
        .trim()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            _ if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
            _ => None,
        })
        .collect()
}

/// A heading that comes again has its count behind it.
fn unique(slug: String, before: &[String]) -> String {
    if !before.contains(&slug) {
        return slug;
    }
    (1..)
        .map(|nth| format!("{slug}-{nth}"))
        .find(|numbered| !before.contains(numbered))
        .unwrap_or(slug)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prose, links, code and fences of a document are told apart, with their lines.
    #[test]
    fn a_document_is_taken_apart() {
        let text = "# One `two`\n\nSome [text](a.md#x) and `code`\nmore.\n\n* item\n  * inner\n\n| a | b |\n| - | - |\n| c d | `e` |\n\n```console\n$ ls\n```\n";
        let document = Document::parse("x.md", text);
        let prose: Vec<_> = document
            .prose
            .iter()
            .map(|p| (p.line, p.text.as_str()))
            .collect();
        assert_eq!(
            prose,
            [
                (1, "One `code`"),
                (3, "Some text and `code` more."),
                (6, "item"),
                (7, "inner"),
                (9, "a"),
                (9, "b"),
                (11, "c d"),
                (11, "`code`"),
            ]
        );
        assert_eq!(document.anchors, ["one-two"]);
        assert_eq!(document.links[0].text, "a.md#x");
        assert_eq!(document.code[1].text, "code");
        assert_eq!(document.fenced[0].language, "console");
        assert_eq!(document.fenced[0].text, "$ ls\n");
        let inside = document.lines().filter(|(.., inside)| *inside).count();
        assert_eq!(inside, 3);
    }

    /// Anchors are those that GitHub makes.
    #[test]
    fn anchors() {
        assert_eq!(slug("Installing, and running"), "installing-and-running");
        let document = Document::parse("x.md", "# A b\n# A b\n");
        assert_eq!(document.anchors, ["a-b", "a-b-1"]);
    }
}
