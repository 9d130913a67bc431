//! Calls that are written as in Python: names, and arguments by keyword that are literals.

use super::call::{is_of_name, quoted};
use super::reading::{Miss, Read};
use crate::llm::ModelCall;

/// How deeply a literal may be nested.
const MAX_DEPTH: usize = 32;

/// The calls of a list at the front of a text, and what follows it.
pub(super) fn list(text: &str) -> Read<(Vec<ModelCall>, &str)> {
    let mut scan = Scan(text);
    scan.eat('[')?;
    let calls = scan.separated(']', Scan::call)?;
    Ok((calls, scan.0))
}

/// The call at the front of a text, and what follows it.
pub(super) fn lone(text: &str) -> Read<(Vec<ModelCall>, &str)> {
    let mut scan = Scan(text);
    let call = scan.call()?;
    Ok((vec![call], scan.0))
}

/// What is left to read.
struct Scan<'t>(&'t str);

impl<'t> Scan<'t> {
    fn peek(&mut self) -> Read<char> {
        self.0 = self.0.trim_start();
        self.0.chars().next().ok_or(Miss::Cut)
    }

    fn eats(&mut self, c: char) -> Read<bool> {
        let is_next = self.peek()? == c;
        if is_next {
            self.0 = &self.0[c.len_utf8()..];
        }
        Ok(is_next)
    }

    fn eat(&mut self, c: char) -> Read<()> {
        if self.eats(c)? { Ok(()) } else { Err(Miss::No) }
    }

    /// Items up to a closing, with a comma between two of them and perhaps behind the last.
    fn separated<T>(&mut self, closing: char, mut item: impl FnMut(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        let mut items = Vec::new();
        loop {
            if self.eats(closing)? {
                return Ok(items);
            }
            items.push(item(self)?);
            if !self.eats(',')? {
                self.eat(closing)?;
                return Ok(items);
            }
        }
    }

    fn name(&mut self) -> Read<&'t str> {
        let first = self.peek()?;
        if !(first.is_ascii_alphabetic() || first == '_') {
            return Err(Miss::No);
        }
        let end = self.0.find(|c: char| !is_of_name(c)).unwrap_or(self.0.len());
        let (name, rest) = self.0.split_at(end);
        self.0 = rest;
        Ok(name)
    }

    fn call(&mut self) -> Read<ModelCall> {
        let name = self.name()?.to_owned();
        self.eat('(')?;
        let arguments = self.separated(')', |scan| {
            let name = scan.name()?;
            scan.eat('=')?;
            Ok(format!("{}:{}", quoted(name), scan.literal(0)?))
        })?;
        Ok(ModelCall { name, arguments: format!("{{{}}}", arguments.join(",")) })
    }

    /// A literal as JSON.
    fn literal(&mut self, depth: usize) -> Read<String> {
        if depth > MAX_DEPTH {
            return Err(Miss::No);
        }
        match self.peek()? {
            quote @ ('"' | '\'') => self.text(quote).map(|text| quoted(&text)),
            opening @ ('[' | '(') => {
                self.eat(opening)?;
                let closing = if opening == '[' { ']' } else { ')' };
                let items = self.separated(closing, |scan| scan.literal(depth + 1))?;
                Ok(format!("[{}]", items.join(",")))
            }
            '{' => {
                self.eat('{')?;
                let members = self.separated('}', |scan| {
                    let quote = scan.peek()?;
                    if !matches!(quote, '"' | '\'') {
                        return Err(Miss::No);
                    }
                    let key = scan.text(quote)?;
                    scan.eat(':')?;
                    Ok(format!("{}:{}", quoted(&key), scan.literal(depth + 1)?))
                })?;
                Ok(format!("{{{}}}", members.join(",")))
            }
            _ => self.word(),
        }
    }

    /// A number, or one of the words that have a value.
    fn word(&mut self) -> Read<String> {
        let is_of_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.' | '_');
        let (word, rest) = self.0.split_at(self.0.find(|c: char| !is_of_word(c)).unwrap_or(self.0.len()));
        self.0 = rest;
        if rest.is_empty() {
            return Err(Miss::Cut);
        }
        let value = match word {
            "True" | "true" => "true".to_owned(),
            "False" | "false" => "false".to_owned(),
            "None" | "null" => "null".to_owned(),
            number => number.replace('_', ""),
        };
        serde_json::from_str::<serde_json::Value>(&value).map(|_| value).map_err(|_| Miss::No)
    }

    /// A text between quotes, one or three on each side.
    fn text(&mut self, quote: char) -> Read<String> {
        let triple = quote.to_string().repeat(3);
        let end = if self.0.starts_with(&triple) { triple } else { quote.to_string() };
        let mut rest = &self.0[end.len()..];
        let mut text = String::new();
        loop {
            if let Some(after) = rest.strip_prefix(&end) {
                self.0 = after;
                return Ok(text);
            }
            let mut chars = rest.chars();
            match chars.next().ok_or(Miss::Cut)? {
                '\n' if end.len() == 1 => return Err(Miss::No),
                '\\' => match chars.next().ok_or(Miss::Cut)? {
                    '\n' => {}
                    'n' => text.push('\n'),
                    't' => text.push('\t'),
                    'r' => text.push('\r'),
                    '0' => text.push('\0'),
                    c @ ('x' | 'u' | 'U') => {
                        let digits = match c {
                            'x' => 2,
                            'u' => 4,
                            _ => 8,
                        };
                        let miss = if chars.as_str().len() < digits { Miss::Cut } else { Miss::No };
                        let code = chars.as_str().get(..digits).ok_or(miss)?;
                        text.push(u32::from_str_radix(code, 16).ok().and_then(char::from_u32).ok_or(Miss::No)?);
                        chars = chars.as_str()[digits..].chars();
                    }
                    c @ ('\\' | '\'' | '"') => text.push(c),
                    c => text.extend(['\\', c]),
                },
                c => text.push(c),
            }
            rest = chars.as_str();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_become_json() {
        for (python, json) in [
            ("1", "1"),
            ("-2.5e3", "-2.5e3"),
            ("1_000", "1000"),
            ("True", "true"),
            ("None", "null"),
            ("'it\\'s'", "\"it's\""),
            ("\"a\\n\\u00e9\\x41\"", "\"a\\néA\""),
            ("'''two\nlines'''", "\"two\\nlines\""),
            ("[1, 'a', (2,)]", "[1,\"a\",[2]]"),
            ("{'a': {'b': []}}", "{\"a\":{\"b\":[]}}"),
        ] {
            let text = format!("f(x={python}) rest");
            let (calls, rest) = lone(&text).unwrap();
            assert_eq!((calls[0].arguments.as_str(), rest), (format!("{{\"x\":{json}}}").as_str(), " rest"));
        }
        for wrong in ["f(x=y)", "f(1)", "f(x=)", "f x", "(x=1)", "f(x='a\nb')", "f(x=1 y=2)", "f(x=é)", "f(x='\\xyz')"]
        {
            assert_eq!(lone(wrong), Err(Miss::No), "{wrong}");
        }
        for cut in
            ["", "f", "f(", "f(x", "f(x=", "f(x='a)", "f(x=1", "f(x=tr", "f(x='\\u00", "f(x=\"\"", "f(x=1,", "f(x={'a'"]
        {
            assert_eq!(lone(cut), Err(Miss::Cut), "{cut}");
        }
        let deep = format!("f(x={}1{})", "[".repeat(99), "]".repeat(99));
        assert_eq!(lone(&deep), Err(Miss::No));
    }
}
