//! `calculator`: arithmetic on an expression, exact wherever it can be.

mod function;
mod number;
mod parser;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::tools::builtin::define;
use crate::tools::{CallContext, Tool, ToolAnswer, ToolError, ToolSpec};

/// The longest expression, in characters.
const MAX_CHARS: usize = 1_000;

/// The tool.
#[derive(Debug)]
pub struct Calculator {
    spec: ToolSpec,
}

impl Calculator {
    pub(super) fn new() -> Self {
        let description = "Evaluates an arithmetic expression and returns the number. Knows + - * / % (remainder, \
            with the sign of the dividend) ^ or ** (power), parentheses, pi, e, and the functions sqrt, abs, \
            round(x, digits), floor, ceil, min, max, log (base 10, or log(x, base)), ln, exp, sin, cos, tan (radians).";
        let parameters = r#"{"type":"object","properties":{"expression":{"type":"string","description":"For example 1234 * 5678"}},"required":["expression"],"additionalProperties":false}"#;
        Self { spec: define::spec("calculator", description, parameters) }
    }
}

#[async_trait]
impl Tool for Calculator {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn only_computes(&self) -> bool {
        true
    }

    async fn call(&self, arguments: &RawValue, _: &CallContext) -> Result<ToolAnswer, ToolError> {
        #[derive(Deserialize)]
        struct Arguments {
            expression: String,
        }
        let Arguments { expression } = define::decode(arguments)?;
        evaluate(&expression).map(ToolAnswer::text).map_err(ToolError::Failed)
    }
}

