//! Colours: distinct for the colour-blind too. Pages have them as variables, for light and dark.

/// Red, green and blue on white, and the name of the variable.
pub type Colour = (&'static str, (u8, u8, u8));

/// Of lines.
pub const LINES: [Colour; 4] = [
    ("send", (0xe6, 0x6f, 0x00)),
    ("write", (0x3b, 0x7d, 0xd8)),
    ("read", (0x1b, 0x9e, 0x77)),
    ("atomic", (0x75, 0x3b, 0xbd)),
];
pub const INK: Colour = ("ink", (0x1d, 0x21, 0x27));
pub const SOFT: Colour = ("soft", (0x5c, 0x64, 0x70));
pub const GRID: Colour = ("line", (0xd5, 0xd8, 0xdd));
pub const PAPER: Colour = ("paper", (0xff, 0xff, 0xff));

/// The line of this number; they begin again after the last one.
pub fn line(number: usize) -> Colour {
    LINES[number % LINES.len()]
}
