//! The commands of the binary, a file each.

mod agents;
mod ask;
mod check_config;
mod client;
mod completions;
mod doctor;
mod dry_run;
mod frames;
mod init;
mod key;
mod local_server;
mod man;
mod models;
mod openapi;
mod process;
mod reload;
mod runs;
mod screen;
mod serve;
mod story;
mod table;
mod text;
mod tools;
mod top;
mod when;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use self::process::{Failure, complain};
use crate::config::Options;

/// An OpenAI-compatible agent API: one POST runs the whole tool loop on the server.
///
/// Start it with no configuration at all:
///
///   loopgate serve
///
/// It listens on 127.0.0.1:8080, keeps runs and sessions under ./data, and finds its models by
/// variables such as OPENAI_API_KEY, OPENAI_BASE_URL or ANTHROPIC_API_KEY. Without them it uses an
/// Ollama that listens on 127.0.0.1:11434, and without that a built-in demo model. Then:
///
///   loopgate ask "What is 1234 * 5678, and what time is it in Oslo?"
#[derive(Debug, Parser)]
#[command(name = "loopgate", version, verbatim_doc_comment, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the API until SIGTERM or Ctrl-C
    Serve(Options),
    /// Read the configuration and name every mistake with its line
    CheckConfig(check_config::CheckConfig),
    /// Ask a question and watch the run: text and tool events as they come
    Ask(ask::Ask),
    /// Check the configuration, the store, the upstreams, the tools and this machine
    Doctor(doctor::Doctor),
    /// List the models of the upstreams: which are there, what they cost and take
    Models(models::Models),
    /// List, show, follow and cancel the runs of a server
    #[command(subcommand)]
    Runs(runs::Runs),
    /// List, show and change the agents of a server
    #[command(subcommand)]
    Agents(agents::Agents),
    /// Watch replicas and their runs: live runs, tokens, cost and errors
    Top(top::Top),
    /// List, call and check the tools that the configuration gives a server
    #[command(subcommand)]
    Tools(tools::Tools),
    /// Make API keys
    #[command(subcommand)]
    Key(key::Key),
    /// Write a configuration file with every section, in comments
    Init(init::Init),
    /// Print the OpenAPI description
    Openapi,
    /// Print what completes commands and flags in a shell
    Completions(completions::Completions),
    /// Print the manual page of a command, or write all pages
    Man(man::Man),
}

/// Runs the command line.
#[must_use]
pub fn main() -> ExitCode {
    // Only fails if a provider is installed already, which then serves as well.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let matches = Cli::command().get_matches();
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    let result = match cli.command {
        Command::Serve(options) => serve::run(&options),
        Command::CheckConfig(check) => check_config::run(&check),
        Command::Ask(ask) => ask::run(&ask),
        Command::Doctor(doctor) => doctor::run(&doctor),
        Command::Models(models) => models::run(&models),
        Command::Runs(runs) => runs::run(&runs),
        Command::Agents(agents) => agents::run(&agents),
        Command::Top(top) => top::run(&top),
        Command::Tools(tools) => tools::run(&tools),
        Command::Key(key) => key::run(&key),
        Command::Init(init) => init::run(&init),
        Command::Openapi => openapi::run(),
        Command::Completions(completions) => {
            completions::run(&completions, &mut Cli::command());
            Ok(())
        }
        Command::Man(man) => man::run(&man, Cli::command()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { message, code }) => {
            if !message.is_empty() {
                complain(&message);
            }
            ExitCode::from(code)
        }
    }
}
