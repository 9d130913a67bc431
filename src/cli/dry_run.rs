//! What a request would be as a run, in words: `loopgate ask --dry-run`.

use std::fmt::Write;

use serde::Deserialize;
use serde_json::Value;

use super::table::lines;
use super::text::{clean, count, line};

/// Most characters of what is not the prompt itself.
const MOST: usize = 200;

/// What a dry run answers, as far as it is told.
#[derive(Debug, Deserialize)]
pub(super) struct DryRun {
    agent: String,
    model: String,
    sections: Vec<Section>,
    messages: Vec<Value>,
    reveals_prompt: bool,
    tools: Vec<Tool>,
    tokens: Tokens,
    context: Context,
    first_call: Option<Call>,
    most: Most,
    price_known: bool,
    refused: Option<String>,
    warnings: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Section {
    name: String,
    owner: String,
    priority: u32,
    stable: bool,
    chars: u64,
    tokens: u64,
}

#[derive(Debug, Deserialize)]
struct Tool {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Tokens {
    instructions: u64,
    of_run: u64,
    history: u64,
    input: u64,
    tools: u64,
    total: u64,
}

#[derive(Debug, Deserialize)]
struct Context {
    replaced_messages: u64,
    window_tokens: Option<u64>,
    limit_tokens: u64,
    would_compact: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Call {
    input_tokens: u64,
    output_tokens: u64,
    cost_usd: f64,
}

#[derive(Debug, Deserialize)]
struct Most {
    calls: u64,
    tokens: u64,
    cost_usd: f64,
}

impl DryRun {
    /// All of it as text for a terminal.
    pub(super) fn told(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.tell(&mut out);
        out
    }

    fn tell(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "agent {}, model {}: nothing was called\n", line(&self.agent, MOST), line(&self.model, MOST))?;
        let row = |section: &Section| {
            let lasts = if section.stable { "stable" } else { "this run" };
            let numbers = [section.priority.to_string(), section.chars.to_string(), section.tokens.to_string()];
            let [priority, chars, tokens] = numbers;
            vec![line(&section.name, 64), line(&section.owner, 16), priority, lasts.to_owned(), chars, tokens]
        };
        let rows: Vec<_> = self.sections.iter().map(row).collect();
        let columns = ["SECTION", "OWNER", "PRIORITY", "LASTS", "CHARS", "TOKENS"].map(|title| (title, None));
        for text in if rows.is_empty() { Vec::new() } else { lines(&columns, &rows, None) } {
            writeln!(out, "{text}")?;
        }
        if !self.reveals_prompt {
            writeln!(out, "\nthe agent does not reveal what its prompt says")?;
        }
        for message in &self.messages {
            let role = message["role"].as_str().unwrap_or_default();
            writeln!(out, "\n[{}]\n{}", line(role, 16), clean(&text_of(message)))?;
        }
        self.tell_sizes(out)
    }

    fn tell_sizes(&self, out: &mut String) -> std::fmt::Result {
        let Self { tokens, context, most, .. } = self;
        let names: Vec<_> = self.tools.iter().map(|tool| line(&tool.name, 64)).collect();
        writeln!(out, "\ntools    {}", if names.is_empty() { "none".to_owned() } else { names.join(", ") })?;
        let limit = match context.window_tokens {
            Some(_) => format!("up to {} are sent", context.limit_tokens),
            None => "the model's window is not known".to_owned(),
        };
        writeln!(
            out,
            "tokens   about {}: instructions {}, of this run {}, history {}, input {}, tools {}; {limit}",
            tokens.total, tokens.instructions, tokens.of_run, tokens.history, tokens.input, tokens.tools
        )?;
        if context.replaced_messages > 0 {
            writeln!(out, "history  {} left out", count(context.replaced_messages, "earlier message"))?;
        }
        if let Some(method) = &context.would_compact {
            writeln!(out, "history  would be shortened before the first call, by {}", line(method, 16))?;
        }
        if let Some(call) = &self.first_call {
            let (input, output) = (call.input_tokens, call.output_tokens);
            writeln!(out, "a call   at most {input} tokens in, {output} out, ${:.4}", call.cost_usd)?;
        }
        let calls = count(most.calls, "model call");
        let guess = if self.price_known { "" } else { ", at a price that is a guess" };
        writeln!(out, "the run  at most {calls}, {} tokens, ${:.4}{guess}", most.tokens, most.cost_usd)?;
        for warning in &self.warnings {
            writeln!(out, "warning  {}", line(warning, MOST))?;
        }
        if let Some(refused) = &self.refused {
            writeln!(out, "refused  {}", line(refused, MOST))?;
        }
        Ok(())
    }
}

/// What a message says: its text, or its JSON.
fn text_of(message: &Value) -> String {
    if let Some(text) = message["content"].as_str() {
        return text.to_owned();
    }
    let parts = message["content"].as_array().into_iter().flatten();
    let texts: Vec<_> =
        parts.map(|part| part["text"].as_str().map_or_else(|| part.to_string(), str::to_owned)).collect();
    if texts.is_empty() { message.to_string() } else { texts.join("\n") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_dry_run_in_words() {
        let section = |name: &str, stable: bool| json!({"name": name, "owner": "agent", "priority": 10, "tags": [], "stable": stable, "chars": 40, "tokens": 10});
        let dry: DryRun = serde_json::from_value(json!({
            "agent": "support", "model": "openai/m", "reveals_prompt": true, "price_known": false,
            "sections": [section("system", true), section("time", false)],
            "messages": [{"role": "system", "content": "Be brief.\u{1b}[2J"}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
            "tools": [{"name": "calculator", "description": null}],
            "tokens": {"instructions": 3, "of_run": 0, "history": 0, "input": 1, "tools": 50, "total": 54},
            "context": {"replaced_messages": 4, "window_tokens": 2000, "limit_tokens": 1000, "would_compact": "llm"},
            "first_call": {"input_tokens": 60, "output_tokens": 100, "cost_usd": 0.01},
            "most": {"calls": 22, "tokens": 9000, "cost_usd": 1.5},
            "refused": "the key has used its budget", "warnings": ["a layer was left out"],
        }))
        .unwrap();
        let told = dry.told();
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines[0], "agent support, model openai/m: nothing was called");
        assert_eq!(lines[2], "SECTION  OWNER  PRIORITY  LASTS     CHARS  TOKENS");
        assert_eq!(lines[4], "time     agent  10        this run  40     10");
        for piece in [
            "[system]\nBe brief.\u{fffd}[2J\n\n[user]\nHi\n",
            "tools    calculator\n",
            "tokens   about 54: instructions 3, of this run 0, history 0, input 1, tools 50; up to 1000 are sent\n",
            "history  4 earlier messages left out\n",
            "by llm\n",
            "a call   at most 60 tokens in, 100 out, $0.0100\n",
            "the run  at most 22 model calls, 9000 tokens, $1.5000, at a price that is a guess\n",
            "warning  a layer was left out\nrefused  the key has used its budget\n",
        ] {
            assert!(told.contains(piece), "{piece}: {told}");
        }
    }
}
