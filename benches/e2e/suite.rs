//! Runs the chosen scenarios one after the other.

use clap::ValueEnum;

use crate::failure::Failure;
use crate::options::{Options, Scenario};
use crate::scenarios::{APIS, BURST100, CHAT, LOOP, PACED100, PLAIN, TOOLS3, cpu, first_token, ready, streams};
use crate::{counts, growth, live, over_redis, report, times, traced};

/// Measures the chosen scenarios and prints each as soon as it is known.
pub(crate) async fn run(options: &Options, open_files: u64) -> Result<(), Failure> {
    report::machine(options.rounds, !options.unpinned);
    let chosen = if options.scenarios.is_empty() { Scenario::value_variants() } else { &options.scenarios };
    for &scenario in chosen {
        let measured = match scenario {
            Scenario::Ready => ready().await,
            Scenario::Plain => cpu(&PLAIN, options).await,
            Scenario::Tools3 => cpu(&TOOLS3, options).await,
            Scenario::Loop => cpu(&LOOP, options).await,
            Scenario::LoopTime => times::loop_time(options).await,
            Scenario::Chat => cpu(&CHAT, options).await,
            Scenario::Burst100 => cpu(&BURST100, options).await,
            Scenario::Paced100 => cpu(&PACED100, options).await,
            Scenario::Apis => cpu(&APIS, options).await,
            Scenario::Ttft => first_token(options).await,
            Scenario::Redis => over_redis::run(options).await,
            Scenario::Embedded => times::embedded(options).await,
            Scenario::Live => live::run().await,
            Scenario::Counts => counts::run(options).await,
            Scenario::Traces => traced::run().await,
            Scenario::Growth => growth::run(options, open_files).await,
            Scenario::Sessions => growth::sessions(options).await,
            Scenario::Workers => growth::workers(options.rounds).await,
            Scenario::Streams => streams(options.streams, open_files).await,
        };
        match measured {
            Ok(()) => {}
            Err(error) if options.hold => return Err(error),
            Err(error) => println!("\nthe scenario failed: {error}"),
        }
    }
    Ok(())
}
