//! The constants and functions by name.

use std::cmp::Ordering;

use super::number::{Number, TOO_LARGE};

/// The value of a named constant.
pub(super) fn constant(name: &str) -> Option<Number> {
    match name {
        "pi" | "π" => Some(Number::Real(std::f64::consts::PI)),
        "e" => Some(Number::Real(std::f64::consts::E)),
        _ => None,
    }
}

/// Whether there is a function of this name.
pub(super) fn exists(name: &str) -> bool {
    arity(name).is_some()
}

/// The fewest and most arguments of a function.
fn arity(name: &str) -> Option<(usize, usize)> {
    match name {
        "sqrt" | "abs" | "floor" | "ceil" | "ln" | "exp" | "sin" | "cos" | "tan" => Some((1, 1)),
        "log" | "round" => Some((1, 2)),
        "min" | "max" => Some((1, usize::MAX)),
        _ => None,
    }
}

/// Applies a function that [`exists`] to at least one argument.
pub(super) fn apply(name: &str, arguments: &[Number]) -> Result<Number, String> {
    let &[x, ref others @ ..] = arguments else {
        return Err(format!("`{name}` needs an argument."));
    };
    let (fewest, most) = arity(name).ok_or_else(|| format!("`{name}` is not a known function."))?;
    if arguments.len() > most {
        let plural = if most == 1 { "" } else { "s" };
        let range = if fewest == most { most.to_string() } else { format!("{fewest} to {most}") };
        return Err(format!("`{name}` takes {range} argument{plural}, not {}.", arguments.len()));
    }
    match name {
        "sqrt" => square_root(x),
        "abs" if x.compare(Number::integer(0)) == Ordering::Less => Ok(x.negate()),
        "abs" => Ok(x),
        "floor" => Ok(x.floor()),
        "ceil" => Ok(x.negate().floor().negate()),
        "round" => others.first().map_or_else(|| x.round(), |&digits| round_to(x, digits)),
        "min" => Ok(others.iter().fold(x, |least, &n| if n.compare(least) == Ordering::Less { n } else { least })),
        "max" => Ok(others.iter().fold(x, |most, &n| if n.compare(most) == Ordering::Greater { n } else { most })),
        "ln" => logarithm(x, f64::ln),
        "log" => match others.first() {
            None => logarithm(x, f64::log10),
            Some(base) => logarithm_to(x, *base),
        },
        "exp" => Number::real(x.as_f64().exp(), TOO_LARGE),
        "sin" => Number::real(x.as_f64().sin(), TOO_LARGE),
        "cos" => Number::real(x.as_f64().cos(), TOO_LARGE),
        "tan" => Number::real(x.as_f64().tan(), TOO_LARGE),
        _ => Err(format!("`{name}` is not a known function.")),
    }
}

fn square_root(x: Number) -> Result<Number, String> {
    let root = |n: i128| n.checked_isqrt().filter(|root| root * root == n);
    if let Number::Exact(numerator, denominator) = x
        && let (Some(numerator), Some(denominator)) = (root(numerator), root(denominator))
    {
        return Ok(Number::Exact(numerator, denominator));
    }
    Number::real(x.as_f64().sqrt(), "The square root of a negative number is not a real number.")
}

fn logarithm(x: Number, of: fn(f64) -> f64) -> Result<Number, String> {
    if x.as_f64() <= 0.0 {
        return Err("The logarithm is only defined for numbers above zero.".into());
    }
    Number::real(of(x.as_f64()), TOO_LARGE)
}

fn logarithm_to(x: Number, base: Number) -> Result<Number, String> {
    if base == Number::integer(1) {
        return Err("The logarithm has no base 1.".into());
    }
    if base == Number::integer(2) {
        return logarithm(x, f64::log2);
    }
    logarithm(x, f64::ln)?.divide(logarithm(base, f64::ln)?)
}

fn round_to(x: Number, digits: Number) -> Result<Number, String> {
    let digits = digits.as_integer().filter(|digits| (-30..=30).contains(digits));
    let digits = digits.ok_or("`round` takes a whole number of digits from -30 to 30.")?;
    let scale = Number::integer(10).power(Number::integer(digits))?;
    x.multiply(scale)?.round()?.divide(scale)
}
