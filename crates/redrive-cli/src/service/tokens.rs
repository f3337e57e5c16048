//! Who may change something: the tokens of the configuration, else that of `REDRIVE_TOKEN`, else one made here.

use std::path::Path;

use redrive_server::{Scope, Token, TokenError};

use crate::args::Global;
use crate::config::{Config, EngineKind, Secret};
use crate::exit::Failed;

/// The file in the engine's directory that holds the token this program made.
pub const FILE: &str = "token";

pub fn of(config: &Config, global: &Global) -> Result<Vec<Token>, Failed> {
    let failed = |error: TokenError| Failed::usage(error.to_string());
    if !config.server.tokens.is_empty() {
        return config.server.tokens.iter().map(configured).collect();
    }
    if let Some(token) = global.token()? {
        return Ok(vec![Token::new("local", token.reveal(), Scope::ALL).map_err(failed)?]);
    }
    let made = match config.engine.kind {
        EngineKind::Embedded => Token::in_file(&config.engine.dir.join(FILE)),
        EngineKind::Memory | EngineKind::Kafka => Token::ephemeral(),
    };
    Ok(vec![made.map_err(failed)?])
}

fn configured(token: &crate::config::TokenConfig) -> Result<Token, Failed> {
    let secret = read(&token.secret_file)
        .map_err(|problem| Failed::usage(format!("token `{}`: {problem}", token.name)))?;
    let scopes: Vec<Scope> = token.scopes.iter().filter_map(|scope| Scope::from_name(scope.name())).collect();
    Token::new(&token.name, secret.reveal(), scopes).map_err(|error| Failed::usage(error.to_string()))
}

fn read(path: &Path) -> Result<Secret, String> {
    Secret::read(path).map_err(|error| error.to_string())
}
