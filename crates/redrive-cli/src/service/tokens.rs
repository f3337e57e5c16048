//! Who may change something: the tokens of the configuration, else that of `REDRIVE_TOKEN`, else one made here.

use redrive_server::{Scope, Token, TokenError};
use redrive_sinks::Secret;

use crate::args::Global;
use crate::config::{Config, EngineKind, TokenConfig};
use crate::exit::Failed;

/// The file in the engine's directory that holds the token this program made.
pub const FILE: &str = "token";

pub fn of(config: &Config, global: &Global) -> Result<Vec<Token>, Failed> {
    let failed = |error: TokenError| Failed::usage(error.to_string());
    if !config.server.tokens.is_empty() {
        return config.server.tokens.iter().map(configured).collect();
    }
    if let Some(token) = global.token()? {
        return Ok(vec![Token::new("local", token.expose(), Scope::ALL).map_err(failed)?]);
    }
    let made = match config.engine.kind {
        EngineKind::Embedded => Token::in_file(&config.engine.dir.join(FILE)),
        EngineKind::Memory | EngineKind::Kafka => Token::ephemeral(),
    };
    Ok(vec![made.map_err(failed)?])
}

fn configured(token: &TokenConfig) -> Result<Token, Failed> {
    let secret = Secret::read(&token.secret_file).map_err(|error| {
        Failed::usage(format!("token `{}`: `secret_file` {error}", token.name))
            .hint("write a secret into the file that this user may read, or correct `secret_file`")
    })?;
    Token::new(&token.name, secret.expose(), token.scopes.clone())
        .map_err(|error| Failed::usage(error.to_string()))
}
