//! Measures a schema before it is compiled, and refuses one whose checks cannot be bounded.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::Value;

/// How deeply a schema's JSON may be nested.
const MAX_DEPTH: usize = 32;
/// The same once every `$ref` is replaced by what it points to.
const MAX_EXPANDED_DEPTH: usize = 64;
/// How many objects a schema may then hold.
const MAX_EXPANDED_OBJECTS: usize = 10_000;
/// How many patterns a schema may hold: each is compiled to up to a mebibyte.
const MAX_PATTERNS: usize = 32;
/// How much its patterns may weigh together.
const MAX_WEIGHT: usize = 16 << 10;
/// What a range or a class weighs, in bytes, where letters count in either case: all of its characters are looked up then.
const FOLDED: usize = 256;

/// What is known of a schema before it is compiled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Surveyed {
    /// Whether it refers back to itself.
    pub(super) is_recursive: bool,
    /// Its patterns.
    pub(super) patterns: Patterns,
}

/// The patterns of a schema.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Patterns {
    pub(super) count: usize,
    /// How much work it is to compile them, in bytes of plain ones.
    pub(super) weight: usize,
}

impl Patterns {
    fn and(self, other: Self) -> Self {
        Self { count: self.count + other.count, weight: self.weight.saturating_add(other.weight) }
    }

    fn of(pattern: &str) -> Self {
        let classes = pattern.bytes().filter(|byte| matches!(byte, b'[' | b'-' | b'\\')).count();
        let folded = if folds_case(pattern) { classes * FOLDED } else { 0 };
        Self { count: 1, weight: pattern.len() + folded }
    }
}

/// Whether some letters of a pattern may count in either case: `(?i)`, `(?si:…)` and the like.
fn folds_case(pattern: &str) -> bool {
    pattern.split('?').skip(1).any(|after| {
        let flags = after.split([':', ')', '-']).next().unwrap_or_default();
        flags.contains('i') && flags.bytes().all(|flag| flag.is_ascii_alphabetic())
    })
}

/// Surveys a schema. The error says in one sentence why it is refused.
pub(super) fn survey(schema: &Value) -> Result<Surveyed, String> {
    let patterns = patterns(schema, 1)?;
    if patterns.count > MAX_PATTERNS {
        return Err(format!("the schema holds more than {MAX_PATTERNS} patterns"));
    }
    if patterns.weight > MAX_WEIGHT {
        return Err(format!("the patterns of the schema are longer than {MAX_WEIGHT} bytes, or have too many classes"));
    }
    let mut survey = Survey { root: schema, targets: HashMap::new(), recursive: false };
    let extent = survey.measure(schema, 1)?;
    if extent.objects > MAX_EXPANDED_OBJECTS {
        return Err(format!(
            "the schema holds more than {MAX_EXPANDED_OBJECTS} objects once its references are resolved"
        ));
    }
    if extent.depth > MAX_EXPANDED_DEPTH {
        return Err(too_deep());
    }
    Ok(Surveyed { is_recursive: survey.recursive, patterns })
}

/// Finds the patterns of a schema as it is written, and refuses keywords that are not supported. A
/// property may bear a keyword's name, but then its value is a schema and not a text.
fn patterns(value: &Value, depth: usize) -> Result<Patterns, String> {
    if depth > MAX_DEPTH {
        return Err(format!("the schema is nested more than {MAX_DEPTH} levels deep"));
    }
    match value {
        Value::Object(members) => {
            let mut found = Patterns::default();
            for (key, member) in members {
                let own = match (key.as_str(), member) {
                    ("pattern", Value::String(pattern)) => Patterns::of(pattern),
                    ("patternProperties", Value::Object(patterns)) => {
                        patterns.keys().map(|pattern| Patterns::of(pattern)).fold(Patterns::default(), Patterns::and)
                    }
                    // These change where the references around them lead.
                    ("$dynamicRef" | "$recursiveRef", Value::String(_)) => {
                        return Err(format!("the schema uses `{key}`, which is not supported"));
                    }
                    ("$id", Value::String(_)) if depth > 1 => {
                        return Err("the schema uses `$id` below its root, which is not supported".into());
                    }
                    ("$schema", Value::String(draft)) if draft.contains("draft-04") => {
                        return Err("the schema is of draft 4, which is not supported".into());
                    }
                    _ => Patterns::default(),
                };
                found = found.and(own).and(patterns(member, depth + 1)?);
            }
            Ok(found)
        }
        Value::Array(items) => {
            items.iter().try_fold(Patterns::default(), |found, item| Ok(found.and(patterns(item, depth + 1)?)))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(Patterns::default()),
    }
}

/// How large a part of a schema is with its references resolved; a reference back to what it lies in
/// counts as one object.
#[derive(Debug, Clone, Copy)]
struct Extent {
    objects: usize,
    depth: usize,
}

const NOTHING: Extent = Extent { objects: 0, depth: 0 };

impl Extent {
    fn beside(self, other: Self) -> Self {
        Self { objects: self.objects.saturating_add(other.objects), depth: self.depth.max(other.depth) }
    }
}

struct Survey<'a> {
    root: &'a Value,
    /// The extent of what each reference points to; `None` while it is being measured.
    targets: HashMap<String, Option<Extent>>,
    recursive: bool,
}

impl<'a> Survey<'a> {
    /// `level` counts the levels above, those of the references that led here included.
    fn measure(&mut self, value: &'a Value, level: usize) -> Result<Extent, String> {
        let mut inside = NOTHING;
        if level > MAX_EXPANDED_DEPTH {
            return Err(too_deep());
        }
        let objects = match value {
            Value::Object(members) => {
                for (key, member) in members {
                    let part = match member.as_str() {
                        Some(reference) if key == "$ref" => self.target(reference, level)?,
                        _ => self.measure(member, level + 1)?,
                    };
                    inside = inside.beside(part);
                }
                1
            }
            Value::Array(items) => {
                for item in items {
                    inside = inside.beside(self.measure(item, level + 1)?);
                }
                0
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return Ok(NOTHING),
        };
        Ok(Extent { objects: inside.objects.saturating_add(objects), depth: inside.depth + 1 })
    }

    fn target(&mut self, reference: &str, level: usize) -> Result<Extent, String> {
        let refused = || format!("the schema refers to `{reference}`; only `#` and `#/…` are supported");
        let pointer = reference.strip_prefix('#').filter(|p| p.is_empty() || p.starts_with('/')).ok_or_else(refused)?;
        let pointer = percent_decode_str(pointer).decode_utf8().map_err(|_| refused())?;
        match self.targets.get(&*pointer) {
            Some(Some(extent)) => return Ok(*extent),
            Some(None) => {
                self.recursive = true;
                return Ok(Extent { objects: 1, depth: 1 });
            }
            None => {}
        }
        let root = self.root;
        let target =
            root.pointer(&pointer).ok_or_else(|| format!("the schema refers to `{reference}`, which is not there"))?;
        self.targets.insert(pointer.to_string(), None);
        let extent = self.measure(target, level + 1)?;
        self.targets.insert(pointer.into_owned(), Some(extent));
        Ok(extent)
    }
}

fn too_deep() -> String {
    format!("the schema is more than {MAX_EXPANDED_DEPTH} levels deep once its references are resolved")
}
