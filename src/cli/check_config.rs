//! `loopgate check-config`.

use super::{Failure, env, say};
use crate::config::{Options, Settings};

pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let settings = Settings::load(options, &env).map_err(Failure::config)?;
    say(format_args!(
        "The configuration is valid: {} upstreams ({}), {} agents, {} HTTP tools, {} keys.",
        settings.upstreams.len(),
        settings.upstream_origin,
        settings.agents.len(),
        settings.tools.len(),
        settings.keys.len(),
    ));
    Ok(())
}
