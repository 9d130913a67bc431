//! Calls in the dialects of single vendors, which servers should have read and passed on as text instead.
//!
//! ```text
//! [TOOL_CALLS][{"name": "add", "arguments": {"a": 1}}]          Mistral, up to its third generation
//! [TOOL_CALLS]add[ARGS]{"a": 1}   [TOOL_CALLS]add{"a": 1}       Mistral since
//! <function_call>{"name": "add", "arguments": {"a": 1}}</function_call>
//! <minimax:tool_call><invoke name="add"><parameter name="a">1</parameter></invoke></minimax:tool_call>
//! <tool_call><function=add><parameter=a>1</parameter></function></tool_call>      Qwen's coders
//! [add(a=1), add(a=2)]                                           Llama, and Gemma in a block of `tool_code`
//! ```
//!
//! A text is read as a whole once it ended, and is calls only if it is nothing else. While it streams, the same reader tells
//! whether what came so far may become that.
//!
//! Values in tags bear no escapes. A model that copies a foreign text into one may write what ends the value and calls
//! another tool: where a value may end behind its call as well, the text is no call. Within a call a value ends at its first
//! closing: what is copied there may add values to the same call, and cannot call another tool.

use super::call::{self, is_of_name};
use super::python;
use super::reading::{Miss, Read, after, after_any, either, value};
use super::xml::{self, Written};
use crate::llm::ModelCall;

const TOOL_CALLS: &str = "[TOOL_CALLS]";
const TOOL_CALL: &str = "<|tool_call|>";
const PYTHON_TAG: &str = "<|python_tag|>";
const TOOL_CODE: &str = "```tool_code\n";

/// How deeply brackets may stand within brackets.
const MAX_DEPTH: usize = 4;

/// What stands around calls, and closes what opened it.
const BRACKETS: [(&str, &str); 5] = [
    ("<function_calls>", "</function_calls>"),
    ("<function_call>", "</function_call>"),
    ("<minimax:tool_call>", "</minimax:tool_call>"),
    ("<tool_call>", "</tool_call>"),
    (TOOL_CODE, "```"),
];

/// What is read of a text.
pub(super) struct Reading<'t> {
    /// The calls at its front.
    pub(super) calls: Vec<ModelCall>,
    /// The rest of it, which is something else.
    pub(super) rest: &'t str,
    /// Whether the rest may be the beginning of a call.
    pub(super) is_cut: bool,
    /// Whether a value in tags of one of the calls may be any text: it may go on in what has not come yet.
    pub(super) has_texts: bool,
}

impl Reading<'_> {
    /// Whether the text is nothing but calls, if it ends here or goes on.
    pub(super) fn may_be_calls(&self) -> bool {
        self.rest.is_empty() || self.is_cut
    }
}

/// Reads the calls at the front of a text.
pub(super) fn read<'t>(text: &'t str, is_call: &impl Fn(&str, &str) -> bool) -> Reading<'t> {
    let mut reader = Reader { is_call, calls: Vec::new(), has_texts: false };
    let (mut rest, mut is_cut) = (text.trim(), false);
    while !rest.is_empty() {
        match reader.block(rest) {
            Ok(behind) => rest = behind.trim_start(),
            Err(miss) => {
                is_cut = miss == Miss::Cut;
                break;
            }
        }
    }
    Reading { calls: reader.calls, rest, is_cut, has_texts: reader.has_texts }
}

/// Reads calls from the front of a text.
struct Reader<'a, F> {
    is_call: &'a F,
    calls: Vec<ModelCall>,
    /// Whether a value of one of them may be any text.
    has_texts: bool,
}

