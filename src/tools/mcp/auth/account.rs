//! For whom a call is made, and the secret of that tenant or user.

use std::io::ErrorKind;
use std::path::PathBuf;

use crate::config::{CallerCredentials, Secret};
use crate::tools::CallContext;
use crate::types::Tenant;

/// A tenant, or a user of one, that a server is shown a secret of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::tools::mcp) struct Account {
    tenant: Tenant,
    /// `None` where the tenant's secret is that of all of its users.
    user: Option<String>,
}

/// Where the secret of an account is.
enum Place<'a> {
    Here(&'a Secret),
    File(PathBuf),
}

/// For whom a call is made, as far as the server is to see a difference; `None` if it is to see none. The error is a sentence.
pub(in crate::tools::mcp) async fn account(
    credentials: &CallerCredentials,
    context: &CallContext,
) -> Result<Option<(Account, Secret)>, String> {
    let of_user = credentials.file.as_ref().is_some_and(crate::config::CredentialFile::is_of_users);
    let is_named = credentials.tenants.iter().any(|(tenant, _)| *tenant == context.tenant);
    let user = context.user.clone().filter(|_| of_user && !is_named);
    if of_user && !is_named && user.is_none() && credentials.required {
        return Err(
            "it is called with the credentials of a user, and the request of this run names none (`user`)".to_owned()
        );
    }
    let account = Account { tenant: context.tenant.clone(), user };
    match secret(credentials, &account).await? {
        Some(secret) => Ok(Some((account, secret))),
        None if credentials.required => Err("this caller has no credentials for it".to_owned()),
        None => Ok(None),
    }
}

/// The secret of an account as it is now, if there is one. The error is a clause.
pub(in crate::tools::mcp) async fn secret(
    credentials: &CallerCredentials,
    account: &Account,
) -> Result<Option<Secret>, String> {
    match place(credentials, account) {
        None => Ok(None),
        Some(Place::Here(secret)) => Ok(Some(secret.clone())),
        Some(Place::File(path)) => read(path).await,
    }
}

fn place<'a>(credentials: &'a CallerCredentials, account: &Account) -> Option<Place<'a>> {
    let named = credentials.tenants.iter().find(|(tenant, _)| *tenant == account.tenant);
    if let Some((_, secret)) = named {
        return Some(Place::Here(secret));
    }
    let path = credentials.file.as_ref()?.of(account.tenant.as_str(), account.user.as_deref())?;
    Some(Place::File(path))
}

/// The secret in a file, without the line break at its end. A file that is not there or empty holds none.
async fn read(path: PathBuf) -> Result<Option<Secret>, String> {
    let reading = tokio::task::spawn_blocking(move || {
        std::fs::read_to_string(&path).map_err(|error| {
            // Where secrets lie is told to the operator, and not to models.
            if error.kind() != ErrorKind::NotFound {
                tracing::warn!(path = %path.display(), %error, "the credentials of a caller cannot be read");
            }
            error.kind()
        })
    });
    match reading.await {
        Ok(Ok(text)) => {
            let text = text.trim_end_matches(['\r', '\n']);
            Ok((!text.is_empty()).then(|| Secret::new(text)))
        }
        Ok(Err(ErrorKind::NotFound | ErrorKind::NotADirectory)) => Ok(None),
        Ok(Err(_)) | Err(_) => Err("the credentials of this caller cannot be read".to_owned()),
    }
}
