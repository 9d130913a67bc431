//! The parts of messages and of results.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::api::wire::body::{clip, located, missing};
use crate::api::wire::error::{ErrorCode, WireError};
use crate::api::wire::image_url::check_image_url;
use crate::api::wire::json_object::JsonObject;
use crate::types::Role;
use crate::types::conversation::{Part, PartKind, Source};

/// A part as it is written.
#[derive(Deserialize)]
struct View {
    r#type: String,
    text: Option<String>,
    refusal: Option<String>,
    image_url: Option<String>,
    detail: Option<String>,
    file_id: Option<String>,
    file_data: Option<String>,
    file_url: Option<String>,
    filename: Option<String>,
    input_audio: Option<Audio>,
}

#[derive(Deserialize)]
struct Audio {
    data: String,
    format: String,
}

/// Reads `content`: a text, or a list of parts, of what this role may say.
pub fn read_content(raw: &RawValue, role: Role) -> Result<Vec<Part>, WireError> {
    match raw.get().as_bytes().first() {
        Some(b'"') => Ok(vec![Part::text(located::<String>(raw.get())?)]),
        Some(b'[') => {
            let views: Vec<JsonObject<View>> = located(raw.get())?;
            let read = |(index, JsonObject(view)): (usize, JsonObject<View>)| {
                read_part(view, role).map_err(|error| error.within(&format!("[{index}]")))
            };
            views.into_iter().enumerate().map(read).collect()
        }
        _ => Err(WireError::new(ErrorCode::InvalidValue, "must be a string or a list of parts")),
    }
}

fn read_part(view: View, role: Role) -> Result<Part, WireError> {
    let shows = matches!(role, Role::User | Role::Tool);
    Ok(match view.r#type.as_str() {
        "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text" => {
            Part::text(view.text.ok_or_else(|| missing("text"))?)
        }
        "refusal" if role == Role::Assistant => {
            PartKind::Refusal(view.refusal.ok_or_else(|| missing("refusal"))?).into()
        }
        "input_image" if shows => {
            let Some(url) = view.image_url else {
                return Err(foreign_or_missing(view.file_id.as_deref(), "image_url"));
            };
            check_image_url(&url).map_err(|what| WireError::invalid("image_url", format!("the image URL {what}")))?;
            let source = data_of(&url).unwrap_or(Source::Url(url));
            PartKind::Image { source, detail: view.detail }.into()
        }
        "input_file" if shows => read_file(view)?,
        "input_audio" if role == Role::User => {
            let Audio { data, format } = view.input_audio.ok_or_else(|| missing("input_audio"))?;
            PartKind::Audio { source: Source::Base64 { media_type: format!("audio/{format}"), data } }.into()
        }
        other => {
            let message = format!("a part of the type {:?} is not allowed here", clip(other));
            return Err(WireError::invalid("type", message));
        }
    })
}

fn read_file(view: View) -> Result<Part, WireError> {
    let source = match (view.file_data, view.file_url) {
        (Some(data), _) => data_of(&data).ok_or_else(|| {
            WireError::invalid("file_data", "must be a data: URL with the file's media type and its bytes as base64")
        })?,
        (None, Some(url)) => {
            check_file_url(&url)?;
            Source::Url(url)
        }
        (None, None) => return Err(foreign_or_missing(view.file_id.as_deref(), "file_data")),
    };
    Ok(PartKind::File { source, name: view.filename }.into())
}

fn check_file_url(url: &str) -> Result<(), WireError> {
    let refuse = |what: String| WireError::invalid("file_url", format!("the file's URL {what}"));
    if url.starts_with("data:") {
        return Err(refuse("must begin with https: or http:".to_owned()));
    }
    check_image_url(url).map_err(refuse)
}

/// Why a part without its content is refused.
fn foreign_or_missing(file_id: Option<&str>, member: &str) -> WireError {
    match file_id {
        Some(_) => {
            let message = format!("files that were uploaded elsewhere are not known here; send {member}");
            WireError::invalid("file_id", message)
        }
        None => missing(member),
    }
}

/// What a `data:` URL holds as base64.
fn data_of(url: &str) -> Option<Source> {
    let (media_type, data) = url.strip_prefix("data:")?.split_once(";base64,")?;
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    let is_valid = !media_type.is_empty() && !data.is_empty() && data.bytes().all(is_base64);
    is_valid.then(|| Source::Base64 { media_type: media_type.to_owned(), data: data.to_owned() })
}
