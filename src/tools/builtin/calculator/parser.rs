//! Reads an expression and evaluates it on the way.
//!
//! ```text
//! sum     = product { ("+" | "-") product }
//! product = signed { ("*" | "/" | "%") signed }
//! signed  = ("+" | "-") signed | power
//! power   = atom [ ("^" | "**") signed ]          so -2^2 is -4 and 2^-1 is 0.5
//! atom    = number | constant | function "(" sum { "," sum } ")" | "(" sum ")"
//! ```

use super::function;
use super::number::{Number, TOO_LARGE};

/// How deeply parts may lie within each other: each level takes the stack a few calls deeper.
const MAX_DEPTH: usize = 64;

/// The value of an expression; or one sentence on what is wrong with it.
pub(super) fn evaluate(expression: &str) -> Result<Number, String> {
    let characters = expression.chars().map(plain).collect();
    let mut parser = Parser { characters, position: 0, depth: 0, comma_separates: false };
    let value = parser.sum()?;
    match parser.peek() {
        None => Ok(value),
        Some(',') => Err(format!("The comma at character {} does not separate thousands.", parser.position + 1)),
        Some(_) => Err(parser.unexpected("the end")),
    }
}

/// Typographic operators as they are typed.
fn plain(character: char) -> char {
    match character {
        '×' | '·' | '⋅' | '∗' => '*',
        '÷' | '∕' => '/',
        '−' | '–' => '-',
        other => other,
    }
}

struct Parser {
    characters: Vec<char>,
    position: usize,
    depth: usize,
    /// Whether a comma separates arguments here, and not thousands.
    comma_separates: bool,
}

impl Parser {
    fn sum(&mut self) -> Result<Number, String> {
        let mut value = self.product()?;
        loop {
            value = match self.peek() {
                Some('+') => value.add(self.skip(1).product()?)?,
                Some('-') => value.subtract(self.skip(1).product()?)?,
                _ => return Ok(value),
            };
        }
    }

    fn product(&mut self) -> Result<Number, String> {
        let mut value = self.signed()?;
        loop {
            value = match self.peek() {
                Some('*') => value.multiply(self.skip(1).signed()?)?,
                Some('/') => value.divide(self.skip(1).signed()?)?,
                Some('%') => value.remainder(self.skip(1).signed()?)?,
                _ => return Ok(value),
            };
        }
    }

    fn signed(&mut self) -> Result<Number, String> {
        self.deeper(|parser| match parser.peek() {
            Some('+') => parser.skip(1).signed(),
            Some('-') => Ok(parser.skip(1).signed()?.negate()),
            _ => parser.power(),
        })
    }

    fn power(&mut self) -> Result<Number, String> {
        let base = self.atom()?;
        let operator = match self.peek() {
            Some('^') => 1,
            Some('*') if self.characters.get(self.position + 1) == Some(&'*') => 2,
            _ => return Ok(base),
        };
        base.power(self.skip(operator).signed()?)
    }

    fn atom(&mut self) -> Result<Number, String> {
        match self.peek() {
            Some('(') => self.skip(1).within(false, |parser| {
                let value = parser.sum()?;
                parser.expect(')')?;
                Ok(value)
            }),
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(),
            Some(c) if c.is_alphabetic() => self.named(),
            _ => Err(self.unexpected("a number")),
        }
    }

    fn named(&mut self) -> Result<Number, String> {
        let name = self.take_while(|c| c.is_alphanumeric() || c == '_').to_lowercase();
        let called = self.peek() == Some('(');
        if let Some(value) = function::constant(&name) {
            return Ok(value);
        }
        match (function::exists(&name), called) {
            (true, true) => {}
            (true, false) => return Err(format!("`{name}` needs its arguments in parentheses.")),
            (false, true) => return Err(format!("`{name}` is not a known function.")),
            (false, false) => return Err(format!("`{name}` is not a known name.")),
        }
        let arguments = self.skip(1).within(true, |parser| {
            let mut arguments = vec![parser.sum()?];
            while parser.peek() == Some(',') {
                arguments.push(parser.skip(1).sum()?);
            }
            parser.expect(')')?;
            Ok(arguments)
        })?;
        function::apply(&name, &arguments)
    }

