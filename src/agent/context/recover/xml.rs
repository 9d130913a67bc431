//! Calls that are written with tags, in the manner of XML but without its escapes.

use serde_json::value::RawValue;

use super::call::{is_of_name, quoted};
use super::reading::{Miss, Read, after, around, either, value};
use crate::llm::ModelCall;

/// How many values may be read in two ways before only two readings of all of them are tried.
const MOST_AMBIGUOUS: usize = 4;
/// At how many later closings a value is taken to end where that may be. The first of them alone, so that what was found of the
/// beginning of a text holds for all of it.
const MOST_CLOSINGS: usize = 4;

/// A call as it is written: values bear no types.
#[derive(Debug, PartialEq)]
pub(super) struct Written<'t> {
    name: &'t str,
    /// Names and values, or all of them as one JSON object.
    arguments: Arguments<'t>,
    /// What ends a value.
    closing: &'static str,
    /// The text from the beginning of each value on.
    tails: Vec<&'t str>,
}

#[derive(Debug, PartialEq)]
enum Arguments<'t> {
    Object(&'t str),
    Values(Vec<(&'t str, &'t str)>),
}

/// How a call and its values are tagged.
struct Tags {
    opening: &'static str,
    /// What stands behind the name.
    after_name: &'static [&'static str],
    closing: &'static str,
    value: &'static str,
    after_value_name: &'static [&'static str],
    value_closing: &'static str,
}

const QUOTED: &[&str] = &["\">", "'>"];

/// In the order in which they are tried.
const TAGS: [Tags; 2] = [
    Tags {
        opening: "<invoke name=",
        after_name: QUOTED,
        closing: "</invoke>",
        value: "<parameter name=",
        after_value_name: QUOTED,
        value_closing: "</parameter>",
    },
    Tags {
        opening: "<function=",
        after_name: &[">"],
        closing: "</function>",
        value: "<parameter=",
        after_value_name: &[">"],
        value_closing: "</parameter>",
    },
];

/// The call at the front of a text, and what follows it.
pub(super) fn read(text: &str) -> Read<(Written<'_>, &str)> {
    let mut miss = Miss::No;
    for tags in &TAGS {
        match tagged(text, tags) {
            Ok(read) => return Ok(read),
            Err(also) => miss = miss.max(also),
        }
    }
    Err(miss)
}

fn tagged<'t>(text: &'t str, tags: &Tags) -> Read<(Written<'t>, &'t str)> {
    let (name, mut rest) = named(after(text, tags.opening)?, tags.after_name)?;
    rest = rest.trim_start();
    if rest.starts_with('{') {
        let (object, rest) = value(rest)?;
        let rest = after(rest.trim_start(), tags.closing)?;
        return Ok((
            Written { name, arguments: Arguments::Object(object), closing: tags.closing, tails: Vec::new() },
            rest,
        ));
    }
    let (mut values, mut tails) = (Vec::new(), Vec::new());
    loop {
        let key = match after(rest, tags.closing) {
            Ok(rest) => {
                let written =
                    Written { name, arguments: Arguments::Values(values), closing: tags.value_closing, tails };
                return Ok((written, rest));
            }
            Err(miss) => either(Err(miss), || after(rest, tags.value))?,
        };
        let (key, tail) = named(key, tags.after_value_name)?;
        let (value, behind) = around(tail, tags.value_closing)?;
        tails.push(tail);
        values.push((key, value));
        rest = behind.trim_start();
    }
}

/// A name up to what stands behind it, and what follows that. Quotes around the name are no part of it.
fn named<'t>(text: &'t str, behind: &[&str]) -> Read<(&'t str, &'t str)> {
    let text = text.trim_start_matches(['"', '\'']);
    let (name, rest) = name(text)?;
    let mut miss = Miss::No;
    for behind in behind {
        match after(rest, behind) {
            Ok(rest) => return Ok((name, rest)),
            Err(also) => miss = miss.max(also),
        }
    }
    Err(miss)
}

fn name(text: &str) -> Read<(&str, &str)> {
    match text.find(|c: char| !is_of_name(c)) {
        None => Err(Miss::Cut),
        Some(0) => Err(Miss::No),
        Some(end) => Ok(text.split_at(end)),
    }
}

