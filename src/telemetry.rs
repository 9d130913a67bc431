//! Logs: one line an event, as text for people or as JSON for machines. No bodies, no secrets.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use crate::config::LogFormat;

/// Writes logs of `filter` to standard error from now on. A second call changes nothing.
pub fn begin(filter: &str, format: LogFormat, colours: bool) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter).map_err(|error| format!("the log filter is not valid: {error}"))?;
    let builder = fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).with_target(false);
    // If the log can no longer be written, for example to a closed terminal, the server continues without a complaint.
    let builder = builder.log_internal_errors(false);
    // A logger that is there already stays: it belongs to the program that embeds the server.
    let _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_span_list(false).try_init(),
    };
    Ok(())
}
