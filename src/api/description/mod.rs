//! The description of the HTTP contract, beyond what the handlers and types declare themselves: authentication, what
//! every response may have, and shapes that generators of clients can read.

mod events;
mod responses;
#[cfg(test)]
mod tests;

use utoipa::openapi::path::{Operation, Parameter, PathItem};
use utoipa::openapi::schema::{AdditionalProperties, ArrayItems, SchemaType};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{Components, OpenApi, Ref, RefOr, Schema, Server, Type};

/// Shapes whose members that are not named are kept or passed on.
const OPEN: [&str; 5] = ["ChatMessage", "ChatPart", "ChatImageUrl", "ChatJsonSchema", "CompletionRequest"];
/// The operation that asks for the token of a call in place of a key.
const BY_TOKEN: &str = "answerToolCall";
/// What the names of lists begin with.
const LIST: &str = "List_";

/// Says of the operations of `document` that a key is asked for, and what follows from it.
pub fn guard(document: &mut OpenApi) {
    let required = [SecurityRequirement::default()].into_iter();
    let by = ["bearer", "api_key"].map(|scheme| SecurityRequirement::new(scheme, Vec::<String>::new()));
    let security: Vec<_> = required.chain(by).collect();
    for operation in document.paths.paths.values_mut().flat_map(operations) {
        operation.security = Some(security.clone());
        responses::refuse(operation);
    }
}

/// The whole description, of what handlers and types say.
pub fn finish(mut document: OpenApi) -> OpenApi {
    document.servers = Some(vec![Server::new("/")]);
    let components = document.components.get_or_insert_default();
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
    let header = ApiKeyValue::with_description("x-api-key", "The same key; one of both is enough.");
    components.add_security_scheme("api_key", SecurityScheme::ApiKey(ApiKey::Header(header)));
    responses::declare(components);
    events::name_variants(components);
    refer_to_entries(components);
    for name in OPEN {
        if let Some(RefOr::T(Schema::Object(object))) = components.schemas.get_mut(name) {
            object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(true)));
        }
    }
    for operation in document.paths.paths.values_mut().flat_map(operations) {
        if operation.operation_id.as_deref() == Some(BY_TOKEN) {
            operation.security = Some(vec![SecurityRequirement::new("bearer", Vec::<String>::new())]);
            responses::refuse(operation);
        }
        operation.parameters.iter_mut().flatten().for_each(never_null);
        never_null_body(operation);
        responses::complete(operation);
    }
    document
}

fn operations(path: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, post, put, patch, delete, head, options, trace, .. } = path;
    [get, post, put, patch, delete, head, options, trace].into_iter().flatten()
}

/// Lists name the schema of their entries, which is a schema of its own, instead of repeating it.
fn refer_to_entries(components: &mut Components) {
    let names: Vec<String> = components.schemas.keys().cloned().collect();
    for list in names {
        let Some(entry) = list.strip_prefix(LIST) else { continue };
        if let Some(RefOr::T(Schema::Object(object))) = components.schemas.get_mut(&list)
            && let Some(RefOr::T(Schema::Array(data))) = object.properties.get_mut("data")
        {
            data.items = ArrayItems::RefOrSchema(Box::new(Ref::from_schema_name(entry).into()));
        }
    }
}

/// A header or query that is not sent is absent: generators would write `null` as a text.
fn never_null(parameter: &mut RefOr<Parameter>) {
    if let RefOr::T(parameter) = parameter
        && let Some(RefOr::T(Schema::Object(object))) = &mut parameter.schema
        && let SchemaType::Array(types) = &mut object.schema_type
    {
        types.retain(|kind| *kind != Type::Null);
        if let [only] = types.as_slice() {
            object.schema_type = SchemaType::Type(only.clone());
        }
    }
}

/// A body that may be left out is absent: generators would write `null`, or fail to.
fn never_null_body(operation: &mut Operation) {
    let Some(RefOr::T(body)) = &mut operation.request_body else { return };
    for content in body.content.values_mut() {
        let RefOr::T(content) = content else { continue };
        let Some(RefOr::T(Schema::OneOf(choice))) = &content.schema else { continue };
        let named = choice.items.iter().find(|item| matches!(item, RefOr::Ref(_))).cloned();
        content.schema = named.or_else(|| content.schema.take());
    }
}