/// A call in brackets whose values follow their keys: `add <arg_key>a</arg_key> <arg_value>1</arg_value>`. One without
/// values is alone in its brackets.
pub(super) fn keyed(text: &str) -> Read<(Written<'_>, &str)> {
    let (name, rest) = name(text)?;
    let (mut rest, mut values, mut tails) = (rest.trim_start(), Vec::new(), Vec::new());
    loop {
        match after(rest, "<arg_key>") {
            Ok(key) => {
                let (key, rest_of_it) = around(key, "</arg_key>")?;
                let tail = after(rest_of_it.trim_start(), "<arg_value>")?;
                let (value, behind) = around(tail, "</arg_value>")?;
                tails.push(tail);
                values.push((key, value));
                rest = behind.trim_start();
            }
            Err(Miss::Cut) if values.is_empty() => return Err(Miss::Cut),
            Err(_) => break,
        }
    }
    if values.is_empty() {
        after(rest, "</tool_call>")?;
    }
    Ok((Written { name, arguments: Arguments::Values(values), closing: "</arg_value>", tails }, rest))
}

impl Written<'_> {
    /// What else it may mean where `rest` follows: values bear no escapes, so one of them may go on to a later closing, and all
    /// between be its text.
    pub(super) fn longer_readings(&self, rest: &str) -> impl Iterator<Item = ModelCall> {
        let values: &[_] = match &self.arguments {
            Arguments::Values(values) => values,
            Arguments::Object(_) => &[],
        };
        let ends = rest.match_indices(self.closing).take(MOST_CLOSINGS).map(|(end, _)| end);
        ends.flat_map(move |end| {
            self.tails.iter().enumerate().flat_map(move |(longer, tail)| {
                let mut values = values.to_vec();
                values[longer].1 = &tail[..tail.len() - rest.len() + end];
                let (arguments, tails) = (Arguments::Values(values), Vec::new());
                Written { name: self.name, arguments, closing: self.closing, tails }.readings()
            })
        })
    }

    /// Whether one of its values may be any text, in a call that its tool takes.
    pub(super) fn may_hold_text(&self, is_call: impl Fn(&ModelCall) -> bool) -> bool {
        let Arguments::Values(values) = &self.arguments else { return false };
        let ambiguous = values.iter().filter(|(_, value)| as_json(value).is_some()).count();
        // The first reading takes all for JSON that can be, and each other one takes some of it for text.
        ambiguous < values.len() || ambiguous > MOST_AMBIGUOUS || self.readings().iter().skip(1).any(is_call)
    }

    /// The calls that it may mean, the likeliest first: what can be read as JSON is taken for that, and else for text.
    pub(super) fn readings(&self) -> Vec<ModelCall> {
        let call = |arguments| ModelCall { name: self.name.to_owned(), arguments };
        let values = match &self.arguments {
            Arguments::Object(object) => return vec![call((*object).to_owned())],
            Arguments::Values(values) => values,
        };
        let ambiguous = values.iter().filter(|(_, value)| as_json(value).is_some()).count();
        let readings: Vec<u32> = match ambiguous {
            0 => vec![0],
            _ if ambiguous > MOST_AMBIGUOUS => vec![0, u32::MAX],
            _ => (0..1 << ambiguous).collect(),
        };
        readings.into_iter().map(|texts| call(object(values, texts))).collect()
    }
}

/// The values as an object. Of those that are JSON too, a bit of `texts` says that it is taken for text.
fn object(values: &[(&str, &str)], mut texts: u32) -> String {
    let member = |(key, value): &(&str, &str)| {
        let json = as_json(value).filter(|_| {
            let is_text = texts & 1 == 1;
            texts >>= 1;
            !is_text
        });
        let text = value.strip_prefix('\n').unwrap_or(value);
        let text = text.strip_suffix('\n').unwrap_or(text);
        let value = json.map_or_else(|| quoted(text), str::to_owned);
        format!("{}:{value}", quoted(key))
    };
    format!("{{{}}}", values.iter().map(member).collect::<Vec<_>>().join(","))
}

fn as_json(value: &str) -> Option<&str> {
    serde_json::from_str::<&RawValue>(value).ok().map(RawValue::get)
}
