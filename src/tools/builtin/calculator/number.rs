//! Numbers that are fractions of integers for as long as these fit, and floating point after that.

use std::cmp::Ordering;
use std::fmt;

/// The longest decimal expansion that is written out exactly, in digits after the point.
const MAX_EXACT_DIGITS: u32 = 30;

/// A finite number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    /// A fraction in lowest terms; the denominator is positive.
    Exact(i128, i128),
    /// What no fraction of ours holds.
    Real(f64),
}

pub(super) const TOO_LARGE: &str = "The result is too large.";
const DIVISION_BY_ZERO: &str = "Division by zero is not defined.";

impl Number {
    pub(super) fn integer(value: i128) -> Self {
        Self::Exact(value, 1)
    }

    /// A floating-point result; `undefined` says why it is none.
    pub(super) fn real(value: f64, undefined: &str) -> Result<Self, String> {
        match value {
            value if value.is_nan() => Err(undefined.to_owned()),
            value if value.is_infinite() => Err(TOO_LARGE.to_owned()),
            value => Ok(Self::Real(value)),
        }
    }

    /// A fraction, brought to lowest terms; `None` if it has none of ours.
    fn fraction(numerator: i128, denominator: i128) -> Option<Self> {
        let divisor = gcd(numerator.unsigned_abs(), denominator.unsigned_abs());
        let divisor = i128::try_from(divisor).ok().filter(|&divisor| divisor > 0)?;
        let sign = denominator.signum();
        let numerator = (numerator / divisor).checked_mul(sign)?;
        let denominator = (denominator / divisor).checked_mul(sign)?;
        Some(Self::Exact(numerator, denominator))
    }

    /// `digits` × 10^`exponent`, if that is a fraction of ours.
    pub(super) fn decimal(digits: i128, exponent: i32) -> Option<Self> {
        let scale = 10_i128.checked_pow(exponent.unsigned_abs())?;
        if exponent < 0 { Self::fraction(digits, scale) } else { digits.checked_mul(scale).map(Self::integer) }
    }

    #[expect(clippy::cast_precision_loss, reason = "floating point is what remains when no fraction fits")]
    pub(super) fn as_f64(self) -> f64 {
        match self {
            Self::Exact(numerator, denominator) => numerator as f64 / denominator as f64,
            Self::Real(value) => value,
        }
    }

    pub(super) fn as_integer(self) -> Option<i128> {
        match self {
            Self::Exact(value, 1) => Some(value),
            Self::Exact(..) | Self::Real(_) => None,
        }
    }

    fn is_zero(self) -> bool {
        self.as_f64() == 0.0
    }

    pub(super) fn add(self, other: Self) -> Result<Self, String> {
        self.combine(other, |(a, b), (c, d)| {
            let numerator = a.checked_mul(d)?.checked_add(c.checked_mul(b)?)?;
            Self::fraction(numerator, b.checked_mul(d)?)
        })
        .map_or_else(|| Self::real(self.as_f64() + other.as_f64(), TOO_LARGE), Ok)
    }

    pub(super) fn negate(self) -> Self {
        match self {
            Self::Exact(numerator, denominator) => match numerator.checked_neg() {
                Some(negative) => Self::Exact(negative, denominator),
                None => Self::Real(-self.as_f64()),
            },
            Self::Real(value) => Self::Real(-value),
        }
    }

    pub(super) fn subtract(self, other: Self) -> Result<Self, String> {
        self.add(other.negate())
    }

    pub(super) fn multiply(self, other: Self) -> Result<Self, String> {
        self.combine(other, |(a, b), (c, d)| Self::fraction(a.checked_mul(c)?, b.checked_mul(d)?))
            .map_or_else(|| Self::real(self.as_f64() * other.as_f64(), TOO_LARGE), Ok)
    }

    pub(super) fn divide(self, other: Self) -> Result<Self, String> {
        if other.is_zero() {
            return Err(DIVISION_BY_ZERO.to_owned());
        }
        self.combine(other, |(a, b), (c, d)| Self::fraction(a.checked_mul(d)?, b.checked_mul(c)?))
            .map_or_else(|| Self::real(self.as_f64() / other.as_f64(), TOO_LARGE), Ok)
    }

