//! Charts and pages of charts, for the commands that measure.
//!
//! * [`palette`]: colours; [`page`]: what pages have in common.
//! * [`plot`]: a chart of lines with intervals, as SVG; [`png`]: the same as pixels.

pub mod page;
pub mod palette;
pub mod plot;
pub mod png;
pub mod scale;