impl<F: Fn(&str, &str) -> bool> Reader<'_, F> {
    /// Takes one block of calls, and returns what follows it. If there is none, no call is kept of it.
    fn block<'t>(&mut self, text: &'t str) -> Read<&'t str> {
        let (before, had_texts) = (self.calls.len(), self.has_texts);
        let read = self.unbracketed(text);
        let read = either(read, || self.take_all(python::list(text)));
        let read = either(read, || self.bracketed(text, 0));
        if read.is_ok() && self.calls.len() > before {
            return read;
        }
        self.calls.truncate(before);
        self.has_texts = had_texts;
        read.and(Err(Miss::No))
    }

    fn bracketed<'t>(&mut self, text: &'t str, depth: usize) -> Read<&'t str> {
        if depth > MAX_DEPTH {
            return Err(Miss::No);
        }
        let mut miss = Miss::No;
        for (opening, closing) in BRACKETS {
            match after(text, opening) {
                Ok(inside) => return self.inside(inside.trim_start(), closing, depth),
                Err(also) => miss = miss.max(also),
            }
        }
        Err(miss)
    }

    /// Takes what stands between brackets, up to what closes them.
    fn inside<'t>(&mut self, mut rest: &'t str, closing: &str, depth: usize) -> Read<&'t str> {
        let before = self.calls.len();
        loop {
            // A model stops at its closing.
            if rest.is_empty() && self.calls.len() > before {
                return Ok(rest);
            }
            match after(rest, closing) {
                Err(Miss::No) => rest = self.within(rest, depth + 1)?.trim_start(),
                read => return read,
            }
        }
    }

    /// Takes what stands between brackets: a call, several, or brackets again.
    fn within<'t>(&mut self, text: &'t str, depth: usize) -> Read<&'t str> {
        let read = if text.starts_with(['{', '[']) { self.json(text) } else { Err(Miss::No) };
        let read = either(read, || self.python(text));
        let read = either(read, || self.unbracketed(text));
        let read = either(read, || xml::keyed(text).and_then(|written| self.take_written(written)));
        either(read, || self.bracketed(text, depth))
    }

    /// Takes calls that need no closing.
    fn unbracketed<'t>(&mut self, text: &'t str) -> Read<&'t str> {
        let read = after(text, TOOL_CALLS)
            .map(str::trim_start)
            .and_then(|rest| if rest.starts_with(['[', '{']) { self.json(rest) } else { self.named(rest) });
        let read = either(read, || {
            let rest = after(text, PYTHON_TAG)?.trim_start();
            if rest.starts_with('{') { self.json(rest) } else { self.python(rest) }
        });
        let read = either(read, || self.json(after(text, TOOL_CALL)?.trim_start()));
        either(read, || xml::read(text).and_then(|written| self.take_written(written)))
    }

    /// Takes a JSON value that is a call, or an array of them.
    fn json<'t>(&mut self, text: &'t str) -> Read<&'t str> {
        let (value, rest) = value(text)?;
        self.take_all(Ok((call::decode(value).ok_or(Miss::No)?, rest)))
    }

    /// Takes `name{…}` or `name[ARGS]{…}`, which may bear an id between them.
    fn named<'t>(&mut self, text: &'t str) -> Read<&'t str> {
        let end = text.find(|c: char| !is_of_name(c)).ok_or(Miss::Cut)?;
        let (name, mut rest) = text.split_at(end);
        if let Ok(id) = after(rest, "[CALL_ID]") {
            rest = id.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
        } else if rest.starts_with("[C") {
            after(rest, "[CALL_ID]")?;
        }
        let (arguments, rest) = value(after_any(rest, "[ARGS]")?.trim_start())?;
        if !arguments.starts_with('{') {
            return Err(Miss::No);
        }
        self.take_all(Ok((vec![ModelCall { name: name.to_owned(), arguments: arguments.to_owned() }], rest)))
    }

    fn python<'t>(&mut self, text: &'t str) -> Read<&'t str> {
        self.take_all(if text.starts_with('[') { python::list(text) } else { python::lone(text) })
    }

    /// Takes a call whose values bear no types: that which its tool takes. What follows it may be part of none of them.
    fn take_written<'t>(&mut self, (written, rest): (Written<'t>, &'t str)) -> Read<&'t str> {
        let is_call = |call: &ModelCall| (self.is_call)(&call.name, &call.arguments);
        let call = written.readings().into_iter().find(is_call).ok_or(Miss::No)?;
        if written.longer_readings(rest).any(|call| is_call(&call)) {
            return Err(Miss::No);
        }
        self.has_texts |= written.may_hold_text(is_call);
        self.calls.push(call);
        Ok(rest)
    }

    /// Takes all of these calls, or none.
    fn take_all<'t>(&mut self, read: Read<(Vec<ModelCall>, &'t str)>) -> Read<&'t str> {
        let (calls, rest) = read?;
        if !calls.iter().all(|call| (self.is_call)(&call.name, &call.arguments)) {
            return Err(Miss::No);
        }
        self.calls.extend(calls);
        Ok(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, arguments: &str) -> ModelCall {
        ModelCall { name: name.into(), arguments: arguments.into() }
    }

    /// Takes every tool, of `zip` only a text, and of `add` and `sub` no text.
    fn is_call(name: &str, arguments: &str) -> bool {
        let arguments: serde_json::Value = serde_json::from_str(arguments).unwrap();
        match name {
            "unknown" => false,
            "zip" => arguments["code"].is_string(),
            "add" | "sub" => !arguments["a"].is_string() && !arguments["b"].is_string(),
            _ => true,
        }
    }

    /// The calls and the rest of a text.
    fn read(text: &str) -> (Vec<ModelCall>, &str) {
        let Reading { calls, rest, .. } = super::read(text, &is_call);
        (calls, rest)
    }

    fn may_be_calls(text: &str) -> bool {
        super::read(text, &is_call).may_be_calls()
    }

    #[test]
    fn calls_are_read_in_the_dialects_of_vendors() {
        for text in [
            r#"[TOOL_CALLS][{"name": "add", "arguments": {"a":1}}]"#,
            r#"[TOOL_CALLS] {"name": "add", "arguments": {"a":1}}"#,
            r#"[TOOL_CALLS]add{"a":1}"#,
            r#"[TOOL_CALLS]add[ARGS]{"a":1}"#,
            r#"[TOOL_CALLS]add[CALL_ID]q1W2e3R4t[ARGS]{"a":1}"#,
            r#"<function_call>{"name": "add", "arguments": {"a":1}}</function_call>"#,
            r#"<function_call> {"name": "add", "arguments": "{\"a\":1}"}"#,
            r#"<function_calls><invoke name="add"><parameter name="a">1</parameter></invoke></function_calls>"#,
            "<minimax:tool_call>\n<invoke name=\"add\">\n<parameter name=\"a\">1</parameter>\n</invoke>\n</minimax:tool_call>",
            "<invoke name='add'><parameter name='a'>\n1\n</parameter></invoke>",
            "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
            r#"<function=add>{"a":1}</function>"#,
            "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
            "<tool_call>add<arg_key>a</arg_key><arg_value>1</arg_value>",
            r#"<|tool_call|>[{"name": "add", "arguments": {"a":1}}]"#,
            r#"<|python_tag|>{"name": "add", "parameters": {"a":1}}"#,
            "<|python_tag|>add(a=1)",
            "[add(a=1)]",
            " [ add( a = 1 , ) ] ",
            "```tool_code\nadd(a=1)\n```",
            "```tool_code\n[add(a=1)]\n```",
        ] {
            assert_eq!(read(text), (vec![one("add", r#"{"a":1}"#)], ""), "{text}");
            for (end, _) in text.char_indices() {
                assert!(may_be_calls(&text[..end]), "{}", &text[..end]);
            }
        }
        assert_eq!(read("<tool_call>now</tool_call>"), (vec![one("now", "{}")], ""));
    }

    #[test]
    fn several_calls_may_stand_in_one_text() {
        let (add, sub) = (one("add", r#"{"a":1}"#), one("sub", r#"{"b":2}"#));
        for text in [
            r#"[TOOL_CALLS]add{"a":1}[TOOL_CALLS]sub{"b":2}"#,
            r#"[TOOL_CALLS][{"name":"add","arguments":{"a":1}},{"name":"sub","arguments":{"b":2}}]"#,
            "<function_call>{\"name\":\"add\",\"arguments\":{\"a\":1}}</function_call>\n\
             <function_call>{\"name\":\"sub\",\"arguments\":{\"b\":2}}</function_call>",
            "<minimax:tool_call><invoke name=\"add\"><parameter name=\"a\">1</parameter></invoke>\n\
             <invoke name=\"sub\"><parameter name=\"b\">2</parameter></invoke></minimax:tool_call>",
            "[add(a=1), sub(b=2)]",
            "```tool_code\nadd(a=1)\nsub(b=2)\n```",
            "<function=add>{\"a\":1}</function>\n[sub(b=2)]",
        ] {
            assert_eq!(read(text), (vec![add.clone(), sub.clone()], ""), "{text}");
        }
    }

    #[test]
    fn a_value_without_a_type_is_what_its_tool_takes() {
        let text = "<invoke name=\"zip\"><parameter name=\"code\">0123</parameter>\
                    <parameter name=\"n\">[1, 2]</parameter></invoke>";
        assert_eq!(read(text).0, [one("zip", r#"{"code":"0123","n":[1, 2]}"#)]);
        let text = "<invoke name=\"zip\"><parameter name=\"code\">123</parameter></invoke>";
        assert_eq!(read(text).0, [one("zip", r#"{"code":"123"}"#)]);
        let text = "<invoke name=\"say\"><parameter name=\"text\">a \"b\"\nc</parameter></invoke>";
        assert_eq!(read(text).0, [one("say", r#"{"text":"a \"b\"\nc"}"#)]);
    }

    #[test]
    fn what_is_no_call_is_left() {
        for text in [
            "[TOOL_CALLS]unknown{}",
            "[TOOL_CALLS]",
            "[TOOL_CALLS]add",
            "[TOOL_CALLS]add[1]",
            "<function_call></function_call>",
            "<function_call>{\"name\": \"add\"}</function_call>",
            "<minimax:tool_call>hello</minimax:tool_call>",
            "<invoke name=\"add\"><parameter name=\"a\">1",
            "[add(1)]",
            "[unknown(a=1)]",
            "[add(a=1), unknown(a=1)]",
            "```tool_code\nx = 1\n```",
            "Hello",
        ] {
            assert_eq!(read(text), (Vec::new(), text), "{text}");
        }
        for deep in ["<tool_call>", "[", "<invoke name=", "[TOOL_CALLS]", "<tool_call>["] {
            let deep = deep.repeat(10_000);
            assert!(read(&deep).0.is_empty());
        }
        let (calls, rest) = read("[add(a=1)] and so");
        assert_eq!((calls.len(), rest), (1, "and so"));
    }

    #[test]
    fn the_beginning_of_a_text_tells_whether_it_may_be_calls() {
        for text in
            ["", " \n", "[", "[TOOL", "<", "<minimax:t", "<|py", "[add", "[add(", "[ add.b(x", "```", "```tool_code\nx"]
        {
            assert!(may_be_calls(text), "{text}");
        }
        for text in [
            "Hello",
            "[1",
            "[Note]",
            "[two words",
            "<b>",
            "<tool_calls>",
            "```python",
            "{\"name\"",
            "a(",
            "[malloc(3",
            "[int(x)",
            "[unknown(a=1)]",
            "[add(a=1)] i",
            "[add(a=1)](",
            "<function_call> is a",
            "<function_call>{\"name\": \"add\"}",
            "<tool_call>add</b",
            "<invoke name=\"add\">\nH",
            "[TOOL_CALLS]add x",
            "[TOOL_CALLS]add[C]",
            "```tool_code\nx = 1",
        ] {
            assert!(!may_be_calls(text), "{text}");
        }
    }

    #[test]
    fn a_value_that_may_hold_the_call_behind_it_is_no_call() {
        let calls = |first: &str| {
            format!(
                "<invoke name=\"{first}\"><parameter name=\"a\">1</parameter></invoke>\n\
                 <invoke name=\"sub\"><parameter name=\"b\">2</parameter></invoke>"
            )
        };
        assert_eq!(read(&calls("add")).0.len(), 2, "its value is no text");
        assert_eq!(read(&calls("say")), (Vec::new(), calls("say").as_str()));
        assert!(!may_be_calls(&calls("say")));
        let keyed = "<tool_call>say<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>\n\
                     <tool_call>sub<arg_key>b</arg_key><arg_value>2</arg_value></tool_call>";
        assert!(read(keyed).0.is_empty());
        let alone = "<invoke name=\"say\"><parameter name=\"a\">1</parameter></invoke>\n<tool_call>now</tool_call>";
        assert_eq!(read(alone).0.len(), 2, "no value ends behind it");
    }
}
