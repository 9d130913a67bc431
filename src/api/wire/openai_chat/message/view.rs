//! The members of a message that its checks read; the text of the message keeps all of them.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// A message.
#[derive(Deserialize)]
pub(super) struct View<'a> {
    #[serde(borrow)]
    pub(super) role: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) tool_calls: Option<Vec<CallView<'a>>>,
    #[serde(borrow)]
    pub(super) tool_call_id: Option<Cow<'a, str>>,
    pub(super) refusal: Option<serde::de::IgnoredAny>,
    pub(super) audio: Option<serde::de::IgnoredAny>,
}

/// A call of an assistant message.
#[derive(Deserialize)]
pub(super) struct CallView<'a> {
    #[serde(borrow)]
    pub(super) id: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) function: FunctionView<'a>,
}

/// The function of a call.
#[derive(Deserialize)]
pub(super) struct FunctionView<'a> {
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
    #[serde(borrow)]
    #[expect(dead_code, reason = "its type is checked")]
    pub(super) arguments: Cow<'a, str>,
}

/// A part of a content that is a list.
#[derive(Deserialize)]
pub(super) struct Part<'a> {
    #[serde(borrow)]
    pub(super) r#type: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) text: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) image_url: Option<ImageUrl<'a>>,
    #[serde(borrow)]
    pub(super) input_audio: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) file: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) refusal: Option<Cow<'a, str>>,
}

/// How the sound of a part is written.
#[derive(Deserialize)]
pub(super) struct AudioFormat<'a> {
    #[serde(borrow)]
    pub(super) format: Cow<'a, str>,
}

/// An image of a part.
#[derive(Deserialize)]
pub(super) struct ImageUrl<'a> {
    #[serde(borrow)]
    pub(super) url: Cow<'a, str>,
}
