//! Flags and environment variables: what differs between machines.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Args, Command, ValueEnum};
use tracing_subscriber::EnvFilter;

use super::store_url::StoreUrl;

/// What is set at start, ahead of the file. A flag wins over its variable.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Configuration file; without this, loopgate.toml in the working directory, if it exists
    #[arg(long, env = "LOOPGATE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Address and port to listen on; overrides server.listen of the file
    #[arg(long, env = "LOOPGATE_LISTEN", value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,

    /// Store of runs and sessions: embedded:DIR, memory: or redis://HOST; overrides store.url of the file
    #[arg(long, env = "LOOPGATE_STORE", value_name = "URL", hide_env_values = true, value_parser = UnshownUrl)]
    pub store: Option<StoreUrl>,

    /// Log level, or levels by module such as warn,loopgate=debug
    #[arg(long, env = "LOOPGATE_LOG", value_name = "FILTER", default_value = DEFAULT_LOG, value_parser = log_filter)]
    pub log: String,

    /// Format of log lines; without this, text on a terminal and json otherwise
    #[arg(long, env = "LOOPGATE_LOG_FORMAT", value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,

    /// Allow an address that other machines can reach although no keys are configured
    #[arg(long)]
    pub insecure_no_auth: bool,

    /// What a program has that the server is part of
    #[arg(skip)]
    pub embedded: EmbeddedNames,
}

/// What a program names that has the server as a library; nothing in the binary.
#[derive(Debug, Clone, Default)]
pub struct EmbeddedNames {
    /// Text in the place of the configuration file.
    pub config: Option<String>,
    /// Its tools.
    pub tools: Vec<String>,
    /// Its upstreams, each with its models.
    pub upstreams: Vec<(String, Vec<String>)>,
}

const DEFAULT_LOG: &str = "info";

impl Default for Options {
    fn default() -> Self {
        Self {
            config: None,
            listen: None,
            store: None,
            log: DEFAULT_LOG.to_owned(),
            log_format: None,
            insecure_no_auth: false,
            embedded: EmbeddedNames::default(),
        }
    }
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

impl Options {
    /// The log format, given whether the log goes to a terminal.
    #[must_use]
    pub fn log_format_on(&self, terminal: bool) -> LogFormat {
        self.log_format.unwrap_or(if terminal { LogFormat::Text } else { LogFormat::Json })
    }
}

/// Reads a store's URL. A mistake in it does not show it: it may hold a password.
#[derive(Clone)]
struct UnshownUrl;

impl TypedValueParser for UnshownUrl {
    type Value = StoreUrl;

    fn parse_ref(&self, command: &Command, _: Option<&Arg>, value: &OsStr) -> Result<StoreUrl, clap::Error> {
        let refused = |what: String| {
            let what = format!("the URL of --store or LOOPGATE_STORE is refused: {what}\n");
            clap::Error::raw(ErrorKind::ValueValidation, what).with_cmd(command)
        };
        value.to_str().ok_or_else(|| refused("it must be UTF-8".to_owned()))?.parse().map_err(refused)
    }
}

fn log_filter(text: &str) -> Result<String, String> {
    EnvFilter::try_new(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    fn parse(arguments: &[&str]) -> Result<Options, String> {
        let arguments = std::iter::once("loopgate").chain(arguments.iter().copied());
        Cli::try_parse_from(arguments).map(|cli| cli.options).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_are_checked() {
        let options = parse(&["--listen", "127.0.0.1:0", "--store", "memory:", "--log-format", "json"]).unwrap();
        assert_eq!(options.listen, Some(([127, 0, 0, 1], 0).into()));
        assert!(matches!(options.store, Some(StoreUrl::Memory)));
        assert_eq!(options.log_format_on(true), LogFormat::Json);
        for bad in [["--listen", "8080"], ["--store", "redis"], ["--log", "a=b=c"], ["--log-format", "xml"]] {
            let error = parse(&bad).unwrap_err();
            assert!(error.contains(bad[0]), "{error}");
        }
        let secret = parse(&["--store", "redis://u:s3cret@host:port"]).unwrap_err();
        assert!(secret.contains("a host is") && !secret.contains("s3cret"), "{secret}");
    }

    #[test]
    fn the_log_is_text_only_on_a_terminal() {
        let options = Options::default();
        assert_eq!((options.log_format_on(true), options.log_format_on(false)), (LogFormat::Text, LogFormat::Json));
    }

    #[test]
    fn every_flag_with_a_value_has_its_variable() {
        for argument in Cli::command().get_arguments().filter(|argument| argument.get_action().takes_values()) {
            let name = argument.get_id().as_str().to_uppercase();
            let variable = argument.get_env().and_then(|name| name.to_str());
            assert_eq!(variable, Some(format!("LOOPGATE_{name}").as_str()));
        }
    }
}
