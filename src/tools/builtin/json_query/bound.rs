//! How much an expression can make of its data, and how long that takes: known from the expression alone. Pure.
//!
//! For each part of an expression two factors are computed: by how much its result may be larger than what it is given, and
//! how much work it does for each byte of that. Only lists and objects that are written in the expression make several of one
//! value, and only literals add something, so all others at most pass on what they are given.

use jmespath::ast::Ast;

/// Longest expression, in bytes.
const MAX_EXPRESSION: usize = 2_000;
/// Most characters of an expression that may nest it: each may take a place on the stack.
const MAX_NESTING: usize = 250;
/// Most work that is done, about: bytes that are looked at.
const MAX_WORK: u64 = 16 << 20;
/// Greatest index, and the greatest number in a slice: the library computes with them.
const MAX_INDEX: u32 = 1_000_000;
/// What comparisons add to sorting, at most.
const SORTING: u64 = 32;
/// How much longer a text may become when it is escaped.
const ESCAPING: u64 = 6;

/// The two factors of a part.
#[derive(Debug, Clone, Copy)]
struct Factors {
    size: u64,
    work: u64,
}

/// What looks at its value once, and makes nothing larger of it.
const ONCE: Factors = Factors { size: 1, work: 1 };

/// Refuses an expression that is not even parsed: parsing nests as the expression does.
pub(super) fn check_text(expression: &str) -> Result<(), String> {
    if expression.len() > MAX_EXPRESSION {
        return Err(format!("The query is longer than {MAX_EXPRESSION} bytes."));
    }
    let nests = |byte: &u8| b".|&!([{<>=".contains(byte);
    if expression.as_bytes().iter().filter(|byte| nests(byte)).count() > MAX_NESTING {
        return Err(format!("The query has more than {MAX_NESTING} operators and brackets."));
    }
    Ok(())
}

/// Refuses an expression that could make too much of so many bytes of data.
pub(super) fn check(expression: &Ast, bytes: usize) -> Result<(), String> {
    let Factors { work, .. } = factors(expression)?;
    if work.saturating_mul(bytes.max(1) as u64) > MAX_WORK {
        return Err(
            "The query may make too much of that much data: give it less data, or select fewer parts at a time."
                .to_owned(),
        );
    }
    Ok(())
}

fn factors(part: &Ast) -> Result<Factors, String> {
    Ok(match part {
        Ast::Identity { .. } | Ast::Field { .. } => ONCE,
        Ast::Index { idx, .. } => within([Some(*idx)])?,
        Ast::Slice { start, stop, step, .. } => within([*start, *stop, Some(*step)])?,
        Ast::Literal { value, .. } => {
            let size = value.to_string().len() as u64;
            Factors { size, work: size }
        }
        Ast::Flatten { node, .. } | Ast::ObjectValues { node, .. } | Ast::Not { node, .. } => {
            after(factors(node)?, ONCE)
        }
        Ast::Subexpr { lhs, rhs, .. } | Ast::Projection { lhs, rhs, .. } => after(factors(lhs)?, factors(rhs)?),
        Ast::And { lhs, rhs, .. } | Ast::Or { lhs, rhs, .. } => either(factors(lhs)?, factors(rhs)?),
        Ast::Comparison { lhs, rhs, .. } => {
            let both = beside([factors(lhs)?, factors(rhs)?]);
            Factors { size: 1, work: both.work.saturating_add(both.size) }
        }
        Ast::Condition { predicate, then, .. } => either(factors(predicate)?, factors(then)?),
        Ast::MultiList { elements, .. } => beside(all(elements)?),
        Ast::MultiHash { elements, .. } => {
            let named = elements.iter().map(|pair| {
                let factors = factors(&pair.value)?;
                Ok(Factors { size: factors.size.saturating_add(pair.key.len() as u64 / 4), ..factors })
            });
            beside(named.collect::<Result<Vec<_>, String>>()?)
        }
        Ast::Expref { .. } => return Err("An `&expression` is only for the functions that take one.".to_owned()),
        Ast::Function { name, args, .. } => function(name, args)?,
    })
}

