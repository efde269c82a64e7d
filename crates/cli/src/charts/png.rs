//! Pixels of a chart.

use crate::platform::failure::Result;

/// Whether this program can: fails if not, before minutes of measuring.
#[cfg(not(feature = "png"))]
pub fn can_draw() -> Result<()> {
    use crate::platform::failure::Failure;
    Err(Failure::new("this rnic was built without PNG")
        .next("`--svg FOLDER`, and a program that converts (rsvg-convert); or build it with `cargo build --features png`"))
}

/// A PNG of an SVG.
#[cfg(not(feature = "png"))]
pub fn png(_: &str) -> Result<Vec<u8>> {
    can_draw()?;
    Ok(Vec::new())
}

#[cfg(feature = "png")]
pub use drawing::{can_draw, png};

#[cfg(feature = "png")]
mod drawing {
    use std::sync::{Arc, OnceLock};

    use resvg::tiny_skia::{Pixmap, Transform};
    use resvg::usvg::{Options, Tree, fontdb};

    use super::Result;
    use crate::platform::failure::Failure;

    /// The fonts of this host: letters come from there.
    fn fonts() -> &'static Arc<fontdb::Database> {
        static FONTS: OnceLock<Arc<fontdb::Database>> = OnceLock::new();
        FONTS.get_or_init(|| {
            let mut fonts = fontdb::Database::new();
            fonts.load_system_fonts();
            // Where none of those that a chart names is there, any will do.
            let first = fonts.faces().next();
            let family = first.and_then(|face| Some(face.families.first()?.0.clone()));
            if let Some(family) = family {
                fonts.set_sans_serif_family(family);
            }
            Arc::new(fonts)
        })
    }

    /// Letters need a font.
    pub fn can_draw() -> Result<()> {
        match fonts().is_empty() {
            false => Ok(()),
            true => Err(Failure::new("a PNG needs a font, and this host has none")
                .next("`apt install fonts-dejavu-core`, or `--svg FOLDER`")),
        }
    }

    /// A PNG of an SVG, in its own size.
    pub fn png(svg: &str) -> Result<Vec<u8>> {
        let failed =
            |error: &dyn std::fmt::Display| Failure::new(format!("drawing a PNG: {error}"));
        let options = Options {
            fontdb: fonts().clone(),
            ..Options::default()
        };
        let tree = Tree::from_str(svg, &options).map_err(|error| failed(&error))?;
        let size = tree.size().to_int_size();
        let mut pixels = Pixmap::new(size.width(), size.height())
            .ok_or_else(|| failed(&"a picture of no size"))?;
        resvg::render(&tree, Transform::identity(), &mut pixels.as_mut());
        pixels.encode_png().map_err(|error| failed(&error))
    }
}
