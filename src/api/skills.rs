//! `/v1/skills`: what agents know how to do.

use axum::extract::State;
use axum::response::{IntoResponse, Response};

use crate::agent::documents::Named;
use crate::agent::documents::skills::{Known, SKILL_LIMITS, skills_of_tenant};
use crate::agent::error::LookupError;
use crate::api::auth::Caller;
use crate::api::documents::{DocumentDeletion, DocumentPath, missing};
use crate::api::error::ApiError;
use crate::api::extract::JsonText;
use crate::api::state::Api;
use crate::api::wire::document::{PutSkill, SkillObject};
use crate::api::wire::error::ErrorCode;
use crate::api::wire::run::List;
use crate::types::skill::Skill;

/// Lists the operator's skills, then those of the tenant.
#[utoipa::path(
    get, path = "/v1/skills", tag = "memory", operation_id = "listSkills",
    responses((status = 200, description = "All of them", body = List<SkillObject>)),
)]
pub async fn list(State(api): State<Api>, caller: Caller) -> Result<Response, ApiError> {
    let found = api.agent.documents().searchable(&caller.tenant, &skills_of_tenant()).await;
    let found = found.map_err(LookupError::Store)?;
    let of_operator = caller.generation.skills.skills.iter().map(|skill| SkillObject::new(known(skill), None, false));
    let of_tenant = found.iter().flat_map(|entry| entry.documents()).map(|skill| of_tenant(skill, false));
    let data = of_operator.chain(of_tenant).collect();
    Ok(axum::Json(List::new(data, false, |skill: &SkillObject| skill.name.clone())).into_response())
}

/// Reads a skill; of one of the operator's not the instructions.
#[utoipa::path(
    get, path = "/v1/skills/{name}", tag = "memory", operation_id = "getSkill",
    params(DocumentPath),
    responses((status = 200, description = "The skill", body = SkillObject)),
)]
pub async fn get(
    State(api): State<Api>,
    caller: Caller,
    DocumentPath(name): DocumentPath,
) -> Result<Response, ApiError> {
    if let Some(skill) = of_operator(&caller, &name) {
        // What the operator's say is for models alone.
        return Ok(axum::Json(SkillObject::new(known(skill), None, false)).into_response());
    }
    let found = api.agent.documents().get(&caller.tenant, &skills_of_tenant(), &name).await;
    let found = found.map_err(LookupError::Store)?.ok_or_else(|| missing(&name))?;
    Ok(axum::Json(of_tenant(&found, true)).into_response())
}

/// Writes a skill of the tenant's.
#[utoipa::path(
    put, path = "/v1/skills/{name}", tag = "memory", operation_id = "putSkill",
    params(DocumentPath),
    request_body = PutSkill,
    responses((status = 200, description = "The skill", body = SkillObject)),
)]
pub async fn put(
    State(api): State<Api>,
    caller: Caller,
    DocumentPath(name): DocumentPath,
    body: JsonText,
) -> Result<Response, ApiError> {
    refuse_bound(&caller)?;
    refuse_operators(&caller, &name)?;
    let put = PutSkill::read(body.as_str()?)?;
    let of = skills_of_tenant();
    let put = api.agent.documents().put(&caller.tenant, &of, &name, (&put.change(), &SKILL_LIMITS)).await?;
    Ok(axum::Json(of_tenant(&put, true)).into_response())
}

/// Deletes a skill of the tenant's.
#[utoipa::path(
    delete, path = "/v1/skills/{name}", tag = "memory", operation_id = "deleteSkill",
    params(DocumentPath),
    responses((status = 200, description = "It is gone", body = DocumentDeletion)),
)]
pub async fn delete(
    State(api): State<Api>,
    caller: Caller,
    DocumentPath(name): DocumentPath,
) -> Result<Response, ApiError> {
    refuse_bound(&caller)?;
    let deleted = api.agent.documents().delete(&caller.tenant, &skills_of_tenant(), (&name, None)).await;
    if deleted.is_err() {
        refuse_operators(&caller, &name)?;
    }
    deleted?;
    Ok(axum::Json(DocumentDeletion { id: name, object: "skill", deleted: true }).into_response())
}

/// Refuses a caller that may use some agents only: skills are of all agents of the tenant.
fn refuse_bound(caller: &Caller) -> Result<(), ApiError> {
    if caller.agents.is_none() {
        return Ok(());
    }
    let message = "this key may use some agents only, and skills are for all agents of the tenant";
    Err(ApiError::new(ErrorCode::Forbidden, message).permanent())
}

/// Refuses to change a skill that is the operator's.
fn refuse_operators(caller: &Caller, name: &str) -> Result<(), ApiError> {
    if of_operator(caller, name).is_none() {
        return Ok(());
    }
    let message = format!("the skill {name:?} is the operator's; take another name");
    Err(ApiError::new(ErrorCode::VersionConflict, message).at("name").permanent())
}

fn of_operator<'a>(caller: &'a Caller, name: &str) -> Option<&'a Skill> {
    caller.generation.skills.skills.iter().find(|skill| skill.name == name)
}

fn of_tenant(Named { name, text, version }: &Named, with_text: bool) -> SkillObject {
    let known = Known { name, description: &text.description, instructions: &text.content };
    SkillObject::new(known, Some(*version), with_text)
}

fn known(skill: &Skill) -> Known<'_> {
    Known { name: &skill.name, description: &skill.description, instructions: &skill.instructions }
}
