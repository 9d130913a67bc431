//! What a server writes to its standard error, as lines of our log.

use std::time::Duration;

use tokio::io::AsyncRead;
use tokio::time::Instant;

use crate::tools::mcp::lines::{KEPT_END, Line, Lines};
use crate::tools::mcp::secrets::Secrets;

/// Most bytes of a line that are kept.
const MAX_LINE: usize = 1_024;
/// Most lines that are logged within [`WINDOW`]; more are counted.
const MAX_LINES: u32 = 50;
const WINDOW: Duration = Duration::from_secs(10);

/// Reads all of it, so that the server never waits for a reader, and logs the beginning of each of the first lines.
pub(super) async fn drain(server: String, errors: impl AsyncRead + Unpin, secrets: Secrets) {
    let mut lines = Lines::new(errors, MAX_LINE);
    let (mut since, mut logged, mut left_out) = (Instant::now(), 0, 0_u64);
    while let Some(line) = lines.next().await {
        if since.elapsed() >= WINDOW {
            if left_out > 0 {
                tracing::info!(server, left_out, "an MCP server wrote more to its standard error than is logged");
            }
            (since, logged, left_out) = (Instant::now(), 0, 0);
        }
        let text = match &line {
            Line::Whole(text) => text.as_slice(),
            // Its end may begin in the middle of a secret, which would not be known then.
            Line::TooLong(ends) => &ends[..KEPT_END.min(ends.len())],
        };
        let text = readable(text, &secrets);
        if text.is_empty() {
            continue;
        }
        if logged < MAX_LINES {
            logged += 1;
            tracing::info!(server, line = text, "an MCP server wrote to its standard error");
        } else {
            left_out += 1;
        }
    }
}

/// The text without what a terminal would obey, and without the secrets that the server was given.
fn readable(text: &[u8], secrets: &Secrets) -> String {
    let text = String::from_utf8_lossy(text);
    let plain: String = text.chars().filter(|char| !char.is_control() || *char == '\t').collect();
    secrets.hide(plain.trim()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    #[test]
    fn a_line_of_the_log_has_no_secrets_and_no_control_characters() {
        let line = b"\x1b[31mfailed with token sk-12345 \xff\r";
        let secrets = Secrets::new(["sk-12345", "a"].map(Secret::new));
        assert_eq!(readable(line, &secrets), "[31mfailed with token *** \u{fffd}");
        let key = Secrets::new([Secret::new("-----BEGIN KEY-----\nMIIEvSECRET\nLINE2SECRET\n")]);
        assert_eq!(readable(b"bad key: MIIEvSECRET", &key), "bad key: ***");
    }
}
