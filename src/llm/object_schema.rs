//! JSON schemas of objects, for vendors that insist on the type.

use crate::types::json::Members;

/// Writes a schema, which is that of an object, with its type if it lacks one.
pub fn write_object_schema(schema: &str, out: &mut Vec<u8>) {
    let has_type = serde_json::from_str::<Members>(schema).is_ok_and(|members| members.get("type").is_some());
    match schema.trim_start().strip_prefix('{').map(str::trim_start).filter(|_| !has_type) {
        Some(rest) => {
            let comma = if rest.starts_with('}') { "" } else { "," };
            out.extend_from_slice(format!("{{\"type\":\"object\"{comma}").as_bytes());
            out.extend_from_slice(rest.as_bytes());
        }
        None => out.extend_from_slice(schema.as_bytes()),
    }
}
