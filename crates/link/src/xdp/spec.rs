//! Which interfaces' packets are taken: the text of `RNIC_XDP`.

use std::fmt;
use std::str::FromStr;

use crate::sys::XdpMode;

/// Which interfaces, and how (`RNIC_XDP`): names, separated by commas; with `:generic` behind it the program sits behind the
/// driver, which any has room for, else in it if it can.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XdpSpec(pub(super) Vec<(String, XdpMode)>);

/// Why a text is no [`XdpSpec`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}`: write the name of an interface, as in `eth0`, with `:generic` behind it for a driver that has no room for XDP"
)]
pub struct XdpSpecError(pub(super) String);

impl FromStr for XdpSpec {
    type Err = XdpSpecError;

    fn from_str(text: &str) -> Result<XdpSpec, XdpSpecError> {
        let interfaces = text.split(',').map(|item| {
            let (name, mode) = match item.split_once(':') {
                None => (item, XdpMode::Driver),
                Some((name, "generic")) => (name, XdpMode::Generic),
                Some(_) => return Err(XdpSpecError(item.to_owned())),
            };
            // IFNAMSIZ
            if name.is_empty() || name.len() > 15 || name.contains(['/', ' ']) {
                return Err(XdpSpecError(item.to_owned()));
            }
            Ok((name.to_owned(), mode))
        });
        interfaces.collect::<Result<_, _>>().map(XdpSpec)
    }
}

impl fmt::Display for XdpSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (k, (name, mode)) in self.0.iter().enumerate() {
            let (comma, generic) = (["", ","][usize::from(k > 0)], *mode == XdpMode::Generic);
            write!(f, "{comma}{name}{}", if generic { ":generic" } else { "" })?;
        }
        Ok(())
    }
}