fn function(name: &str, args: &[Ast]) -> Result<Factors, String> {
    let each = args.iter().map(argument).collect::<Result<Vec<_>, _>>()?;
    let given = beside(each.iter().copied());
    Ok(match (name, args, &*each) {
        ("join", [Ast::Literal { value, .. }, _], [_, list]) => {
            // The glue may stand after each byte of the list.
            let glue = value.to_string().len() as u64;
            after(*list, Factors { size: glue, work: glue })
        }
        ("join", ..) => {
            return Err("The glue of `join` must be written in the query, such as join(', ', names).".to_owned());
        }
        ("map", _, [expression, list]) => after(*list, *expression),
        ("sort" | "sort_by" | "max_by" | "min_by", ..) => {
            let [list, expression] = [each.first(), each.get(1)].map(|part| part.copied().unwrap_or(ONCE));
            let sorted = after(list, expression);
            Factors { size: given.size, work: sorted.work.saturating_mul(SORTING) }
        }
        ("to_string", ..) => after(given, Factors { size: ESCAPING, work: ESCAPING }),
        _ => after(given, ONCE),
    })
}

/// What a function is given.
fn argument(part: &Ast) -> Result<Factors, String> {
    let Ast::Expref { ast, .. } = part else { return factors(part) };
    let factors = factors(ast)?;
    // It is copied whenever it is come by.
    Ok(Factors { work: factors.work.saturating_add(nodes(ast)), ..factors })
}

fn all(parts: &[Ast]) -> Result<Vec<Factors>, String> {
    parts.iter().map(factors).collect()
}

/// What is given to one part and then to the other.
fn after(first: Factors, then: Factors) -> Factors {
    Factors {
        size: first.size.saturating_mul(then.size),
        work: first.work.saturating_add(first.size.saturating_mul(then.work)),
    }
}

/// What is given to all of them, whose results stand beside each other.
fn beside(parts: impl IntoIterator<Item = Factors>) -> Factors {
    let sum =
        |a: Factors, b: Factors| Factors { size: a.size.saturating_add(b.size), work: a.work.saturating_add(b.work) };
    parts.into_iter().fold(Factors { size: 0, work: 1 }, sum).at_least_once()
}

/// What is given to both of them, of which one has the result.
fn either(one: Factors, other: Factors) -> Factors {
    Factors { size: one.size.max(other.size), work: one.work.saturating_add(other.work) }
}

impl Factors {
    fn at_least_once(self) -> Self {
        Self { size: self.size.max(1), work: self.work.max(1) }
    }
}

fn within<const N: usize>(numbers: [Option<i32>; N]) -> Result<Factors, String> {
    if numbers.iter().flatten().any(|number| number.unsigned_abs() > MAX_INDEX) {
        return Err(format!("An index of the query is greater than {MAX_INDEX}."));
    }
    Ok(ONCE)
}

/// How many parts an expression has, about: as its description is long.
fn nodes(expression: &Ast) -> u64 {
    match expression {
        Ast::Identity { .. } | Ast::Field { .. } | Ast::Index { .. } | Ast::Slice { .. } | Ast::Literal { .. } => 1,
        Ast::Flatten { node, .. } | Ast::ObjectValues { node, .. } | Ast::Not { node, .. } => 1 + nodes(node),
        Ast::Expref { ast, .. } => 1 + nodes(ast),
        Ast::Subexpr { lhs, rhs, .. }
        | Ast::Projection { lhs, rhs, .. }
        | Ast::And { lhs, rhs, .. }
        | Ast::Or { lhs, rhs, .. }
        | Ast::Comparison { lhs, rhs, .. } => 1 + nodes(lhs) + nodes(rhs),
        Ast::Condition { predicate, then, .. } => 1 + nodes(predicate) + nodes(then),
        Ast::MultiList { elements, .. } => 1 + elements.iter().map(nodes).sum::<u64>(),
        Ast::MultiHash { elements, .. } => 1 + elements.iter().map(|pair| nodes(&pair.value)).sum::<u64>(),
        Ast::Function { args, .. } => 1 + args.iter().map(nodes).sum::<u64>(),
    }
}
