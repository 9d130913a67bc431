//! The blocks of a request that are text, pictures and documents, as parts.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::api::wire::body::{clip, located, missing};
use crate::api::wire::error::{ErrorCode, WireError};
use crate::api::wire::image_url::check_image_url;
use crate::api::wire::json_object::JsonObject;
use crate::types::conversation::{Part, PartKind, Source};

/// A block as it is written.
#[derive(Deserialize)]
pub(super) struct View<'a> {
    pub(super) r#type: String,
    pub(super) text: Option<String>,
    #[serde(borrow)]
    pub(super) source: Option<&'a RawValue>,
    pub(super) title: Option<String>,
    pub(super) context: Option<String>,
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
    pub(super) id: Option<String>,
    pub(super) tool_use_id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) server_name: Option<String>,
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
    pub(super) is_error: Option<bool>,
}

/// Where the bytes of a picture or a document are, as it is written.
#[derive(Deserialize)]
struct SourceView<'a> {
    r#type: String,
    media_type: Option<String>,
    data: Option<String>,
    url: Option<String>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

/// The blocks of `content`: a text alone is one block of text.
pub(super) fn views(raw: &RawValue) -> Result<Vec<View<'_>>, WireError> {
    match raw.get().as_bytes().first() {
        Some(b'"') => Ok(vec![View::text(located(raw.get())?)]),
        Some(b'[') => {
            let views: Vec<JsonObject<View<'_>>> = located(raw.get())?;
            Ok(views.into_iter().map(|JsonObject(view)| view).collect())
        }
        _ => Err(WireError::new(ErrorCode::InvalidValue, "must be a string or a list of blocks")),
    }
}

/// The parts of a content that says and shows things, and does nothing.
pub(super) fn read_parts(raw: &RawValue) -> Result<Vec<Part>, WireError> {
    let mut parts = Vec::new();
    for (index, view) in views(raw)?.into_iter().enumerate() {
        parts.extend(read_shown(&view).map_err(|error| error.within(&format!("[{index}]")))?);
    }
    Ok(parts)
}

/// The texts of a content that has nothing else.
pub(super) fn read_texts(raw: &RawValue) -> Result<Vec<Part>, WireError> {
    let read = |(index, view): (usize, View<'_>)| {
        let text =
            if view.r#type == "text" { view.text.ok_or_else(|| missing("text")) } else { Err(not_allowed(&view)) };
        text.map(Part::text).map_err(|error| error.within(&format!("[{index}]")))
    };
    views(raw)?.into_iter().enumerate().map(read).collect()
}

/// What a block says or shows.
pub(super) fn read_shown(view: &View<'_>) -> Result<Vec<Part>, WireError> {
    match view.r#type.as_str() {
        "text" => Ok(vec![Part::text(view.text.as_deref().ok_or_else(|| missing("text"))?)]),
        "image" => read_image(view).map(|part| vec![part]),
        "document" => read_document(view),
        "search_result" => read_search_result(view),
        _ => Err(not_allowed(view)),
    }
}

/// Why a block is refused where it stands.
pub(super) fn not_allowed(view: &View<'_>) -> WireError {
    WireError::invalid("type", format!("a block of the type {:?} is not allowed here", clip(&view.r#type)))
}

fn read_image(view: &View<'_>) -> Result<Part, WireError> {
    let read = || {
        let source = source(view)?;
        let refuse = |member: &str, what: String| WireError::invalid(member, format!("the image {what}"));
        Ok(match source.r#type.as_str() {
            "base64" => {
                let found = bytes(source)?;
                if let Source::Base64 { media_type, .. } = &found
                    && !media_type.starts_with("image/")
                {
                    return Err(refuse("media_type", "must be declared as one: image/png, image/jpeg, …".to_owned()));
                }
                found
            }
            "url" => {
                let url = source.url.ok_or_else(|| missing("url"))?;
                if url.starts_with("data:") {
                    return Err(refuse("url", "must be sent as base64 if it is in the request".to_owned()));
                }
                check_image_url(&url).map_err(|what| refuse("url", format!("URL {what}")))?;
                Source::Url(url)
            }
            other => return Err(foreign(other)),
        })
    };
    let source = read().map_err(|error: WireError| error.within("source"))?;
    Ok(PartKind::Image { source, detail: None }.into())
}

/// A document. One that is text already is that to every model.
fn read_document(view: &View<'_>) -> Result<Vec<Part>, WireError> {
    let file = |source| Part::from(PartKind::File { source, name: view.title.clone() });
    let read = || {
        let source = source(view)?;
        Ok(match source.r#type.as_str() {
            "base64" => vec![file(bytes(source)?)],
            "url" => {
                let url = source.url.ok_or_else(|| missing("url"))?;
                let web = url.starts_with("https:") || url.starts_with("http:");
                let check = if web { check_image_url(&url) } else { Err("must begin with https: or http:".to_owned()) };
                check.map_err(|what| WireError::invalid("url", format!("the document's URL {what}")))?;
                vec![file(Source::Url(url))]
            }
            "text" => titled(view, [Part::text(source.data.ok_or_else(|| missing("data"))?)]),
            "content" => {
                let content = source.content.ok_or_else(|| missing("content"))?;
                titled(view, read_parts(content).map_err(|error| error.within("content"))?)
            }
            other => return Err(foreign(other)),
        })
    };
    read().map_err(|error: WireError| error.within("source"))
}

fn read_search_result(view: &View<'_>) -> Result<Vec<Part>, WireError> {
    let content = view.content.ok_or_else(|| missing("content"))?;
    let found = read_texts(content).map_err(|error| error.within("content"))?;
    let place: Option<String> = view.source.and_then(|source| serde_json::from_str(source.get()).ok());
    Ok(titled(view, place.map(Part::text).into_iter().chain(found)))
}

/// What a document says behind what it is called.
fn titled(view: &View<'_>, said: impl IntoIterator<Item = Part>) -> Vec<Part> {
    let names = [&view.title, &view.context].into_iter().flatten().filter(|name| !name.is_empty());
    names.map(Part::text).chain(said).collect()
}

fn source<'a>(view: &View<'a>) -> Result<SourceView<'a>, WireError> {
    let raw = view.source.ok_or_else(|| WireError::new(ErrorCode::MissingField, "the source is missing"))?;
    located(raw.get()).map(|JsonObject(source)| source)
}

/// The bytes that a request has.
fn bytes(source: SourceView<'_>) -> Result<Source, WireError> {
    let data = source.data.ok_or_else(|| missing("data"))?;
    let media_type = source.media_type.filter(|kind| !kind.is_empty()).ok_or_else(|| missing("media_type"))?;
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    if data.is_empty() || !data.bytes().all(is_base64) {
        return Err(WireError::invalid("data", "must be base64"));
    }
    Ok(Source::Base64 { media_type, data })
}

fn foreign(kind: &str) -> WireError {
    match kind {
        "file" => {
            WireError::invalid("file_id", "files that were uploaded elsewhere are not known here; send the bytes")
        }
        other => WireError::invalid("type", format!("sources of the type {:?} are not known", clip(other))),
    }
}

impl View<'_> {
    fn text(text: String) -> Self {
        View {
            r#type: "text".to_owned(),
            text: Some(text),
            source: None,
            title: None,
            context: None,
            content: None,
            id: None,
            tool_use_id: None,
            name: None,
            server_name: None,
            input: None,
            is_error: None,
        }
    }
}
