//! A service account: the JSON file from Google, and the assertion signed with its key.

use hyper::Uri;
use serde_json::Value;

use crate::push::keys::{KeyProblem, Rs256};
use crate::webhook::endpoint;

const SCOPE: &str = "https://www.googleapis.com/auth/firebase.messaging";
/// The maximum lifetime that Google accepts.
const ASSERTION_SECS: u64 = 3600;

/// A problem with the file. Shows nothing of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccountProblem {
    #[error("it is not the JSON file of a service account")]
    Form,
    #[error("it has no `{0}`")]
    Lacks(&'static str),
    #[error("its private_key cannot be used: {0}")]
    Key(KeyProblem),
    #[error("its token_uri is not a URL")]
    TokenUri,
    #[error("its project_id is not a name of a project")]
    Project,
}

/// Our account with Google.
#[derive(Debug)]
pub struct Account {
    email: String,
    key: Rs256,
    pub token_uri: Uri,
    pub project: String,
}

impl Account {
    pub fn read(text: &str) -> Result<Self, AccountProblem> {
        let file: Value = serde_json::from_str(text).map_err(|_| AccountProblem::Form)?;
        let part = |name: &'static str| {
            let text = file.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
            text.map(str::to_owned).ok_or(AccountProblem::Lacks(name))
        };
        let project = part("project_id")?;
        let is_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':');
        if !project.bytes().all(is_name) {
            return Err(AccountProblem::Project);
        }
        Ok(Self {
            email: part("client_email")?,
            key: Rs256::read(&part("private_key")?).map_err(AccountProblem::Key)?,
            token_uri: endpoint::judge(&part("token_uri")?).map_err(|_| AccountProblem::TokenUri)?,
            project,
        })
    }

    /// The body of a request for an access token.
    pub fn assertion(&self, now_secs: u64) -> Result<String, KeyProblem> {
        let header = serde_json::json!({"alg": "RS256", "typ": "JWT"});
        let claims = serde_json::json!({
            "iss": self.email, "scope": SCOPE, "aud": self.token_uri.to_string(),
            "iat": now_secs, "exp": now_secs + ASSERTION_SECS,
        });
        let token = self.key.token(&header, &claims)?;
        Ok(format!("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion={token}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let problem = |text: &str| Account::read(text).unwrap_err();
        assert_eq!(problem("hello"), AccountProblem::Form);
        assert_eq!(problem("{}"), AccountProblem::Lacks("project_id"));
        assert_eq!(problem(r#"{"project_id":"a b"}"#), AccountProblem::Project);
        let keyless = r#"{"project_id":"p","client_email":"a@b.example","private_key":"x"}"#;
        assert_eq!(problem(keyless), AccountProblem::Key(KeyProblem::Form));
    }
}
