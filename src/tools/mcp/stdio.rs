//! A server that is a process of its own: a message is a line of its standard input or output.

use std::io;
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::Mutex;

use crate::tools::mcp::fault::UNREAD;
use crate::tools::mcp::lines::{Line, Lines};
use crate::tools::mcp::process::Process;

/// A server that is a process.
#[derive(Debug)]
pub(super) struct Stdio {
    server: String,
    process: Process,
    input: Arc<Mutex<Option<ChildStdin>>>,
    output: Lines<ChildStdout>,
    most: usize,
}

impl Stdio {
    /// Speaks with a process through these pipes. A message that is longer than this is not read.
    pub(super) fn new(server: &str, process: Process, input: ChildStdin, output: ChildStdout, most: usize) -> Self {
        let input = Arc::new(Mutex::new(Some(input)));
        Self { server: server.to_owned(), process, input, output: Lines::new(output, most), most }
    }

    /// The message in a line; `None` for lines that hold none: many programs write other things there too.
    fn message(&self, line: Line) -> Option<ServerJsonRpcMessage> {
        let server = &self.server;
        match line {
            Line::Whole(line) if line.trim_ascii().is_empty() => None,
            Line::Whole(line) => {
                let message = serde_json::from_slice(&line).ok();
                if message.is_none() {
                    tracing::debug!(server, bytes = line.len(), "an MCP server wrote a line that is no message");
                }
                message
            }
            Line::TooLong(ends) => {
                tracing::warn!(
                    server,
                    most = self.most,
                    "an MCP server wrote a message that is longer than max_response"
                );
                let what = format!("its answer is longer than {} bytes", self.most);
                let error = json!({"code": -32_603, "message": what, "data": UNREAD});
                serde_json::from_value(json!({"jsonrpc": "2.0", "id": id_of(&ends)?, "error": error})).ok()
            }
        }
    }
}

/// The id of an answer by its beginning and its end, so that its call need not wait in vain; `None` if these do not tell for
/// sure: what is between them may hold other ids, and so may what the tool said.
fn id_of(ends: &[u8]) -> Option<Value> {
    let text = String::from_utf8_lossy(ends);
    let text = text.trim();
    let mut head = text.strip_prefix('{')?;
    let mut found = None;
    loop {
        let (name, after) = head.trim_start().strip_prefix('"')?.split_once('"')?;
        let value = after.trim_start().strip_prefix(':')?.trim_start();
        match name {
            "id" => found = leading_number(value),
            "jsonrpc" => {}
            "result" | "error" => return found.or_else(|| id_at_end(text)),
            _ => return None,
        }
        head = value.split_once(',')?.1;
    }
}

/// The id at the end of an answer, behind its result.
fn id_at_end(text: &str) -> Option<Value> {
    let members = text.strip_suffix('}')?.trim_end();
    let members = members.strip_suffix("\"2.0\"").map_or(Some(members), |before| {
        let before = before.trim_end().strip_suffix(':')?.trim_end().strip_suffix("\"jsonrpc\"")?;
        before.trim_end().strip_suffix(',').map(str::trim_end)
    })?;
    let before = members.trim_end_matches(|char: char| char.is_ascii_digit());
    let name = before.trim_end().strip_suffix(':')?.trim_end().strip_suffix("\"id\"")?;
    name.trim_end().strip_suffix(',').and_then(|_| leading_number(&members[before.len()..]))
}

fn leading_number(text: &str) -> Option<Value> {
    let end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse::<i64>().ok().map(Value::from)
}

impl Transport<RoleClient> for Stdio {
    type Error = io::Error;

    fn send(&mut self, message: ClientJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let input = self.input.clone();
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let mut input = input.lock().await;
            let Some(input) = &mut *input else { return Err(io::ErrorKind::NotConnected.into()) };
            input.write_all(&line).await?;
            input.flush().await
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let line = self.output.next().await?;
            if let Some(message) = self.message(line) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        // A call that is being written to a server that does not read holds the pipe; ending the process frees it.
        if let Ok(mut input) = self.input.try_lock() {
            drop(input.take());
        }
        let status = self.process.end().await;
        let status = status.map_or_else(|| "unknown".to_owned(), |status| status.to_string());
        tracing::info!(server = self.server, status, "the process of an MCP server ended");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_message_is_found_at_its_ends() {
        for (ends, id) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"content"#, Some(7)),
            (r#"{"result":{"content":[…x"}]},"jsonrpc":"2.0","id": 12}"#, Some(12)),
            (r#"{"jsonrpc":"2.0","id":7,"result":{"structuredContent":[{"id": 12}]}}"#, Some(7)),
            (r#"{"jsonrpc":"2.0","result":{"content":[…"}],"rows":[{"id":12}]},"id":7}"#, Some(7)),
            (r#"{"jsonrpc":"2.0","result":{"content":[…"}],"rows":[{"id":12}]}}"#, None),
            (r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{"#, None),
            (r#"{"method":"x","params":{"#, None),
            (r#"{"id":"a"}"#, None),
        ] {
            assert_eq!(id_of(ends.as_bytes()), id.map(Value::from), "{ends}");
        }
    }
}
