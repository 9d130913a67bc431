//! The phrases that the rules know.

use serde_json::value::RawValue;

use crate::llm::ModelCall;

/// Phrases that ask for the time or the date.
const TIME_PHRASES: [&[&str]; 10] = [
    &["what", "time"],
    &["time", "is", "it"],
    &["the", "time"],
    &["current", "time"],
    &["time", "in"],
    &["what", "day"],
    &["what", "date"],
    &["the", "date"],
    &["today's", "date"],
    &["date", "today"],
];

/// How far a call's JSON may be from the tool's name, in bytes: `call f with these arguments: {`.
const MAX_LEAD_BYTES: usize = 40;

/// The places whose time is asked for; `None` for a time without a place. Empty if none is asked for.
pub(super) fn times(text: &str) -> Vec<Option<String>> {
    let words = words(text);
    if !TIME_PHRASES.iter().any(|phrase| after(&words, phrase).is_some()) {
        return Vec::new();
    }
    let places = places(&words);
    if places.is_empty() { vec![None] } else { places.into_iter().map(Some).collect() }
}

/// N of "count to N".
pub(super) fn count_to(text: &str) -> Option<u64> {
    let words = words(text);
    let next = words.get(after(&words, &["count", "to"])?)?;
    next.plain.replace([',', '_'], "").parse().ok()
}

/// X of "my name is X".
pub(super) fn own_name(text: &str) -> Option<String> {
    let words = words(text);
    let (name, _) = title(&words, after(&words, &["my", "name", "is"])?)?;
    Some(name)
}

/// Whether the user wants to hear their name.
pub(super) fn asks_own_name(text: &str) -> bool {
    let words = words(text);
    let asked = [&["who", "am", "i"][..], &["is", "my", "name"], &["what's", "my", "name"]];
    let trailing = after(&words, &["my", "name", "is"]) == Some(words.len());
    trailing || asked.iter().any(|phrase| after(&words, phrase).is_some())
}

/// The calls that are asked for by name, in order: "call NAME with {…}", "use NAME".
pub(super) fn named_calls(text: &str, tools: &[String]) -> Vec<ModelCall> {
    let mut found: Vec<(usize, ModelCall)> = tools
        .iter()
        .flat_map(|name| text.match_indices(name.as_str()).map(move |(at, _)| (at, name)))
        .filter(|&(at, name)| stands_alone(text, at, name.len()) && is_ordered(&text[..at]))
        .map(|(at, name)| {
            let arguments = object_near(&text[at + name.len()..]).unwrap_or("{}").to_owned();
            (at, ModelCall { name: name.clone(), arguments })
        })
        .collect();
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, call)| call).collect()
}

/// Whether what comes before a tool's name tells to call it.
fn is_ordered(before: &str) -> bool {
    let words = words(before);
    let last_two = words.iter().rev().take(2);
    last_two.into_iter().any(|word| matches!(word.lower.as_str(), "call" | "use" | "run" | "invoke"))
}

/// Whether no longer name holds this one.
fn stands_alone(text: &str, at: usize, length: usize) -> bool {
    let part_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    !text[..at].ends_with(part_of_name) && !text[at + length..].starts_with(part_of_name)
}

/// The JSON object that begins soon.
fn object_near(text: &str) -> Option<&str> {
    let at = text.find('{').filter(|&at| at <= MAX_LEAD_BYTES)?;
    let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<&RawValue>();
    Some(values.next()?.ok()?.get())
}

