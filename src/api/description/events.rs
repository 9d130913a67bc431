//! Events as schemas of their own, told apart by their `type`.

use utoipa::openapi::schema::{Discriminator, Object, OneOfBuilder};
use utoipa::openapi::{Components, Ref, RefOr, Schema};

/// The schema of all named events.
const EVENT: &str = "NativeEvent";
/// What events say that is part of them, and no schema of its own.
const PARTS: [&str; 24] = [
    "BegunDelegate",
    "CallProgress",
    "ClosedQuestion",
    "CompactedContext",
    "CompletedFlush",
    "DeferredCall",
    "EndOfHedge",
    "EndedDelegate",
    "Ending",
    "FailedCompaction",
    "FailedFlush",
    "Fallback",
    "FlaggedInput",
    "Hedge",
    "HookEvent",
    "JudgedGuardrail",
    "OpenQuestion",
    "PrunedContext",
    "RequiredApproval",
    "ResolvedApproval",
    "StartedCompaction",
    "StartedFlush",
    "TriggeredGuardrail",
    "TruncatedInput",
];

/// Gives every variant of the events a name, and says by which member readers tell them apart. Generators of
/// clients drop a union of nameless variants.
pub fn name_variants(components: &mut Components) {
    let Some(RefOr::T(Schema::OneOf(union))) = components.schemas.get(EVENT).cloned() else { return };
    let mut named = OneOfBuilder::new().description(union.description.as_deref());
    let mut discriminator = Discriminator::new("type");
    for variant in union.items {
        let Some((event, object)) = flat(variant, components) else { continue };
        let name: String = event.split(['.', '_']).map(capitalized).chain(["Event".to_owned()]).collect();
        let reference = Ref::from_schema_name(&name);
        discriminator.mapping.insert(event, reference.ref_location.clone());
        named = named.item(reference);
        components.schemas.insert(name, object.into());
    }
    for part in PARTS {
        components.schemas.remove(part);
    }
    components.schemas.insert(EVENT.to_owned(), RefOr::T(named.discriminator(Some(discriminator)).build().into()));
}

/// A variant as one object, and the event that it is.
fn flat(variant: RefOr<Schema>, components: &Components) -> Option<(String, Object)> {
    let object = match variant {
        RefOr::T(Schema::Object(object)) => object,
        RefOr::T(Schema::AllOf(all)) => {
            let mut whole: Option<Object> = None;
            for piece in all.items {
                let piece = match piece {
                    RefOr::T(Schema::Object(object)) => object,
                    RefOr::Ref(reference) => {
                        let name = reference.ref_location.rsplit('/').next()?.to_owned();
                        let Some(RefOr::T(Schema::Object(object))) = components.schemas.get(&name) else { return None };
                        object.clone()
                    }
                    RefOr::T(_) => return None,
                };
                match &mut whole {
                    Some(whole) => {
                        whole.properties.extend(piece.properties);
                        whole.required.extend(piece.required);
                    }
                    None => whole = Some(piece),
                }
            }
            let mut whole = whole?;
            whole.description = all.description;
            whole
        }
        RefOr::Ref(_) | RefOr::T(_) => return None,
    };
    let RefOr::T(Schema::Object(kind)) = object.properties.get("type")? else { return None };
    let event = kind.enum_values.as_ref()?.first()?.as_str()?.to_owned();
    Some((event, object))
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
