//! A server with a model that is code: `cargo run --example custom_model`.
//!
//! The model calls the calculator if it is asked to, and repeats everything else. Requests name it `mine/parrot`.

use std::error::Error;

use loopgate::{Answer, Failure, Model, ModelRequest, Server, Speaker, async_trait, json};

/// Repeats what it hears.
#[derive(Debug)]
struct Parrot;

#[async_trait]
impl Model for Parrot {
    fn names(&self) -> Vec<String> {
        vec!["parrot".to_owned()]
    }

    async fn answer(&self, request: ModelRequest, answer: &mut Answer) -> Result<(), Failure> {
        let Some(last) = request.messages.last() else { return Err(Failure::Refused("Nothing was said.".to_owned())) };
        let may_compute = request.tools.iter().any(|tool| tool.name == "calculator");
        match (last.speaker, last.text.strip_prefix("Compute ")) {
            (Speaker::User, Some(expression)) if may_compute => {
                answer.call("calculator", &json!({"expression": expression}));
            }
            // What is said is streamed word by word.
            _ => {
                for word in last.text.split_inclusive(' ') {
                    answer.text(word).await;
                }
            }
        }
        let said: usize = request.messages.iter().map(|message| message.text.len()).sum();
        answer.took(said as u64 / 4 + 1, last.text.len() as u64 / 4 + 1);
        Ok(())
    }
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "where it listens is what the program has to say")]
async fn main() -> Result<(), Box<dyn Error>> {
    let server =
        Server::builder().listen("127.0.0.1:0".parse()?).store("memory:").model("mine", Parrot).start().await?;
    println!("{}", server.url());
    server.run().await;
    Ok(())
}
