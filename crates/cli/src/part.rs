//! `rnic part ROLE`: the second process of demo, bench and verify, and bench's first.

use clap::{Subcommand, ValueEnum};

use crate::failure::Result;
use crate::gid::Choice;
use crate::{bench, demo, verify};

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
    /// One measurement of `rnic bench`
    Bench {
        side: Side,
        measurement: String,
        #[command(flatten)]
        gid: Choice,
    },
    /// The server of `rnic verify`
    Verify {
        #[command(flatten)]
        gid: Choice,
    },
}

/// Which of a pair of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Side {
    Lead,
    Follow,
}

pub fn main(args: Args) -> Result<()> {
    match args.role {
        Role::Demo { gid } => {
            demo::follow(&gid).map_err(|failure| failure.during("the peer process"))
        }
        Role::Bench {
            side,
            measurement,
            gid,
        } => bench::part(side, &measurement, &gid),
        Role::Verify { gid } => verify::follow(&gid),
    }
}
