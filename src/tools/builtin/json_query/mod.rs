//! `json_query`: a part of some JSON, or another form of it, by a JMESPath expression.
//!
//! JMESPath has no loops, no recursion and no variables, so how much an expression can make of its data is known before it is
//! evaluated; [`bound`] refuses what would be too much. The languages that do have them could only be stopped with their thread.

mod bound;

use std::io::{self, Write};

use async_trait::async_trait;
use jmespath::{Rcvar, Variable};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::tools::builtin::define;
use crate::tools::{CallContext, Tool, ToolAnswer, ToolError, ToolSpec};
use crate::types::json::RawValueEq;

/// Longest result in bytes: a model is told less of it.
const MAX_RESULT: usize = 1 << 20;

/// The tool.
#[derive(Debug)]
pub struct JsonQuery {
    spec: ToolSpec,
}

impl JsonQuery {
    pub(super) fn new() -> Self {
        let description = "Selects parts of JSON data, or brings it into another form, with a JMESPath expression: for example \
             `items[?price > `10`].{name: name, price: price}`, `sort_by(people, &age)[-1].name`, `length(items)` or \
             `sum(items[*].price)`.";
        let parameters = r#"{"type":"object","properties":{"query":{"type":"string","description":"The JMESPath expression"},"data":{"description":"The JSON data, as it is or as text"}},"required":["query","data"],"additionalProperties":false}"#;
        Self { spec: define::spec("json_query", description, parameters) }
    }
}

#[async_trait]
impl Tool for JsonQuery {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn only_computes(&self) -> bool {
        true
    }

    async fn call(&self, arguments: &RawValue, _: &CallContext) -> Result<ToolAnswer, ToolError> {
        #[derive(Deserialize)]
        struct Arguments<'a> {
            query: String,
            #[serde(borrow)]
            data: &'a RawValue,
        }
        let Arguments { query, data } = define::decode(arguments)?;
        // JSON in a text is meant as JSON, as models often have it; any other text is the data itself.
        let text: Option<String> = serde_json::from_str(data.get()).ok();
        let inner = text.as_deref().filter(|text| text.trim_start().starts_with(['{', '[']));
        let inner = inner.and_then(|text| serde_json::from_str::<&RawValue>(text).ok());
        let result = select(&query, inner.unwrap_or(data)).map_err(ToolError::Failed)?;
        let bytes = result.get().len() as u64;
        Ok(ToolAnswer { structured: Some(RawValueEq(result)), bytes, ..ToolAnswer::default() })
    }
}

/// What the expression makes of the data, or a sentence for the model that wrote the expression.
pub(in crate::tools) fn select(query: &str, data: &RawValue) -> Result<Box<RawValue>, String> {
    bound::check_text(query)?;
    let expression = jmespath::compile(query).map_err(|error| told(&error))?;
    bound::check(expression.as_ast(), data.get().len())?;
    let data = Variable::from_json(data.get()).map_err(|error| format!("The data cannot be read: {error}."))?;
    let result = expression.search(Rcvar::new(data)).map_err(|error| told(&error))?;
    let mut written = Bounded(Vec::new());
    serde_json::to_writer(&mut written, &result).map_err(|error| {
        if error.is_io() {
            format!("The result is longer than {MAX_RESULT} bytes: select less.")
        } else {
            format!("The result is no JSON: {error}.")
        }
    })?;
    String::from_utf8(written.0)
        .ok()
        .and_then(|text| RawValue::from_string(text).ok())
        .ok_or_else(|| "The result is no JSON.".to_owned())
}

/// The library's words, which show the place, on one line.
fn told(error: &jmespath::JmespathError) -> String {
    let words = error.to_string();
    let line = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let line: String = line.chars().take(300).collect();
    format!("The query cannot be evaluated: {line}. It must be a JMESPath expression.")
}

