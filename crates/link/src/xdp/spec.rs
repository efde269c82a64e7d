//! Which interfaces' packets are taken: the text of `RNIC_XDP`.

use std::fmt;
use std::str::FromStr;

use rnic_sys::XdpMode;

/// How an interface's packets are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By a program in the driver, or behind it where a driver has no room for one; the kernel
    /// copies each packet.
    Copy,
    /// By a program in the driver, with frames that the card itself reads and writes if the driver
    /// can.
    ZeroCopy,
    /// By a program behind the driver; the kernel copies each packet.
    Generic,
}

impl Way {
    /// Where the program sits.
    pub(super) fn mode(self) -> XdpMode {
        match self {
            Way::Copy | Way::ZeroCopy => XdpMode::Driver,
            Way::Generic => XdpMode::Generic,
        }
    }

    /// What stands behind an interface's name.
    fn suffix(self) -> &'static str {
        match self {
            Way::Copy => "",
            Way::ZeroCopy => ":zerocopy",
            Way::Generic => ":generic",
        }
    }
}

/// Which interfaces, and how (`RNIC_XDP`): names, separated by commas. A program in the driver
/// takes the packets, or one behind it where a driver has no room for one; `:generic` behind a name
/// has it behind the driver anyway. The kernel copies each packet; with `:zerocopy` the card reads
/// and writes them by itself, if its driver can.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XdpSpec(pub(super) Vec<(String, Way)>);

/// Why a text is no [`XdpSpec`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}`: write the name of an interface, as in `eth0`, with `:generic` behind it for a driver that has no room for XDP, or \
     `:zerocopy` for one that gives the card itself access"
)]
pub struct XdpSpecError(pub(super) String);

impl FromStr for XdpSpec {
    type Err = XdpSpecError;

    fn from_str(text: &str) -> Result<XdpSpec, XdpSpecError> {
        let interfaces = text.split(',').map(|item| {
            let (name, way) = match item.split_once(':') {
                None => (item, Way::Copy),
                Some((name, "zerocopy")) => (name, Way::ZeroCopy),
                Some((name, "generic")) => (name, Way::Generic),
                Some(_) => return Err(XdpSpecError(item.to_owned())),
            };
            // IFNAMSIZ
            if name.is_empty() || name.len() > 15 || name.contains(['/', ' ']) {
                return Err(XdpSpecError(item.to_owned()));
            }
            Ok((name.to_owned(), way))
        });
        interfaces.collect::<Result<_, _>>().map(XdpSpec)
    }
}

impl fmt::Display for XdpSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (k, (name, way)) in self.0.iter().enumerate() {
            let comma = ["", ","][usize::from(k > 0)];
            write!(f, "{comma}{name}{}", way.suffix())?;
        }
        Ok(())
    }
}
