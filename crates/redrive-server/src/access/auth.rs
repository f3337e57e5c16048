//! Decides whether a request is allowed. The decision is a pure function; the guard in front of each route applies it.
//!
//! Everything that changes something needs a token with the right scope, always. Reads need one as soon as a token is
//! configured, or the server listens beyond loopback. Otherwise reads are open to local users, as far as a connection
//! from loopback can tell: a local proxy may forward the requests of others. So a request that shows signs of a proxy,
//! or that names a host other than this machine (a foreign page that resolves its name to loopback: DNS rebinding),
//! needs a token all the same. The signs can be missing; only a configured token, or `reads = "token"`, protects reads
//! reliably.

use crate::access::token::{self, Scope, Token};
use crate::problem::{Code, Problem};

/// The access that a route requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// No token: the route reveals nothing about messages.
    Open,
    /// A token with this scope; reads on loopback may not need one.
    Needs(Scope),
}

/// The sender of a request, for the action log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor(pub String);

/// Which callers may read without a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unguarded {
    Nobody,
    /// Local users: nothing about the request suggests otherwise.
    Neighbours,
    /// Everybody: `reads = "open"` is configured.
    Everybody,
}

/// The server's rules when a request is judged.
#[derive(Clone, Copy, Debug)]
pub struct ServerAccess<'a> {
    pub unguarded: Unguarded,
    pub tokens: &'a [Token],
}

/// The relevant properties of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caller<'a> {
    pub authorization: Option<&'a str>,
    /// Whether nothing about it suggests that it comes from another machine.
    pub neighbour: bool,
}

/// Admits a request under a name, or says why not.
pub fn judge(access_rules: ServerAccess<'_>, access: Access, caller: Caller<'_>) -> Result<Actor, Problem> {
    let Access::Needs(scope) = access else { return Ok(anonymous()) };
    let secret = caller.authorization.and_then(bearer);
    let token = secret.and_then(|secret| token::find(access_rules.tokens, secret));
    if let Some(token) = token.filter(|token| token.allows(scope)) {
        return Ok(Actor(token.name().to_owned()));
    }
    let open = match access_rules.unguarded {
        Unguarded::Nobody => false,
        Unguarded::Neighbours => caller.neighbour,
        Unguarded::Everybody => true,
    };
    if open && scope.is_read() {
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
    let message = if scope.is_read() && access_rules.unguarded == Unguarded::Neighbours {
        "without a token this is answered only to requests straight from this machine, under the names localhost, \
         127.0.0.1 and [::1]"
            .to_owned()
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

/// The scheme, which is not secret; a value without one may be the token itself.
fn scheme(authorization: &str) -> Option<&str> {
    let (scheme, _) = authorization.split_once(' ')?;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte);
    (!scheme.is_empty() && scheme.len() <= 20 && scheme.bytes().all(is_token)).then_some(scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPS: &str = "Bearer ops-secret-0123456789";
    const READER: &str = "bearer reader-secret-0123456789";
    const SCRAPER: &str = "Bearer scraper-secret-0123456789";
    const READS: [Scope; 2] = [Scope::Read, Scope::Metrics];

    fn judged(
        unguarded: Unguarded,
        scope: Scope,
        authorization: Option<&str>,
        neighbour: bool,
    ) -> Result<String, Code> {
        let tokens = [
            Token::new("ops", "ops-secret-0123456789", Scope::ALL).unwrap(),
            Token::new("reader", "reader-secret-0123456789", [Scope::Read]).unwrap(),
            Token::new("scraper", "scraper-secret-0123456789", [Scope::Metrics]).unwrap(),
        ];
        let access_rules = ServerAccess { unguarded, tokens: &tokens };
        let verdict = judge(access_rules, Access::Needs(scope), Caller { authorization, neighbour });
        verdict.map(|actor| actor.0).map_err(|problem| problem.code)
    }

    #[test]
    fn reads_are_open_to_those_for_whom_they_are_and_to_nobody_else() {
        let anonymous = || Ok("anonymous".to_owned());
        for scope in READS {
            assert_eq!(judged(Unguarded::Nobody, scope, None, true), Err(Code::Unauthorized));
            assert_eq!(judged(Unguarded::Neighbours, scope, None, true), anonymous());
            assert_eq!(judged(Unguarded::Neighbours, scope, None, false), Err(Code::Unauthorized));
            assert_eq!(judged(Unguarded::Everybody, scope, None, false), anonymous());
            assert_eq!(judged(Unguarded::Nobody, scope, Some(READER), false), Ok("reader".into()));
        }
    }

    #[test]
    fn a_token_for_metrics_reads_nothing_else() {
        assert_eq!(judged(Unguarded::Nobody, Scope::Metrics, Some(SCRAPER), false), Ok("scraper".into()));
        for scope in Scope::ALL.into_iter().filter(|scope| *scope != Scope::Metrics) {
            assert_eq!(judged(Unguarded::Nobody, scope, Some(SCRAPER), true), Err(Code::Forbidden));
        }
    }

    #[test]
    fn what_changes_state_needs_a_token_with_the_scope() {
        for scope in Scope::ALL.into_iter().filter(|scope| !READS.contains(scope)) {
            for unguarded in [Unguarded::Nobody, Unguarded::Neighbours, Unguarded::Everybody] {
                let judged = |authorization| judged(unguarded, scope, authorization, true);
                assert_eq!(judged(None), Err(Code::Unauthorized));
                assert_eq!(judged(Some("Bearer nobody-knows-this")), Err(Code::Unauthorized));
                assert_eq!(judged(Some("Basic b3BzOm9wcw==")), Err(Code::Unauthorized));
                assert_eq!(judged(Some(READER)), Err(Code::Forbidden));
                assert_eq!(judged(Some(OPS)), Ok("ops".into()));
            }
        }
    }

    #[test]
    fn an_unknown_token_does_not_close_what_is_open() {
        let wrong = Some("Bearer nobody-knows-this");
        assert_eq!(judged(Unguarded::Neighbours, Scope::Read, wrong, true), Ok("anonymous".into()));
    }
}
