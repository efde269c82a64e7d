//! The terminal view: the tables, drawn anew after each look, until somebody presses q.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::style::{Attribute, SetAttribute};
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode, size,
};
use crossterm::{execute, queue};

use super::Looker;
use super::frame::Frame;
use super::text::{self, Table};
use crate::platform::failure::{Failure, Result};
use crate::text::count;

/// The end comes first: a narrow screen shows the beginning.
const KEYS: &str = "q end  1 all  2 processes  3 talks  4 queue pairs  arrows move  space pause";

/// Rows of a table that has others below it.
const FEW: usize = 12;

/// What of the frame is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum View {
    #[default]
    All,
    Processes,
    Talks,
    QueuePairs,
}

#[derive(Debug, Default)]
struct Shown {
    view: View,
    /// Rows of each table that are above the screen.
    scrolled: usize,
    /// Columns of the tables that are left of the screen.
    across: usize,
    paused: bool,
}

/// Whether to go on.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    GoOn,
    End,
}

/// A line of the screen.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    text: String,
    style: Attribute,
}

impl Line {
    fn new(text: impl Into<String>, style: Attribute) -> Line {
        let text = text.into();
        Line { text, style }
    }
}

impl Shown {
    fn press(&mut self, key: KeyCode, modifiers: KeyModifiers) -> Next {
        let mut view = |view| (self.view, self.scrolled) = (view, 0);
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return Next::End,
            KeyCode::Char('c' | 'd') if modifiers.contains(KeyModifiers::CONTROL) => {
                return Next::End;
            }
            KeyCode::Char('1') => view(View::All),
            KeyCode::Char('2') => view(View::Processes),
            KeyCode::Char('3') => view(View::Talks),
            KeyCode::Char('4') => view(View::QueuePairs),
            KeyCode::Down => self.scrolled += 1,
            KeyCode::PageDown => self.scrolled += 20,
            KeyCode::Up => self.scrolled = self.scrolled.saturating_sub(1),
            KeyCode::PageUp => self.scrolled = self.scrolled.saturating_sub(20),
            KeyCode::Right => self.across += 8,
            KeyCode::Left => self.across = self.across.saturating_sub(8),
            KeyCode::Home => (self.scrolled, self.across) = (0, 0),
            KeyCode::Char(' ') => self.paused = !self.paused,
            _ => {}
        }
        Next::GoOn
    }

    /// The lines of a screen of that size, all of them there.
    fn lines(&mut self, frame: &Frame, (columns, rows): (usize, usize)) -> Vec<Line> {
        let tables = match self.view {
            View::All => vec![
                text::processes(frame),
                text::talks(frame),
                text::queue_pairs(frame),
            ],
            View::Processes => vec![text::processes(frame)],
            View::Talks => vec![text::talks(frame)],
            View::QueuePairs => vec![text::queue_pairs(frame)],
        };
        let most = tables.iter().map(|table| table.rows.len()).max();
        self.scrolled = self.scrolled.min(most.unwrap_or(0).saturating_sub(1));
        let mut lines = vec![Line::new(self.head(frame), Attribute::Bold)];
        lines.extend(text::silent(frame).map(|text| Line::new(text, Attribute::Bold)));
        if frame.processes.is_empty() {
            lines.push(Line::new(text::NOBODY, Attribute::Reset));
        }
        let widest = tables.iter().map(Table::width).max();
        self.across = self.across.min(widest.unwrap_or(0).saturating_sub(columns));
        let last = tables.len() - 1;
        for (i, table) in tables.iter().enumerate() {
            // Title and heads, and the keys below all.
            let room = rows.saturating_sub(lines.len() + 3);
            let room = if i == last { room } else { room.min(FEW) };
            add_table(&mut lines, table, room, (self.scrolled, self.across));
            if i != last {
                lines.push(Line::new("", Attribute::Reset));
            }
        }
        lines.truncate(rows.saturating_sub(1));
        let empty = || Line::new("", Attribute::Reset);
        lines.resize_with(rows.saturating_sub(1), empty);
        lines.push(Line::new(KEYS, Attribute::Dim));
        for line in &mut lines {
            line.text = line.text.chars().take(columns).collect();
        }
        lines
    }

    fn head(&self, frame: &Frame) -> String {
        let processes = &frame.processes;
        let messages = processes.iter().map(|it| it.rates.messages_requested).sum();
        let bytes = processes.iter().map(|it| it.rates.bytes_out).sum();
        let paused = if self.paused { "  paused" } else { "" };
        format!(
            "rnic top  {}, {}; {} messages/s, {} bytes/s out, over {:.1} s{paused}",
            count(processes.len() as u64, "process"),
            count(frame.queue_pairs.len() as u64, "queue pair"),
            text::short(messages),
            text::short(bytes),
            frame.seconds
        )
    }
}

fn add_table(
    lines: &mut Vec<Line>,
    table: &Table,
    room: usize,
    (scrolled, across): (usize, usize),
) {
    let moved = |text: &str| text.chars().skip(across).collect::<String>();
    let all = table.lines();
    let mut all = all.lines();
    let title = all.next().unwrap_or_default();
    lines.push(Line::new(title, Attribute::Bold));
    let heads = all.next().unwrap_or_default();
    lines.push(Line::new(moved(heads), Attribute::Underlined));
    // Where all rows fit, all are seen.
    let skipped = scrolled.min(table.rows.len().saturating_sub(room));
    let rows = all.skip(skipped).take(room);
    lines.extend(rows.map(|row| Line::new(moved(row), Attribute::Reset)));
}

