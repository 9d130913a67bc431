//! Finds tools, and other texts, by words: the best of many by what they say (Okapi BM25).
//!
//! The same texts and the same words give the same places in the same order, at every replica.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;

use crate::types::offer::ToolDefinition;

/// How much of a term's weight the second, third … occurrence adds.
const SATURATION: f64 = 1.2;
/// How much a long definition is held back.
const LENGTH_NORM: f64 = 0.75;
/// A word of the name says more than one of the description, and one of these more than one of a parameter's.
const NAME: u32 = 4;
const DESCRIPTION: u32 = 2;
const PARAMETER: u32 = 1;
/// Most words of a text that count: a long one must not fill the index.
const MAX_WORDS: usize = 400;
/// Longest word that counts, in bytes.
const MAX_WORD: usize = 40;
/// What a word takes beside its letters and places, about.
const WORD: usize = 96;
/// How deep parameters are looked for in a schema.
const MAX_DEPTH: usize = 4;
/// Words that tell no text from another.
const STOP_WORDS: [&str; 24] = [
    "a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "i", "in", "is", "it", "of", "on", "or", "that",
    "the", "this", "to", "tool", "use", "with",
];

/// The words of texts, and where they stand.
#[derive(Debug, Default)]
pub struct Index {
    /// Where each word occurs: the text's place, and how often, by what it says there.
    places: HashMap<String, Vec<(u32, u32)>>,
    /// How many words each text has.
    lengths: Vec<f64>,
    mean_length: f64,
}

impl Index {
    /// The index over these definitions, in their order.
    pub fn of<'d>(tools: impl IntoIterator<Item = &'d Arc<ToolDefinition>>) -> Self {
        Self::of_weighed(tools.into_iter().map(weighed))
    }

    /// The index over these texts, in their order: of each the parts, and how much a word of each part says.
    pub fn of_texts<'t, P: IntoIterator<Item = (&'t str, u32)>>(texts: impl IntoIterator<Item = P>) -> Self {
        Self::of_weighed(texts.into_iter().map(|parts| {
            let mut all = Weighed::default();
            parts.into_iter().for_each(|(text, weight)| all.add(text, weight));
            all.words
        }))
    }

    fn of_weighed(all: impl Iterator<Item = BTreeMap<String, u32>>) -> Self {
        let (mut places, mut lengths): (HashMap<String, Vec<(u32, u32)>>, _) = (HashMap::new(), Vec::new());
        for (place, words) in (0_u32..).zip(all) {
            lengths.push(words.values().map(|count| f64::from(*count)).sum::<f64>());
            for (word, count) in words {
                places.entry(word).or_default().push((place, count));
            }
        }
        let mean_length =
            lengths.iter().sum::<f64>() / f64::from(u32::try_from(lengths.len().max(1)).unwrap_or(u32::MAX));
        Self { places, lengths, mean_length }
    }

    /// How many bytes of memory it takes, about.
    pub fn bytes(&self) -> usize {
        let words = self.places.iter().map(|(word, places)| WORD + word.capacity() + size_of_val(&**places));
        words.sum::<usize>() + size_of_val(&*self.lengths)
    }

    /// The places of the texts that fit best, the best first. Of two that fit alike the earlier one comes first.
    pub fn find(&self, query: &str, most: usize) -> Vec<usize> {
        let mut scores: BTreeMap<u32, f64> = BTreeMap::new();
        let mut words = words(query);
        words.sort_unstable();
        words.dedup();
        for found in words.iter().filter_map(|word| self.places.get(word)) {
            let rarity = self.rarity(found.len());
            for (place, count) in found {
                *scores.entry(*place).or_default() += rarity * self.frequency(*place, *count);
            }
        }
        let mut ranked: Vec<(u32, f64)> = scores.into_iter().collect();
        ranked.sort_by(|(place, score), (other, than)| than.total_cmp(score).then(place.cmp(other)));
        ranked.into_iter().take(most).map(|(place, _)| place as usize).collect()
    }

    /// What a word weighs that so many texts have.
    fn rarity(&self, texts: usize) -> f64 {
        let count = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
        let (all, with) = (count(self.lengths.len()), count(texts));
        (1.0 + (all - with + 0.5) / (with + 0.5)).ln()
    }

    /// How much it says that a word occurs so often in a text.
    fn frequency(&self, place: u32, count: u32) -> f64 {
        let length = self.lengths.get(place as usize).copied().unwrap_or(self.mean_length) / self.mean_length.max(1.0);
        let count = f64::from(count);
        count * (SATURATION + 1.0) / (count + SATURATION * (1.0 - LENGTH_NORM + LENGTH_NORM * length))
    }
}

