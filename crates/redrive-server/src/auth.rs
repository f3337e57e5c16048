//! Who may make a request. The judgement is a pure function; the guard in front of each route carries it out.
//!
//! Reads are open on loopback, for people at this machine. Everything else needs a token with the right scope. A page of
//! somebody else's that has its name resolved to this machine (DNS rebinding) sends its own name as `Host`, and is not
//! served without a token.

use crate::problem::{Code, Problem};
use crate::token::{self, Scope, Token};

/// What a route asks of whoever calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing: it tells nothing about messages.
    Open,
    /// A token with this scope; reads on loopback go without.
    Needs(Scope),
}

/// Who a request came from, for the record of actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor(pub String);

/// What is known of the server when a request is judged.
#[derive(Clone, Copy, Debug)]
pub struct Door<'a> {
    pub loopback: bool,
    pub tokens: &'a [Token],
    /// Names beside localhost under which the server may be reached without a token.
    pub hosts: &'a [String],
}

/// What a request shows of itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caller<'a> {
    pub authorization: Option<&'a str>,
    pub host: Option<&'a str>,
}

/// Lets a request in under a name, or says why not.
pub fn judge(door: Door<'_>, access: Access, caller: Caller<'_>) -> Result<Actor, Problem> {
    let Access::Needs(scope) = access else { return Ok(anonymous()) };
    let secret = caller.authorization.and_then(bearer);
    let token = secret.and_then(|secret| token::find(door.tokens, secret));
    if let Some(token) = token.filter(|token| token.allows(scope)) {
        return Ok(Actor(token.name().to_owned()));
    }
    let is_read = scope == Scope::Read;
    if is_read && door.loopback && caller.host.is_none_or(|host| is_local(host, door.hosts)) {
        return Ok(anonymous());
    }
    if let Some(token) = token {
        let message = format!("token `{}` may not do this: it lacks the scope `{scope}`", token.name());
        let hint = "add the scope to the token in the configuration ([[server.token]]), or use another token";
        return Err(Problem::new(Code::Forbidden, message, hint));
    }
    if let Some(authorization) = caller.authorization {
        let message = match scheme(authorization) {
            Some(scheme) if scheme.eq_ignore_ascii_case("bearer") => {
                "this token is not known here".to_owned()
            }
            Some(scheme) => {
                format!("the scheme `{scheme}` of `Authorization` is not accepted; only `Bearer` is")
            }
            None => "`Authorization` names no scheme, and has to begin with `Bearer`".to_owned(),
        };
        let hint = "send `Authorization: Bearer …` with a token of the configuration, REDRIVE_TOKEN, or the file \
                    `token` in the data directory";
        return Err(Problem::new(Code::Unauthorized, message, hint));
    }
    let message = if is_read && door.loopback {
        "without a token this server answers only under the names localhost, 127.0.0.1 and [::1]".to_owned()
    } else {
        format!("this needs a token with the scope `{scope}`")
    };
    let hint = "send `Authorization: Bearer …`; the token is in the configuration, in REDRIVE_TOKEN, or in the file \
                `token` in the data directory";
    Err(Problem::new(Code::Unauthorized, message, hint))
}

fn anonymous() -> Actor {
    Actor("anonymous".to_owned())
}

fn bearer(authorization: &str) -> Option<&str> {
    let (scheme, secret) = authorization.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim())
}

/// The scheme, which is no secret; a value without one may be the token itself.
fn scheme(authorization: &str) -> Option<&str> {
    let (scheme, _) = authorization.split_once(' ')?;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte);
    (!scheme.is_empty() && scheme.len() <= 20 && scheme.bytes().all(is_token)).then_some(scheme)
}

/// Whether a `Host` header, with or without a port, names this machine.
fn is_local(host: &str, more: &[String]) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let local = ["localhost", "127.0.0.1", "[::1]"];
    local.into_iter().chain(more.iter().map(String::as_str)).any(|allowed| allowed.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPS: &str = "Bearer ops-secret-0123456789";
    const READER: &str = "bearer reader-secret-0123456789";

    fn judged(
        loopback: bool,
        scope: Scope,
        authorization: Option<&str>,
        host: Option<&str>,
    ) -> Result<String, Code> {
        let tokens = [
            Token::new("ops", "ops-secret-0123456789", Scope::ALL).unwrap(),
            Token::new("reader", "reader-secret-0123456789", [Scope::Read]).unwrap(),
        ];
        let door = Door { loopback, tokens: &tokens, hosts: &[] };
        let verdict = judge(door, Access::Needs(scope), Caller { authorization, host });
        verdict.map(|actor| actor.0).map_err(|problem| problem.code)
    }

    #[test]
    fn reads_are_open_on_loopback_and_nowhere_else() {
        assert_eq!(judged(true, Scope::Read, None, Some("127.0.0.1:7333")), Ok("anonymous".into()));
        assert_eq!(judged(false, Scope::Read, None, Some("127.0.0.1:7333")), Err(Code::Unauthorized));
        assert_eq!(judged(false, Scope::Read, Some(READER), Some("redrive.example")), Ok("reader".into()));
    }

    #[test]
    fn what_changes_state_needs_a_token_with_the_scope() {
        for scope in [Scope::Ingest, Scope::Replay, Scope::Edit, Scope::Discard, Scope::Admin] {
            for loopback in [true, false] {
                assert_eq!(judged(loopback, scope, None, None), Err(Code::Unauthorized));
                assert_eq!(
                    judged(loopback, scope, Some("Bearer nobody-knows-this"), None),
                    Err(Code::Unauthorized)
                );
                assert_eq!(
                    judged(loopback, scope, Some("Basic b3BzOm9wcw=="), None),
                    Err(Code::Unauthorized)
                );
                assert_eq!(judged(loopback, scope, Some(READER), None), Err(Code::Forbidden));
                assert_eq!(judged(loopback, scope, Some(OPS), None), Ok("ops".into()));
            }
        }
    }

    #[test]
    fn a_rebound_name_reads_nothing_without_a_token() {
        assert_eq!(judged(true, Scope::Read, None, Some("evil.example:7333")), Err(Code::Unauthorized));
        assert_eq!(judged(true, Scope::Read, Some(READER), Some("evil.example:7333")), Ok("reader".into()));
        for host in ["localhost", "LOCALHOST:7333", "[::1]:7333", "[::1]", "127.0.0.1"] {
            assert!(is_local(host, &[]), "{host}");
        }
        for host in ["localhost.evil.example", "127.0.0.1.evil.example:80", "127.0.0.2", "", "localhost:x"] {
            assert!(!is_local(host, &[]), "{host}");
        }
        assert!(is_local("redrive.internal:7333", &["redrive.internal".to_owned()]));
    }

    #[test]
    fn an_unknown_token_does_not_close_what_is_open() {
        let wrong = Some("Bearer nobody-knows-this");
        assert_eq!(judged(true, Scope::Read, wrong, Some("localhost")), Ok("anonymous".into()));
    }
}
