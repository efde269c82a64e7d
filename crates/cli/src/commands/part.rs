//! `rnic part ROLE`: the second process of demo, bench, study and verify.

use std::path::PathBuf;

use clap::Subcommand;

use super::{bench, demo, study, verify};
use crate::peer::lab;
use crate::platform::failure::Result;
use crate::text::gid::Choice;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// The peer of `rnic demo`
    Demo {
        #[command(flatten)]
        gid: Choice,
    },
    /// The first process of `rnic demo --html`
    Recorded {
        /// Where what was said goes
        file: PathBuf,
        #[command(flatten)]
        gid: Choice,
    },
    /// The peer of `rnic bench`
    Bench {
        #[command(flatten)]
        gid: Choice,
    },
    /// The peer of `rnic study`
    Study {
        #[arg(long)]
        device: Option<String>,
        #[command(flatten)]
        gid: Choice,
    },
    /// What `rnic explain` looks at
    Lab,
    /// The server of `rnic verify`
    Verify {
        #[command(flatten)]
        gid: Choice,
    },
}

pub fn main(args: Args) -> Result<()> {
    match args.role {
        Role::Demo { gid } => {
            demo::follow(&gid).map_err(|failure| failure.during("the peer process"))
        }
        Role::Recorded { file, gid } => demo::record(&file, &gid),
        Role::Bench { gid } => {
            bench::follow(&gid).map_err(|failure| failure.during("the peer process"))
        }
        Role::Study { device, gid } => study::follow(device.as_deref(), &gid)
            .map_err(|failure| failure.during("the peer process")),
        Role::Lab => lab::main(),
        Role::Verify { gid } => verify::follow(&gid),
    }
}