/// Words, and how much each says.
#[derive(Default)]
struct Weighed {
    words: BTreeMap<String, u32>,
    count: usize,
}

impl Weighed {
    fn add(&mut self, text: &str, weight: u32) {
        for word in words(text) {
            if self.count == MAX_WORDS {
                return;
            }
            self.count += 1;
            *self.words.entry(word).or_insert(0) += weight;
        }
    }
}

/// The words of a definition, and how much each says.
fn weighed(tool: &Arc<ToolDefinition>) -> BTreeMap<String, u32> {
    let mut all = Weighed::default();
    all.add(&tool.name, NAME);
    all.add(tool.description.as_deref().unwrap_or_default(), DESCRIPTION);
    let schema = tool.parameters.as_ref().and_then(|json| serde_json::from_str::<Value>(json.get()).ok());
    if let Some(schema) = &schema {
        add_parameters(schema, MAX_DEPTH, &mut |text| all.add(text, PARAMETER));
    }
    all.words
}

/// The names of parameters and what is said of them.
fn add_parameters(schema: &Value, depth: usize, add: &mut impl FnMut(&str)) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object).filter(|_| depth > 0) else { return };
    for (name, property) in properties {
        add(name);
        if let Some(description) = property.get("description").and_then(Value::as_str) {
            add(description);
        }
        add_parameters(property, depth - 1, add);
    }
}