/// Bytes that are no more than a result may have.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_RESULT {
            return Err(io::Error::other("too long"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::tools::testing::context;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    fn of(query: &str, data: &str) -> Result<String, String> {
        select(query, &raw(data)).map(|result| result.get().to_owned())
    }

    #[test]
    fn parts_are_selected_and_brought_into_another_form() {
        let shop =
            r#"{"items": [{"name": "a", "price": 5, "tags": ["x"]}, {"name": "b", "price": 20, "tags": ["y", "z"]}]}"#;
        for (query, result) in [
            ("items[1].name", r#""b""#),
            ("items[?price > `10`].{name: name, first: tags[0]}", r#"[{"first":"y","name":"b"}]"#),
            ("sort_by(items, &price)[-1].name", r#""b""#),
            ("length(items)", "2"),
            ("items[].tags[]", r#"["x","y","z"]"#),
            ("join(', ', items[*].name)", r#""a, b""#),
            ("items[?contains(tags, 'x')] | [0].price", "5"),
            ("absent", "null"),
            ("@", r#"{"items":[{"name":"a","price":5,"tags":["x"]},{"name":"b","price":20,"tags":["y","z"]}]}"#),
        ] {
            assert_eq!(of(query, shop).as_deref(), Ok(result), "{query}");
        }
    }

    #[test]
    fn numbers_keep_their_digits() {
        assert_eq!(of("[0]", "[18446744073709551615]").as_deref(), Ok("18446744073709551615"));
        assert_eq!(of("[0]", "[0.1]").as_deref(), Ok("0.1"));
    }

    #[test]
    fn mistakes_are_told_in_a_sentence() {
        for (query, words) in [
            ("items[", "cannot be evaluated"),
            ("", "cannot be evaluated"),
            ("nonsense(@)", "cannot be evaluated"),
            ("sum('a')", "cannot be evaluated"),
            ("@[::0]", "cannot be evaluated"),
            ("&a", "only for the functions"),
            ("[&a]", "only for the functions"),
        ] {
            let error = of(query, "{}").unwrap_err();
            assert!(error.contains(words) && error.len() < 500 && !error.contains('\n'), "{query}: {error}");
        }
    }

    /// Each of these would take hours, all memory, or the stack.
    #[test]
    fn nothing_is_evaluated_that_takes_too_long_or_too_much() {
        let begun = Instant::now();
        let doubled = ["[@,@]"; 60].join("|");
        let flattened = format!("{}[]", ["[@,@][]"; 40].join("|"));
        let literal = ["[*].`[1,2,3,4,5,6,7,8,9]`[]"; 20].join("|");
        let escaped = format!("{}@{}", "to_string([".repeat(30), "])".repeat(30));
        let joined = "join(big, list)";
        let mapped = format!("{}[@,@]{}", "map(&".repeat(30), ", @)".repeat(30));
        let deep = "(".repeat(5_000) + "@" + &")".repeat(5_000);
        let not = "!".repeat(100_000) + "@";
        let data = format!(r#"{{"big": "{}", "list": [{}""]}}"#, "x".repeat(50_000), "\"\",".repeat(50_000));
        for query in
            [&*doubled, &flattened, &literal, &escaped, joined, &mapped, &deep, &not, "[-2147483648]", "[::2147483647]"]
        {
            assert!(of(query, &data).is_err(), "{}", &query[..query.len().min(60)]);
        }
        let long = format!("[{}1]", "1,".repeat(400_000));
        assert!(of("[@, @]", &long).unwrap_err().contains("longer than"));
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }

    /// What the bounds let pass is done soon, also at its worst.
    #[test]
    fn what_is_allowed_is_within_its_bounds() {
        let numbers = format!("[{}1]", "1,".repeat(20_000));
        let begun = Instant::now();
        for query in
            ["sort_by(@, &@)", "[?contains([1, 2], @)]", "[*].[@, @, @]", "[?@ == `1`] | length(@)", "map(&[@], @)[]"]
        {
            drop(of(query, &numbers));
        }
        let nested = "[".repeat(120) + &"]".repeat(120);
        let flat = "@".to_owned() + &"[]".repeat(100);
        drop((of(&flat, &nested), of(&"a.".repeat(120), &nested)));
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn data_may_be_text_that_holds_json() {
        for data in [r#"{"a":[1,2]}"#, r#""{\"a\":[1,2]}""#] {
            let arguments = raw(&format!(r#"{{"query":"a[1]","data":{data}}}"#));
            let answer = JsonQuery::new().call(&arguments, &context(Duration::from_secs(1))).await.unwrap();
            assert_eq!(answer.structured.unwrap().get(), "2");
        }
        let plain = raw(r#"{"query":"length(@)","data":"four"}"#);
        let answer = JsonQuery::new().call(&plain, &context(Duration::from_secs(1))).await.unwrap();
        assert_eq!(answer.structured.unwrap().get(), "4");
    }
}
