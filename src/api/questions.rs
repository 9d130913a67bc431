//! `POST /v1/runs/{id}/answers`: what a user answers a question of a tool.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use sha2::{Digest, Sha256};

use crate::agent::questions::GivenAnswer;
use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::extract::{JsonText, RunPath};
use crate::api::identity::mark_replayed;
use crate::api::sse;
use crate::api::state::Api;
use crate::api::wire::RunNames;
use crate::api::wire::agent::question::{QuestionAnswer, read_answer};
use crate::api::wire::openai_error::ErrorBody;
use crate::api::wire::run::RunObject;
use crate::config::key::to_hex;

/// Answers a question that a tool of a live run asks the user. The call that asked goes on with the answer. The same answer may
/// be sent again.
#[utoipa::path(
    post, path = "/v1/runs/{id}/answers", tag = "runs", operation_id = "answerQuestion",
    request_body = QuestionAnswer<'_>,
    params(RunPath),
    responses(
        (status = 202, description = "The run; the answer is stored and passed on", body = RunObject<'_>),
        (status = 404, description = "There is no such run, or it has not asked this", body = ErrorBody),
        (status = 409, description = "The question was answered before, and otherwise", body = ErrorBody),
        (status = 410, description = "The question can no longer be answered", body = ErrorBody),
    ),
)]
pub async fn answer(
    State(api): State<Api>,
    caller: Caller,
    RunPath(id): RunPath,
    body: JsonText,
) -> Result<Response, ApiError> {
    let (question, content) = read_answer(body.as_str()?)?;
    let written = content.as_ref().map(ToString::to_string).unwrap_or_default();
    let fingerprint = to_hex(&Sha256::digest(written).into());
    let given = GivenAnswer { question, content, by: caller.key_name.clone(), fingerprint };
    let (head, replayed) = api.agent.questions().answer(caller.requester(), &id, given).await?;
    let mut response = (StatusCode::ACCEPTED, axum::Json(RunObject::from(&head))).into_response();
    sse::name_run(&mut response, &RunNames::from(&head));
    if replayed {
        mark_replayed(response.headers_mut());
    }
    Ok(response)
}