/// Draws in one go, so that nothing flickers.
fn draw(lines: &[Line]) -> io::Result<()> {
    let mut out = Vec::new();
    for (row, line) in lines.iter().enumerate() {
        queue!(
            out,
            MoveTo(0, row as u16),
            SetAttribute(Attribute::Reset),
            SetAttribute(line.style)
        )?;
        out.extend_from_slice(line.text.as_bytes());
        queue!(
            out,
            SetAttribute(Attribute::Reset),
            Clear(ClearType::UntilNewLine)
        )?;
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(&out)?;
    stdout.flush()
}

/// The terminal is as before when this is dropped, also by a panic.
struct Terminal;

impl Terminal {
    fn new() -> io::Result<Terminal> {
        enable_raw_mode()?;
        let terminal = Terminal;
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(terminal)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

/// Shows frames until somebody ends it.
pub fn show(interval: Duration, looker: Looker) -> Result<()> {
    run(interval, looker).map_err(|e| Failure::new(format!("the terminal cannot be drawn to: {e}")))
}

fn run(interval: Duration, mut looker: Looker) -> io::Result<()> {
    let _terminal = Terminal::new()?;
    let mut shown = Shown::default();
    // The first interval is short: somebody waits for something to be there.
    let mut due = Instant::now() + interval.min(Duration::from_millis(300));
    let mut frame = Frame::default();
    loop {
        let (columns, rows) = size()?;
        draw(&shown.lines(&frame, (columns.into(), rows.into())))?;
        let left = due.saturating_duration_since(Instant::now());
        if event::poll(left)? {
            if let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
                && shown.press(key.code, key.modifiers) == Next::End
            {
                return Ok(());
            }
            if Instant::now() < due {
                continue;
            }
        }
        due = Instant::now() + interval;
        if !shown.paused {
            frame = looker.look();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::top::frame::{Latencies, Process, Rates};

    fn frame(processes: usize) -> Frame {
        let process = |pid| Process {
            pid: pid as u32,
            program: "server".to_owned(),
            queue_pairs: 1,
            sends_outstanding: 0,
            rates: Rates::default(),
            latency: Latencies::default(),
        };
        Frame {
            processes: (0..processes).map(process).collect(),
            silent: vec![4711],
            ..Frame::default()
        }
    }

    /// Promise: a screen of any size is filled, and no line is longer than it.
    #[test]
    fn the_screen_is_filled_whatever_its_size() {
        for processes in [0, 3, 100] {
            for size in [(0, 0), (1, 1), (7, 3), (80, 24), (300, 200)] {
                for view in ['1', '2', '3', '4'] {
                    let mut shown = Shown::default();
                    shown.press(KeyCode::Char(view), KeyModifiers::NONE);
                    shown.press(KeyCode::PageDown, KeyModifiers::NONE);
                    let lines = shown.lines(&frame(processes), size);
                    assert_eq!(lines.len(), size.1.max(1));
                    let longest = lines.iter().map(|line| line.text.chars().count()).max();
                    assert!(longest.unwrap() <= size.0);
                }
            }
        }
    }

    /// Promise: on a narrow screen the way out is shown, and each column can be reached.
    #[test]
    fn a_narrow_screen_shows_the_end_and_moves() {
        let mut shown = Shown::default();
        let lines = shown.lines(&frame(0), (40, 20));
        assert!(lines[19].text.starts_with("q end"), "{:?}", lines[19]);
        assert!(lines.iter().any(|line| line.text.contains("No process")));
        shown.press(KeyCode::Char('2'), KeyModifiers::NONE);
        let last = |lines: &[Line]| lines.iter().any(|line| line.text.contains("drop/s"));
        assert!(!last(&shown.lines(&frame(3), (40, 20))));
        for _ in 0..50 {
            shown.press(KeyCode::Right, KeyModifiers::NONE);
        }
        let lines = shown.lines(&frame(3), (40, 20));
        assert!(last(&lines), "{lines:?}");
        assert!(lines.iter().any(|line| line.text.contains("processes")));
        shown.press(KeyCode::Home, KeyModifiers::NONE);
        assert!(!last(&shown.lines(&frame(3), (40, 20))));
    }

    #[test]
    fn keys_do_what_they_say() {
        let mut shown = Shown::default();
        let none = KeyModifiers::NONE;
        assert_eq!(shown.press(KeyCode::Char(' '), none), Next::GoOn);
        assert!(shown.paused);
        shown.press(KeyCode::Char('2'), none);
        shown.press(KeyCode::PageDown, none);
        let lines = shown.lines(&frame(100), (120, 24));
        let has = |pid: &str| {
            lines
                .iter()
                .any(|line| line.text.trim_start().starts_with(pid))
        };
        assert!(has("20 ") && !has("19 "), "scrolled by 20");
        assert!(lines[0].text.contains("100 processes") && lines[0].text.ends_with("paused"));
        assert!(lines[1].text.contains("4711"));
        assert_eq!(
            shown.press(KeyCode::Char('c'), KeyModifiers::CONTROL),
            Next::End
        );
        assert_eq!(shown.press(KeyCode::Char('q'), none), Next::End);
    }
}