    /// The remainder, with the sign of `self`.
    pub(super) fn remainder(self, other: Self) -> Result<Self, String> {
        if other.is_zero() {
            return Err(DIVISION_BY_ZERO.to_owned());
        }
        self.combine(other, |(a, b), (c, d)| {
            let remainder = a.checked_mul(d)?.checked_rem(c.checked_mul(b)?)?;
            Self::fraction(remainder, b.checked_mul(d)?)
        })
        .map_or_else(|| Self::real(self.as_f64() % other.as_f64(), TOO_LARGE), Ok)
    }

    pub(super) fn power(self, exponent: Self) -> Result<Self, String> {
        if self.is_zero() && exponent.as_f64() < 0.0 {
            return Err(DIVISION_BY_ZERO.to_owned());
        }
        self.exact_power(exponent).map_or_else(
            || {
                let power = self.as_f64().powf(exponent.as_f64());
                Self::real(power, "A power of these numbers is not a real number.")
            },
            Ok,
        )
    }

    fn exact_power(self, exponent: Self) -> Option<Self> {
        let (Self::Exact(numerator, denominator), Some(exponent)) = (self, exponent.as_integer()) else {
            return None;
        };
        let times = u32::try_from(exponent.unsigned_abs()).ok()?;
        let (numerator, denominator) = (numerator.checked_pow(times)?, denominator.checked_pow(times)?);
        if exponent < 0 { Self::fraction(denominator, numerator) } else { Self::fraction(numerator, denominator) }
    }

    /// The largest integer that is not above `self`.
    pub(super) fn floor(self) -> Self {
        match self {
            Self::Exact(numerator, denominator) => Self::integer(numerator.div_euclid(denominator)),
            Self::Real(value) => Self::Real(value.floor()),
        }
    }

    /// The nearest integer; halves go away from zero.
    pub(super) fn round(self) -> Result<Self, String> {
        let half = Self::Exact(1, 2);
        if self.as_f64() < 0.0 { Ok(self.negate().add(half)?.floor().negate()) } else { Ok(self.add(half)?.floor()) }
    }

    /// Which of two numbers is larger.
    pub(super) fn compare(self, other: Self) -> Ordering {
        let exact = self.combine(other, |(a, b), (c, d)| Some(a.checked_mul(d)?.cmp(&c.checked_mul(b)?)));
        exact.unwrap_or_else(|| self.as_f64().total_cmp(&other.as_f64()))
    }

    /// What `exact` makes of two fractions; `None` for other numbers or if it cannot.
    fn combine<T>(self, other: Self, exact: impl FnOnce((i128, i128), (i128, i128)) -> Option<T>) -> Option<T> {
        match (self, other) {
            (Self::Exact(a, b), Self::Exact(c, d)) => exact((a, b), (c, d)),
            (Self::Real(_), _) | (_, Self::Real(_)) => None,
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Exact(numerator, denominator) = *self
            && let Some(digits) = digits_after_point(denominator)
            && let Some(scaled) = 10_u128.checked_pow(digits)
            && let Some(scaled) = numerator.unsigned_abs().checked_mul(scaled / denominator.unsigned_abs())
        {
            let sign = if numerator < 0 { "-" } else { "" };
            let width = digits as usize + 1;
            let text = format!("{scaled:0width$}");
            let (whole, part) = text.split_at(text.len() - digits as usize);
            let point = if part.is_empty() { "" } else { "." };
            return write!(f, "{sign}{whole}{point}{part}");
        }
        // Adding zero makes a negative zero positive.
        let value = self.as_f64() + 0.0;
        if value == 0.0 || (1e-6..1e21).contains(&value.abs()) { write!(f, "{value}") } else { write!(f, "{value:e}") }
    }
}

/// How many digits after the point a fraction of this denominator needs; `None` for too many or
/// without end.
fn digits_after_point(mut denominator: i128) -> Option<u32> {
    let (mut twos, mut fives) = (0, 0);
    while denominator % 2 == 0 {
        denominator /= 2;
        twos += 1;
    }
    while denominator % 5 == 0 {
        denominator /= 5;
        fives += 1;
    }
    let digits = twos.max(fives);
    (denominator == 1 && digits <= MAX_EXACT_DIGITS).then_some(digits)
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
