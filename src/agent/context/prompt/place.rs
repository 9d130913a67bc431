//! Where what is of one run alone stands in the conversation: before the message of the user that the run answers, behind all that
//! earlier requests have sent. It stays there for the whole run, so that each call begins as the call before.

use crate::types::{Conversation, History, Message, Role, RunSpec};

/// The conversation that a run's model is sent, with what its prompt says of this run. `shown` is the conversation of a run
/// whose view leaves something out; otherwise it is all of `history`, and then the run's `own` messages.
pub fn placed(
    spec: &RunSpec,
    (history, shown): (&History, Option<Conversation>),
    own: &[Message],
    prompts: impl Iterator<Item = Message>,
) -> Conversation {
    let of_run = spec.prompt.as_ref().and_then(|prompt| prompt.of_run.as_ref());
    let conversation = match (of_run, shown) {
        (None, Some(shown)) => shown,
        (None, None) => return history.to_conversation().after(&spec.system).then(own.iter().cloned().chain(prompts)),
        (Some(of_run), Some(shown)) => within(spec, &shown, of_run),
        (Some(of_run), None) => {
            let (before, after) = own.split_at(asked(&spec.input).min(own.len()));
            let own = before.iter().chain([of_run]).chain(after).cloned();
            return history.to_conversation().after(&spec.system).then(own.chain(prompts));
        }
    };
    conversation.after(&spec.system).then(prompts)
}

/// Where in a run's request the message stands that it answers.
fn asked(input: &[Message]) -> usize {
    input.iter().rposition(|message| message.role == Role::User).unwrap_or(0)
}

/// The same place in what a view shows; at the beginning if it does not show the message.
fn within(spec: &RunSpec, shown: &Conversation, of_run: &Message) -> Conversation {
    let asked = spec.input.get(asked(&spec.input)).map(|message| &message.origin);
    let at = shown.iter().position(|message| Some(&message.origin) == asked).unwrap_or(0);
    let (before, after) = (shown.iter().take(at), shown.iter().skip(at));
    before.chain([of_run]).chain(after).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::machine::tests::spec;
    use crate::llm::openai::messages::json;
    use crate::types::conversation::requested;
    use crate::types::prompt::Prompt;

    fn texts(conversation: &Conversation) -> Vec<String> {
        let text = |message: &Message| {
            let value: serde_json::Value = serde_json::from_str(json(message)).unwrap();
            value["content"].as_str().unwrap_or("-").to_owned()
        };
        conversation.iter().map(text).collect()
    }

    fn user(text: &str) -> Message {
        Message::text(Role::User, text)
    }

    #[test]
    fn what_is_of_a_run_stands_before_what_it_answers() {
        let mut spec = spec();
        let input = vec![user("earlier"), Message::assistant("answer", &[]), user("now")];
        spec.input = requested(&spec.id, 0, input);
        spec.system = vec![Message::text(Role::System, "told")];
        let history: History = [user("history")].into_iter().collect();
        let mut own = spec.input.clone();
        own.push(Message::assistant("step", &[]));
        let sent = |spec: &RunSpec, shown| texts(&placed(spec, (&history, shown), &own, [user("plan")].into_iter()));
        let all = ["told", "history", "earlier", "answer", "now", "step", "plan"];
        assert_eq!(sent(&spec, None), all);
        let of_run = Some(user("of run"));
        spec.prompt = Some(Prompt { of_run, sections: Vec::new(), said: Vec::new(), asked: None }.into());
        let with = ["told", "history", "earlier", "answer", "of run", "now", "step", "plan"];
        assert_eq!(sent(&spec, None), with);
        let shown = |messages: &[Message]| Some([user("summary")].iter().chain(messages).cloned().collect());
        assert_eq!(sent(&spec, shown(&own[2..])), ["told", "summary", "of run", "now", "step", "plan"]);
        assert_eq!(sent(&spec, shown(&own[3..])), ["told", "of run", "summary", "step", "plan"]);
    }
}
