//! The tokens that allow changes: those of the configuration, else that of `--token-file` or `REDRIVE_TOKEN`, else a
//! generated one.

use redrive_server::{Scope, Token};
use redrive_sinks::Secret;

use crate::args::Global;
use crate::config::{EngineConfig, EngineKind, ServerConfig, TokenConfig};
use crate::exit::Failed;

/// The file in the engine's directory with the generated token.
pub const FILE: &str = "token";
/// The actor name of the only token of a processor without configured ones.
const LOCAL: &str = "local";

/// The configured tokens, or all their faults. `None` if there are none.
pub fn given(config: &ServerConfig, global: &Global) -> Result<Option<Vec<Token>>, Vec<String>> {
    if !config.tokens.is_empty() {
        let (mut tokens, mut wrong) = (Vec::new(), Vec::new());
        for token in &config.tokens {
            match configured(token) {
                Ok(token) => tokens.push(token),
                Err(fault) => wrong.push(fault),
            }
        }
        return if wrong.is_empty() { Ok(Some(tokens)) } else { Err(wrong) };
    }
    let Some(secret) = global.token().map_err(|failed| vec![failed.message])? else { return Ok(None) };
    let token = Token::new(LOCAL, secret.expose(), Scope::ALL);
    token.map(|token| Some(vec![token])).map_err(|error| vec![error.to_string()])
}

/// Generates a token for local users. If there is a directory, the token is kept there for the next start.
pub fn made(engine: &EngineConfig) -> Result<Token, Failed> {
    let made = match engine.kind {
        EngineKind::Embedded | EngineKind::Kafka => Token::in_file(&engine.dir.join(FILE)),
        EngineKind::Memory => Token::ephemeral(),
    };
    made.map_err(|error| Failed::usage(error.to_string()))
}

fn configured(token: &TokenConfig) -> Result<Token, String> {
    let of = |problem: String| format!("token `{}`: {problem}", token.name);
    let secret = Secret::read(&token.secret_file).map_err(|error| {
        let fix = "write a separate secret into that file, readable for this user, or correct `secret_file`";
        of(format!("its `secret_file` cannot be used: {error}\n  fix: {fix}"))
    })?;
    Token::new(&token.name, secret.expose(), token.scopes.clone()).map_err(|error| of(error.to_string()))
}
