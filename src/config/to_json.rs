//! Values of the file as JSON.

use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeString, DeValue};

use super::value::Misread;

/// A value as JSON, if JSON has such values.
pub(super) fn to_json(value: &Spanned<DeValue<'_>>) -> Result<Value, Misread> {
    Ok(match value.get_ref() {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Boolean(flag) => Value::Bool(*flag),
        DeValue::Integer(number) => {
            let whole = i64::from_str_radix(number.as_str(), number.radix());
            Value::from(whole.map_err(|_| Misread::new(value, "must fit 64 bits"))?)
        }
        DeValue::Float(number) => {
            let number = number.as_str().parse().ok().and_then(Number::from_f64);
            Value::Number(number.ok_or_else(|| Misread::new(value, "must be finite: JSON knows no other numbers"))?)
        }
        DeValue::Datetime(_) => return Err(Misread::new(value, "JSON knows no dates; write it as a string")),
        DeValue::Array(elements) => Value::Array(elements.iter().map(to_json).collect::<Result<_, _>>()?),
        DeValue::Table(table) => {
            let member = |(key, value): (&Spanned<DeString<'_>>, &_)| Ok((key.get_ref().to_string(), to_json(value)?));
            Value::Object(table.iter().map(member).collect::<Result<Map<_, _>, _>>()?)
        }
    })
}