/// What follows "in": one place or several.
fn places(words: &[Word<'_>]) -> Vec<String> {
    let mut places = Vec::new();
    for (at, word) in words.iter().enumerate().filter(|(_, word)| word.lower == "in") {
        let sure = at > 0 && matches!(words[at - 1].lower.as_str(), "time" | "it");
        let mut next = at + 1;
        if word.ends_clause || !words.get(next).is_some_and(|word| sure || word.is_title()) {
            continue;
        }
        while let Some((place, after)) = title(words, next) {
            places.push(place);
            next = after;
            // "Oslo, Paris and Tokyo"
            let listed = words[next - 1].ends_clause;
            if words.get(next).is_some_and(|word| word.lower == "and") {
                next += 1;
            } else if !listed {
                break;
            }
            if !words.get(next).is_some_and(|word| word.is_title() && word.lower != "i" && !starts_question(word)) {
                break;
            }
        }
    }
    places
}

fn starts_question(word: &Word<'_>) -> bool {
    matches!(word.lower.as_str(), "what" | "who" | "how" | "when" | "where" | "please" | "my" | "the")
}

/// The word at `at` and, if it begins with a capital, those after it that do: a name. And where it ends.
fn title(words: &[Word<'_>], at: usize) -> Option<(String, usize)> {
    let first = words.get(at).filter(|word| !word.plain.is_empty())?;
    let mut name = first.plain.to_owned();
    let mut end = at + 1;
    while first.is_title()
        && !words[end - 1].ends_clause
        && let Some(word) = words.get(end).filter(|word| word.is_title() && end < at + 3)
    {
        name = format!("{name} {}", word.plain);
        end += 1;
    }
    Some((name, end))
}

/// Where a phrase ends, if it is there: the number of the word after it.
fn after(words: &[Word<'_>], phrase: &[&str]) -> Option<usize> {
    let said = |window: &[Word<'_>]| window.iter().zip(phrase).all(|(word, part)| word.lower == *part);
    words.windows(phrase.len()).position(said).map(|at| at + phrase.len())
}

/// A word without what surrounds it.
struct Word<'a> {
    plain: &'a str,
    lower: String,
    /// Whether punctuation follows it.
    ends_clause: bool,
}

impl Word<'_> {
    fn is_title(&self) -> bool {
        self.plain.starts_with(|c: char| c.is_uppercase() || matches!(c, '+'))
    }
}

fn words(text: &str) -> Vec<Word<'_>> {
    let inner = |c: char| c.is_alphanumeric() || matches!(c, '+' | '-');
    text.split_whitespace()
        .map(|word| {
            let plain = word.trim_matches(|c| !inner(c));
            let ends_clause = word.ends_with(['.', ',', ';', ':', '!', '?', ')']);
            Word { plain, lower: plain.to_lowercase().replace('’', "'"), ends_clause }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_of_time_and_place_are_understood() {
        let some = |places: &[&str]| places.iter().map(|place| Some((*place).to_owned())).collect::<Vec<_>>();
        for (text, places) in [
            ("What is 1234 * 5678, and what time is it in Oslo?", some(&["Oslo"])),
            ("what time is it in oslo", some(&["oslo"])),
            ("Tell me the time in New York and Tokyo, please.", some(&["New York", "Tokyo"])),
            ("What time is it in Oslo, Paris and Rio de Janeiro?", some(&["Oslo", "Paris", "Rio"])),
            ("Current time in Europe/Oslo? What day is it in +02:00?", some(&["Europe/Oslo", "+02:00"])),
            ("What time is it?", vec![None]),
            ("What's today’s date in words?", vec![None]),
            ("How many times is 2 in 8?", vec![]),
            ("I live in Oslo.", vec![]),
        ] {
            assert_eq!(times(text), places, "{text}");
        }
    }

    #[test]
    fn requests_to_count_are_understood() {
        assert_eq!(count_to("Please count to 5."), Some(5));
        assert_eq!(count_to("Count to 1,000!"), Some(1_000));
        assert_eq!(count_to("Count to ten"), None);
        assert_eq!(count_to("I count to"), None);
    }

    #[test]
    fn names_are_found_in_sentences() {
        assert_eq!(own_name("Hi, my name is Ada Lovelace and I count.").as_deref(), Some("Ada Lovelace"));
        assert_eq!(own_name("My name is ada!").as_deref(), Some("ada"));
        assert_eq!(own_name("What is my name?"), None);
        for text in ["What is my name?", "what's my name", "Who am I?", "Do you know what my name is?"] {
            assert!(asks_own_name(text), "{text}");
        }
        assert!(!asks_own_name("My name is Ada."));
    }

    #[test]
    fn tools_are_called_by_their_names() {
        let tools = ["get_weather".to_owned(), "get".to_owned()];
        let calls = |text| -> Vec<(String, String)> {
            named_calls(text, &tools).into_iter().map(|call| (call.name, call.arguments)).collect()
        };
        let weather = |arguments: &str| ("get_weather".to_owned(), arguments.to_owned());
        assert_eq!(calls("Call get_weather with {\"city\": \"Oslo\"}."), [weather("{\"city\": \"Oslo\"}")]);
        assert_eq!(calls("run `get_weather({\"a\":{}})` now"), [weather("{\"a\":{}}")]);
        assert_eq!(calls("Use the get_weather tool"), [weather("{}")]);
        assert_eq!(calls("use get, then call get_weather {oops}"), [("get".into(), "{}".into()), weather("{}")]);
        assert_eq!(calls("What does get_weather do?"), []);
    }
}
