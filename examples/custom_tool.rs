//! A server with a tool that is code: `cargo run --example custom_tool`.
//!
//! The tool counts the words of a text. Without a key of an upstream, the demo model answers; ask it to
//! `Call count_words with {"text": "one two three"}`.

use std::error::Error;

use loopgate::{Effect, Server, Tool, ToolAnswer, ToolCall, ToolDefinition, ToolError, Value, async_trait, json};

/// Counts words.
#[derive(Debug)]
struct CountWords;

#[async_trait]
impl Tool for CountWords {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition::new("count_words", "Counts the words of a text.")
            .parameters(json!({
                "type": "object",
                "properties": {"text": {"type": "string", "description": "The text"}},
                "required": ["text"],
                "additionalProperties": false,
            }))
            // It changes nothing, so it may be called again after a crash, and beside other tools.
            .effect(Effect::Read)
    }

    async fn call(&self, arguments: Value, call: &ToolCall) -> Result<ToolAnswer, ToolError> {
        // The server has checked the arguments by the schema.
        let text = arguments["text"].as_str().ok_or_else(|| ToolError::failed("There is no text."))?;
        call.report(0.5, Some(1.0), "counting");
        let words = text.split_whitespace().count();
        Ok(ToolAnswer::json(&json!({"words": words, "counted_for": call.tenant()})))
    }
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "where it listens is what the program has to say")]
async fn main() -> Result<(), Box<dyn Error>> {
    // Any free port; without this, the address of the configuration.
    let server = Server::builder().listen("127.0.0.1:0".parse()?).store("memory:").tool(CountWords).start().await?;
    println!("{}", server.url());
    server.run().await;
    Ok(())
}
