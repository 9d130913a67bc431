//! Finds arithmetic in a sentence.

/// The functions that a calculator may know.
const FUNCTIONS: [&str; 13] =
    ["sqrt", "abs", "round", "floor", "ceil", "min", "max", "log", "ln", "exp", "sin", "cos", "tan"];

/// The expressions in a text that have something to calculate, as a calculator takes them.
pub(super) fn expressions(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut run = Run::default();
    for token in tokens(text) {
        if !run.take(token) {
            found.extend(std::mem::take(&mut run).finish());
            // A token that cannot continue one expression may begin the next.
            run.take(token);
        }
    }
    found.extend(run.finish());
    found
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Token<'a> {
    Number(&'a str),
    Operator(&'a str),
    Function(&'a str),
    Open,
    Close,
    Comma,
    Word,
}

/// Tokens that make up the beginning of an expression.
#[derive(Default)]
struct Run<'a> {
    tokens: Vec<Token<'a>>,
    open: usize,
}

impl<'a> Run<'a> {
    /// Takes a token if it can continue the expression.
    fn take(&mut self, token: Token<'a>) -> bool {
        let last = self.tokens.last();
        let after_value = matches!(last, Some(Token::Number(_) | Token::Close));
        let fits = match token {
            Token::Number(_) | Token::Function(_) => !after_value && !matches!(last, Some(Token::Function(_))),
            Token::Open => !after_value,
            Token::Operator("-") => !matches!(last, Some(Token::Function(_))),
            Token::Operator(_) => after_value,
            Token::Close | Token::Comma => after_value && self.open > 0,
            Token::Word => false,
        };
        if fits {
            match token {
                Token::Open => self.open += 1,
                Token::Close => self.open -= 1,
                Token::Number(_) | Token::Operator(_) | Token::Function(_) | Token::Comma | Token::Word => {}
            }
            self.tokens.push(token);
        }
        fits
    }

    /// The expression, if it is whole and has something to calculate.
    fn finish(mut self) -> Option<String> {
        while let Some(last) = self.tokens.pop_if(|last| !matches!(last, Token::Number(_) | Token::Close)) {
            self.open -= usize::from(last == Token::Open);
        }
        let mut before_value = true;
        let mut calculates = false;
        let mut text = String::new();
        for token in &self.tokens {
            match token {
                Token::Operator(operator) if !before_value => {
                    calculates = true;
                    text.push_str(&[" ", operator, " "].concat());
                }
                Token::Operator(part) | Token::Number(part) => text.push_str(part),
                Token::Function(name) => {
                    calculates = true;
                    text.push_str(name);
                }
                Token::Open => text.push('('),
                Token::Close => text.push(')'),
                Token::Comma => text.push_str(", "),
                Token::Word => {}
            }
            before_value = !matches!(token, Token::Number(_) | Token::Close);
        }
        (calculates && self.open == 0).then_some(text)
    }
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, length) = match first {
            '0'..='9' | '.' => number(rest),
            '*' if rest.starts_with("**") => (Token::Operator("**"), 2),
            '+' => (Token::Operator("+"), 1),
            '-' | '−' => (Token::Operator("-"), first.len_utf8()),
            '*' | '×' => (Token::Operator("*"), first.len_utf8()),
            '/' | '÷' => (Token::Operator("/"), first.len_utf8()),
            '%' => (Token::Operator("%"), 1),
            '^' => (Token::Operator("^"), 1),
            '(' => (Token::Open, 1),
            ')' => (Token::Close, 1),
            ',' => (Token::Comma, 1),
            _ => word(rest),
        };
        tokens.push(token);
        rest = rest[length..].trim_start();
    }
    tokens
}

/// The number at the beginning of a text, with thousands and fraction; a date or `3rd` is a word.
fn number(text: &str) -> (Token<'_>, usize) {
    let bytes = text.as_bytes();
    let digits = |from: usize| bytes.iter().skip(from).take_while(|byte| byte.is_ascii_digit()).count();
    let mut end = digits(0);
    while bytes.get(end) == Some(&b',') && (1..=3).contains(&digits(0)) && digits(end + 1) == 3 {
        end += 4;
    }
    if bytes.get(end) == Some(&b'.') && digits(end + 1) > 0 {
        end += 1 + digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) && digits(end + 1) > 0 {
        end += 1 + digits(end + 1);
    }
    let is_date = end == 4 && bytes.get(4) == Some(&b'-') && digits(5) == 2 && bytes.get(7) == Some(&b'-');
    let times = text[end..].starts_with('x') && digits(end + 1) > 0;
    if end == 0 || is_date || (text[end..].starts_with(char::is_alphabetic) && !times) {
        let length = text.find(|c: char| !c.is_alphanumeric() && c != '-').unwrap_or(text.len());
        return (Token::Word, length.max(1));
    }
    (Token::Number(&text[..end]), end)
}

/// A word, which may stand for an operator, a function or a constant.
fn word(text: &str) -> (Token<'_>, usize) {
    let length = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (word, rest) = text.split_at(length);
    let lower = word.to_lowercase();
    let times = word.starts_with('x') && word[1..].starts_with(|c: char| c.is_ascii_digit());
    let token = match lower.as_str() {
        "plus" => Token::Operator("+"),
        "minus" => Token::Operator("-"),
        "times" | "x" => Token::Operator("*"),
        "pi" => Token::Number(word),
        "divided" if rest.trim_start().starts_with("by ") => {
            let skipped = rest.len() - rest.trim_start().len();
            return (Token::Operator("/"), length + skipped + "by".len());
        }
        _ if times => return (Token::Operator("*"), 1),
        name if FUNCTIONS.contains(&name) && rest.starts_with('(') => Token::Function(word),
        _ => Token::Word,
    };
    // A character that is no part of any word is skipped by itself.
    (token, if length == 0 { text.chars().next().map_or(1, char::len_utf8) } else { length })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn expressions_are_found_in_sentences() {
        for (text, found) in [
            ("What is 1234 * 5678, and what time is it in Oslo?", vec!["1234 * 5678"]),
            ("2+2", vec!["2 + 2"]),
            ("Is (1 + 2)*-3 more than 2^10 - 1?", vec!["(1 + 2) * -3", "2 ^ 10 - 1"]),
            ("1,234.5 / 3 and 7 % 2.", vec!["1,234.5 / 3", "7 % 2"]),
            ("What is 12 divided by 4 plus 3 times 2 minus 1?", vec!["12 / 4 + 3 * 2 - 1"]),
            ("3 x 4, 3x4, 3×4, 6÷2, 5−1", vec!["3 * 4", "3 * 4", "3 * 4", "6 / 2", "5 - 1"]),
            ("sqrt(16) + max(1, 2) and 2 * pi", vec!["sqrt(16) + max(1, 2)", "2 * pi"]),
            ("(see 2 + 3)", vec!["2 + 3"]),
            ("1e3 * 2 = ?", vec!["1e3 * 2"]),
            ("I have 3 apples and 4 pears, -5 and 20%.", vec![]),
            ("On 2026-11-21, at 10:30, the 3rd, step-by-step with gpt-5.", vec![]),
            ("(2 + 3", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(expressions(text), found, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "[0-9a-fpix.,+*/%^()é −×\n-]{0,60}") {
            let _ = expressions(&text);
        }
    }
}