/// The value of an expression, written out; or one sentence on what is wrong with it.
fn evaluate(expression: &str) -> Result<String, String> {
    if expression.chars().nth(MAX_CHARS).is_some() {
        return Err(format!("The expression is longer than {MAX_CHARS} characters."));
    }
    parser::evaluate(expression).map(|number| number.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::tools::testing::context;

    #[tokio::test]
    async fn answers_and_fails_in_words() {
        let arguments = RawValue::from_string(r#"{"expression":"1234 * 5678"}"#.into()).unwrap();
        let context = context(Duration::from_secs(1));
        assert_eq!(Calculator::new().call(&arguments, &context).await, Ok(ToolAnswer::text("7006652")));
        let arguments = RawValue::from_string(r#"{"expression":"1/0"}"#.into()).unwrap();
        let error = Calculator::new().call(&arguments, &context).await.unwrap_err();
        assert_eq!(error, ToolError::Failed("Division by zero is not defined.".into()));
    }

    #[test]
    fn expressions_have_their_values() {
        for (expression, value) in [
            ("1234 * 5678", "7006652"),
            ("7/2", "3.5"),
            ("6/2", "3"),
            ("2^100", "1267650600228229401496703205376"),
            ("2**10", "1024"),
            ("2^3^2", "512"),
            ("-2^2", "-4"),
            ("(-2)^2", "4"),
            ("2^-1", "0.5"),
            ("--3 - +1", "2"),
            ("1 - 2 - 3", "-4"),
            ("2 + 3 * 4", "14"),
            ("(2 + 3) * 4", "20"),
            ("-7 % 3", "-1"),
            ("7.5 % 2", "1.5"),
            ("0.1 + 0.2", "0.3"),
            ("19.99 * 3", "59.97"),
            (".5 + 1.", "1.5"),
            ("1e3 + 1E-3", "1000.001"),
            ("1,234,567 + 1_000", "1235567"),
            ("1,234.5 * 2", "2469"),
            ("max(1,234)", "234"),
            ("max((1,234), 2)", "1234"),
            ("min(3, 1, 2)", "1"),
            ("3 × 4 ÷ 2 − 1 · 2", "4"),
            ("1/3", "0.3333333333333333"),
            ("1/3*3", "1"),
            ("sqrt(16)", "4"),
            ("sqrt(2.25)", "1.5"),
            ("sqrt(2)", "1.4142135623730951"),
            ("2^0.5", "1.4142135623730951"),
            ("abs(-3.5)", "3.5"),
            ("round(2.5) + round(-2.5)", "0"),
            ("round(2/3, 2)", "0.67"),
            ("round(1234, -2)", "1200"),
            ("floor(-1.5)", "-2"),
            ("ceil(-1.5)", "-1"),
            ("PI", "3.141592653589793"),
            ("e", "2.718281828459045"),
            ("ln(e)", "1"),
            ("log(1000)", "3"),
            ("log(8, 2)", "3"),
            ("exp(0)", "1"),
            ("cos(0) + sin(0) + tan(0)", "1"),
            ("170141183460469231731687303715884105727 + 0", "170141183460469231731687303715884105727"),
            ("170141183460469231731687303715884105727 + 1", "1.7014118346046923e38"),
            ("10^50", "1e50"),
            ("1e21 * 1.5", "1500000000000000000000"),
            ("1/10^9", "0.000000001"),
            ("-0.0", "0"),
            ("0 * -1.0", "0"),
            ("0^0", "1"),
        ] {
            assert_eq!(evaluate(expression).as_deref(), Ok(value), "{expression}");
        }
    }

    #[test]
    fn mistakes_are_explained_in_words() {
        for (expression, reason) in [
            ("", "The expression ends where a number was expected."),
            ("1 +", "The expression ends where a number was expected."),
            ("(1", "The expression ends where `)` was expected."),
            ("1)", "Unexpected `)` at character 2."),
            ("1 2", "Unexpected `2` at character 3."),
            ("2pi", "Unexpected `p` at character 2."),
            ("1,23", "The comma at character 2 does not separate thousands."),
            ("1,2345", "The comma at character 2 does not separate thousands."),
            ("1.2.3", "Unexpected `.` at character 4."),
            ("x + 1", "`x` is not a known name."),
            ("foo(1)", "`foo` is not a known function."),
            ("sqrt 4", "`sqrt` needs its arguments in parentheses."),
            ("sqrt(1, 2)", "`sqrt` takes 1 argument, not 2."),
            ("min()", "Unexpected `)` at character 5."),
            ("1 / (2 - 2)", "Division by zero is not defined."),
            ("5 % 0", "Division by zero is not defined."),
            ("0 ^ -1", "Division by zero is not defined."),
            ("sqrt(-1)", "The square root of a negative number is not a real number."),
            ("(-8)^(1/3)", "A power of these numbers is not a real number."),
            ("ln(0)", "The logarithm is only defined for numbers above zero."),
            ("log(2, 1)", "The logarithm has no base 1."),
            ("10^400", "The result is too large."),
            ("1e400", "The result is too large."),
            ("9^9^9^9", "The result is too large."),
            ("exp(1000)", "The result is too large."),
            ("round(1, 99)", "`round` takes a whole number of digits from -30 to 30."),
            ("2 $ 3", "Unexpected `$` at character 3."),
        ] {
            assert_eq!(evaluate(expression), Err(reason.into()), "{expression}");
        }
        assert_eq!(evaluate(&"1+".repeat(501)), Err("The expression is longer than 1000 characters.".into()));
        for deep in ["(".repeat(500), "-".repeat(999) + "1", "2^".repeat(400) + "1", "abs(".repeat(200)] {
            assert_eq!(evaluate(&deep), Err("The expression is nested more than 64 levels deep.".into()));
        }
        assert_eq!(evaluate(&("1+".repeat(499) + "1")).as_deref(), Ok("500"), "length alone is no depth");
    }

    proptest! {
        #[test]
        fn any_expression_is_answered_without_a_panic(expression in "[0-9a-z.,_+*/%^() −×é-]{0,60}") {
            let _ = evaluate(&expression);
        }

        #[test]
        fn integers_are_exact(a in any::<i64>(), b in any::<i64>()) {
            let (x, y) = (i128::from(a), i128::from(b));
            prop_assert_eq!(evaluate(&format!("{a} * {b}")), Ok((x * y).to_string()));
            prop_assert_eq!(evaluate(&format!("{a} - ({b})")), Ok((x - y).to_string()));
            if b != 0 {
                prop_assert_eq!(evaluate(&format!("{a} % {b}")), Ok((x % y).to_string()));
                prop_assert_eq!(evaluate(&format!("({a} / {b}) * {b}")), Ok(a.to_string()));
            }
        }
    }
}