/// The words of a text: `getUserById`, `get_user_by_id` and "get users by ids" have the same.
fn words(text: &str) -> Vec<String> {
    let (mut all, mut word, mut was_lower) = (Vec::new(), String::new(), false);
    for c in text.chars() {
        if !c.is_alphanumeric() || (was_lower && c.is_uppercase()) {
            finish(&mut word, &mut all);
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase() || c.is_numeric();
    }
    finish(&mut word, &mut all);
    all
}

fn finish(word: &mut String, all: &mut Vec<String>) {
    let word = std::mem::take(word);
    if word.chars().any(is_unspaced) {
        return add_pairs(&word, all);
    }
    if word.is_empty() || word.len() > MAX_WORD || STOP_WORDS.contains(&word.as_str()) {
        return;
    }
    all.push(stem(word));
}

/// Whether a script is one that writes words without spaces between them: Chinese, Japanese, Thai, Lao, Khmer or Burmese.
fn is_unspaced(c: char) -> bool {
    matches!(c, '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}' | '\u{20000}'..='\u{3ffff}')
}

/// The pairs of neighbours in a text without spaces, which stand for its words.
fn add_pairs(text: &str, all: &mut Vec<String>) {
    let letters: Vec<char> = text.chars().collect();
    match letters.as_slice() {
        [one] => all.push(one.to_string()),
        letters => all.extend(letters.windows(2).map(|pair| pair.iter().collect::<String>())),
    }
}

/// The word without the endings that English gives it in sentences: enough to match a verb or a plural.
fn stem(mut word: String) -> String {
    for (ending, instead) in
        [("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh"), ("ing", ""), ("ed", "")]
    {
        if word.len() >= ending.len() + 3 && word.ends_with(ending) {
            word.truncate(word.len() - ending.len());
            word.push_str(instead);
            trim_end(&mut word);
            return word;
        }
    }
    if word.len() > 2 && word.ends_with('s') && !word.ends_with("ss") && !word.ends_with("us") {
        word.pop();
    }
    trim_end(&mut word);
    word
}

/// `create`, `creates` and `created` end alike, and so do `run` and `running`.
fn trim_end(word: &mut String) {
    let bytes = word.as_bytes();
    let doubled = bytes.len() > 3
        && bytes[bytes.len() - 1] == bytes[bytes.len() - 2]
        && !matches!(bytes[bytes.len() - 1], b's' | b'l');
    if doubled || (bytes.len() > 3 && word.ends_with('e')) {
        word.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::json::RawValueEq;

    fn tool(name: &str, description: &str, parameters: &str) -> Arc<ToolDefinition> {
        Arc::new(ToolDefinition {
            name: name.into(),
            description: Some(description.into()),
            parameters: Some(RawValueEq(serde_json::value::RawValue::from_string(parameters.into()).unwrap())),
            ..ToolDefinition::default()
        })
    }

    fn tools() -> Vec<Arc<ToolDefinition>> {
        let none = r#"{"type":"object"}"#;
        let mut all: Vec<_> =
            (0..500).map(|n| tool(&format!("crm__list_{n}"), "Lists records of the CRM.", none)).collect();
        all.push(tool("github__create_issue", "Create a new issue in a repository", none));
        all.push(tool("github__list_issues", "List the issues of a repository", none));
        all.push(tool(
            "mail__send",
            "Sends an e-mail.",
            r#"{"properties":{"recipient":{"description":"Whom to write to"}}}"#,
        ));
        all.push(tool("getCurrentWeather", "Weather at a place now", r#"{"properties":{"city":{}}}"#));
        all
    }

    #[test]
    fn the_tool_that_is_meant_comes_first() {
        let all = tools();
        let index = Index::of(&all);
        for (query, name) in [
            ("creating issues on github", "github__create_issue"),
            ("list issues", "github__list_issues"),
            ("send a mail", "mail__send"),
            ("recipients", "mail__send"),
            ("what is the WEATHER?", "getCurrentWeather"),
            ("current weather in a city", "getCurrentWeather"),
            ("crm__list_77", "crm__list_77"),
        ] {
            let found: Vec<&str> = index.find(query, 3).into_iter().map(|place| all[place].name.as_str()).collect();
            assert_eq!(found.first(), Some(&name), "{query}: {found:?}");
        }
        assert_eq!(index.find("the of a", 9), [0; 0]);
        assert_eq!(index.find("zebra", 9), [0; 0]);
        assert_eq!(index.find("records", 4), [0, 1, 2, 3], "those that fit alike come in their order");
    }

    #[test]
    fn words_are_those_of_names_and_of_sentences() {
        for same in ["getUserById", "get_user_by_id", "gets users by ids", "GET-USER-ID"] {
            assert_eq!(words(same), ["get", "user", "id"], "{same}");
        }
        assert_eq!(words("creates created creating create"), ["creat"; 4]);
        assert_eq!(
            words("runs running run repositories repository boxes"),
            ["run", "run", "run", "repository", "repository", "box"]
        );
        assert_eq!(words("Straße Ünïcode 日本"), ["straß", "ünïcod", "日本"]);
        assert_eq!(words("我喜欢茶 木"), ["我喜", "喜欢", "欢茶", "木"], "words stand without spaces there");
        assert!(words(&"x".repeat(9_000)).is_empty());
    }

    #[test]
    fn nothing_is_found_among_nothing() {
        assert_eq!(Index::default().find("x", 9), [0; 0]);
        assert_eq!(Index::of([]).find("x", 9), [0; 0]);
        let odd = tool("a", "", r#"{"properties":{"properties":{"properties":[1]}}}"#);
        assert_eq!(Index::of([&odd]).find("properties", 9), [0]);
    }
}
