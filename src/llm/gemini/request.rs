//! A model request as the body of `POST …/models/MODEL:streamGenerateContent`.

use super::contents::Contents;
use super::models::Wants;
use super::{sampling, tools};
use crate::llm::ModelRequest;
use crate::llm::model_name::gemini_generation;
use crate::llm::object::Object;

/// The JSON body, for the model that signs as `author`.
pub(super) fn body(request: &ModelRequest, author: &str) -> String {
    let generation = gemini_generation(&request.model);
    let contents = Contents::of(&request.conversation, author, Wants::of(&request.model));
    let mut out = Vec::with_capacity(512 + contents.bytes());
    let mut object = Object::new(&mut out);
    if contents.has_instructions() {
        object.nested("systemInstruction", |content| content.raw("parts", |out| contents.write_instructions(out)));
    }
    tools::write(request, &mut object);
    sampling::write(&request.sampling, &mut object);
    object.nested("generationConfig", |config| sampling::write_config(request, generation, config));
    object.raw("contents", |out| contents.write(out));
    object.close();
    String::from_utf8(out).expect("it was written from strings")
}

#[cfg(test)]
mod tests;