    /// Digits, perhaps in groups, a fraction and an exponent: `1,234.5`, `1_000`, `.5`, `2e-3`.
    fn number(&mut self) -> Result<Number, String> {
        let start = self.position;
        let mut digits = self.take_while(|c| c.is_ascii_digit());
        while let Some(length) = self.group(&digits, start) {
            digits.push_str(&self.characters[self.position + 1..self.position + length].iter().collect::<String>());
            self.position += length;
        }
        let mut exponent = 0;
        if self.characters.get(self.position) == Some(&'.') {
            self.position += 1;
            let fraction = self.take_while(|c| c.is_ascii_digit());
            exponent -= i32::try_from(fraction.len()).expect("an expression is short");
            digits.push_str(&fraction);
        }
        if digits.is_empty() {
            self.position = start;
            return Err(self.unexpected("a number"));
        }
        if let Some(written) = self.exponent() {
            exponent = exponent.saturating_add(written?);
        }
        let exact = digits.parse().ok().and_then(|digits| Number::decimal(digits, exponent));
        match exact {
            Some(number) => Ok(number),
            None => Number::real(format!("{digits}e{exponent}").parse().unwrap_or(f64::INFINITY), TOO_LARGE),
        }
    }

    /// The length of a separator and the digits that continue the number after it.
    fn group(&self, digits: &str, start: usize) -> Option<usize> {
        let rest = self.characters.get(self.position..)?;
        let following = rest.iter().skip(1).take_while(|c| c.is_ascii_digit()).count();
        let after_groups_only = self.characters[start..self.position].contains(&',') || digits.len() <= 3;
        match rest.first()? {
            '_' if following > 0 && !digits.is_empty() => Some(following + 1),
            ',' if !self.comma_separates && following == 3 && after_groups_only && !digits.is_empty() => Some(4),
            _ => None,
        }
    }

    /// `e` and an integer, if that is what comes; an `e` alone is left where it is.
    fn exponent(&mut self) -> Option<Result<i32, String>> {
        let rest = &self.characters[self.position..];
        if !matches!(rest.first(), Some('e' | 'E')) {
            return None;
        }
        let signed = usize::from(matches!(rest.get(1), Some('+' | '-')));
        if !rest.get(1 + signed).is_some_and(char::is_ascii_digit) {
            return None;
        }
        let negative = rest.get(1) == Some(&'-');
        self.position += 1 + signed;
        let digits = self.take_while(|c| c.is_ascii_digit());
        let value = digits.parse::<i32>().map_err(|_| TOO_LARGE.to_owned());
        Some(value.map(|value| if negative { -value } else { value }))
    }

    /// Runs `part` where commas mean something else, as they do between parentheses.
    fn within<T>(
        &mut self,
        comma_separates: bool,
        part: impl FnOnce(&mut Self) -> Result<T, String>,
    ) -> Result<T, String> {
        let outside = std::mem::replace(&mut self.comma_separates, comma_separates);
        let result = self.deeper(part);
        self.comma_separates = outside;
        result
    }

    fn deeper<T>(&mut self, part: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("The expression is nested more than {MAX_DEPTH} levels deep."));
        }
        let result = part(self);
        self.depth -= 1;
        result
    }

    /// The next character that is no space.
    fn peek(&mut self) -> Option<char> {
        while self.characters.get(self.position)?.is_whitespace() {
            self.position += 1;
        }
        self.characters.get(self.position).copied()
    }

    fn skip(&mut self, count: usize) -> &mut Self {
        self.position += count;
        self
    }

    fn take_while(&mut self, allowed: impl Fn(char) -> bool) -> String {
        let taken: String = self.characters[self.position..].iter().copied().take_while(|&c| allowed(c)).collect();
        self.position += taken.chars().count();
        taken
    }

    fn expect(&mut self, wanted: char) -> Result<(), String> {
        if self.peek() == Some(wanted) {
            self.position += 1;
            return Ok(());
        }
        Err(self.unexpected(&format!("`{wanted}`")))
    }

    fn unexpected(&mut self, wanted: &str) -> String {
        match self.peek() {
            None => format!("The expression ends where {wanted} was expected."),
            Some(found) => format!("Unexpected `{found}` at character {}.", self.position + 1),
        }
    }
}
