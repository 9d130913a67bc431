//! Follows a JSON value character by character, to its end or to the first character that is not JSON.

/// How deeply a value may be nested; more could not be decoded.
const MAX_DEPTH: usize = 128;

/// The members that a call may have.
const MEMBERS: [&str; 6] = ["name", "arguments", "parameters", "function", "type", "id"];

/// What a character makes of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scanned {
    /// The value continues.
    More,
    /// The value ends with this character.
    End,
    /// This character cannot be part of the value.
    Bad,
}

/// An object or array in the making. Literals are not checked here; decoding the value does that.
#[derive(Debug, Default)]
pub struct JsonScan {
    within: Vec<Container>,
    next: Next,
    /// The member name being read, if it is one of what may be a call.
    member: Option<String>,
    not_a_call: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Container {
    Object,
    Array,
}

/// What may come next.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Next {
    #[default]
    Value,
    /// A value, or the end of an array that is still empty.
    ValueOrEnd,
    /// A member's name, or the end of an object that is still empty.
    NameOrEnd,
    Name,
    Colon,
    CommaOrEnd,
    InString,
    Escaped,
    InName,
    EscapedInName,
    InLiteral,
}

impl JsonScan {
    /// Takes the next character; the first one must open an object or an array.
    pub fn step(&mut self, c: char) -> Scanned {
        match self.next {
            Next::InString | Next::Escaped | Next::InName | Next::EscapedInName => return self.in_quotes(c),
            Next::InLiteral if c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.') => return Scanned::More,
            Next::InLiteral => self.next = Next::CommaOrEnd,
            Next::Value | Next::ValueOrEnd | Next::NameOrEnd | Next::Name | Next::Colon | Next::CommaOrEnd => {}
        }
        if matches!(c, ' ' | '\t' | '\r' | '\n') {
            return Scanned::More;
        }
        let container = self.within.last().copied();
        match (self.next, c) {
            (Next::Value | Next::ValueOrEnd, '{' | '[' | '"' | '-' | '0'..='9' | 't' | 'f' | 'n') => self.value(c),
            (Next::Name | Next::NameOrEnd, '"') => {
                self.member = self.names_members_of_a_call().then(String::new);
                self.then(Next::InName)
            }
            (Next::CommaOrEnd, ',') if container == Some(Container::Object) => self.then(Next::Name),
            (Next::Colon, ':') | (Next::CommaOrEnd, ',') => self.then(Next::Value),
            (Next::CommaOrEnd | Next::NameOrEnd, '}') if container == Some(Container::Object) => self.close(),
            (Next::CommaOrEnd | Next::ValueOrEnd, ']') if container == Some(Container::Array) => self.close(),
            _ => Scanned::Bad,
        }
    }

    /// Whether it can still become a call or an array of calls.
    #[must_use]
    pub fn may_be_call(&self) -> bool {
        !self.not_a_call
    }

    fn value(&mut self, c: char) -> Scanned {
        // An array of calls holds objects.
        self.not_a_call |= self.within == [Container::Array] && c != '{';
        let (container, next) = match c {
            '{' => (Container::Object, Next::NameOrEnd),
            '[' => (Container::Array, Next::ValueOrEnd),
            '"' => return self.then(Next::InString),
            _ => return self.then(Next::InLiteral),
        };
        if self.within.len() == MAX_DEPTH {
            return Scanned::Bad;
        }
        self.within.push(container);
        self.then(next)
    }

    fn in_quotes(&mut self, c: char) -> Scanned {
        let in_name = matches!(self.next, Next::InName | Next::EscapedInName);
        match (self.next, c) {
            (_, '\0'..='\x1f') => return Scanned::Bad,
            (Next::Escaped, _) => self.next = Next::InString,
            (Next::EscapedInName, _) => self.next = Next::InName,
            (Next::InName, '\\') => self.next = Next::EscapedInName,
            (_, '\\') => self.next = Next::Escaped,
            (Next::InName, '"') => self.next = Next::Colon,
            (_, '"') => self.next = Next::CommaOrEnd,
            (_, _) => {}
        }
        if in_name && let Some(name) = &mut self.member {
            let complete = self.next == Next::Colon;
            if !complete {
                name.push(c);
            }
            let fits = |member: &&str| if complete { *member == name } else { member.starts_with(name.as_str()) };
            self.not_a_call |= !MEMBERS.iter().any(fits);
        }
        Scanned::More
    }

    fn names_members_of_a_call(&self) -> bool {
        matches!(*self.within, [Container::Object] | [Container::Array, Container::Object])
    }

    fn close(&mut self) -> Scanned {
        self.within.pop();
        self.next = Next::CommaOrEnd;
        if self.within.is_empty() { Scanned::End } else { Scanned::More }
    }

    fn then(&mut self, next: Next) -> Scanned {
        self.next = next;
        Scanned::More
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(text: &str) -> (usize, Scanned, bool) {
        let mut scan = JsonScan::default();
        let mut last = Scanned::More;
        let read = text.chars().take_while(|&c| {
            let before = last;
            if before == Scanned::More {
                last = scan.step(c);
            }
            before == Scanned::More
        });
        (read.count(), last, scan.may_be_call())
    }

    #[test]
    fn a_json_value_is_read_up_to_its_end() {
        for text in [
            "{}",
            "[]",
            r#"{ "name" : "a}\"", "arguments" : { "x": [1, -2.5e3, true, null, [], {}] } }"#,
            r#"[{"name": "\\"}, {"id": 1}]"#,
        ] {
            assert_eq!(scan(&format!("{text} }}")), (text.chars().count(), Scanned::End, true), "{text}");
        }
    }

    #[test]
    fn invalid_json_is_noticed_without_waiting_for_more() {
        for (text, at) in [
            ("{x", 2),
            ("[Note", 2),
            ("{\"a\":}", 6),
            ("{\"a\" 1", 6),
            ("[1,]", 4),
            ("{\"a\": \"\n", 8),
            ("[}", 2),
            ("[1 2", 4),
        ] {
            let (read, scanned, _) = scan(text);
            assert_eq!((read, scanned), (at, Scanned::Bad), "{text}");
        }
        assert_eq!(scan(&"[".repeat(200)).0, 129);
    }

    #[test]
    fn json_that_is_no_call_is_noticed_without_waiting_for_more() {
        for (text, may_be) in [
            ("{\"na", true),
            ("{\"nam\"", false),
            ("{\"x", false),
            ("{\"name\": {\"x\": 1}, \"ar", true),
            ("{\"name\": \"x\", \"age", false),
            ("[{\"name\"", true),
            ("[{\"x", false),
            ("[1", false),
            ("[[", false),
        ] {
            assert_eq!(scan(text).2, may_be, "{text}");
        }
    }
}
