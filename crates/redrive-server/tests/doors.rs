//! Access control over real HTTP: tokens and their scopes, reads without one, the Host header, and wrong tokens.

mod support;

use redrive_server::auth::Access;
use redrive_server::routes::ROUTES;
use redrive_server::{Reads, Scope, Token};
use support::{Answer, OPS, READER, Request, Running, Setup, start, start_with};

const SCRAPER: &str = "scraper-secret-0123456789";

/// A server without configured tokens, as on a developer's machine.
fn without_tokens() -> Setup {
    let mut setup = Setup::default();
    setup.options.tokens = vec![Token::ephemeral().unwrap()];
    setup
}

/// Every route with its path filled in.
fn routes() -> impl Iterator<Item = (String, String, Access)> {
    ROUTES.into_iter().map(|route| {
        let path = route
            .path
            .replace("{pipeline}", "orders")
            .replace("{*id}", "x")
            .replace("{*key}", "x")
            .replace("{id}", "r-1");
        (route.operation.method().to_string(), path, route.access)
    })
}

async fn status(server: &Running, method: &str, path: &str, token: Option<&str>, host: &str) -> u16 {
    server.send(Request { method, path, host, token, ..Request::default() }).await.status
}

fn is_refused(status: u16) -> bool {
    matches!(status, 401 | 403 | 429)
}

async fn get(server: &Running, head: &str) -> Answer {
    server.raw(format!("GET {head}\r\nconnection: close\r\n\r\n").as_bytes()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_configured_token_every_route_but_the_open_ones_needs_one_under_any_host() {
    let mut setup = Setup::default();
    setup.options.tokens.push(Token::new("scraper", SCRAPER, [Scope::Metrics]).unwrap());
    let server = start_with(setup).await;
    for (method, path, access) in routes() {
        let status = async |token, host| status(&server, &method, &path, token, host).await;
        let hosts = ["localhost:7333", "127.0.0.1:7333", "evil.example"];
        for host in hosts {
            match access {
                Access::Open => assert!(!is_refused(status(None, host).await), "{path}"),
                Access::Needs(scope) => {
                    assert_eq!(status(None, host).await, 401, "{method} {path} under {host}");
                    let reads = matches!(scope, Scope::Read | Scope::Metrics);
                    let reader = status(Some(READER), host).await;
                    assert_eq!(is_refused(reader), !reads, "{method} {path}: {reader}");
                    let scraper = status(Some(SCRAPER), host).await;
                    assert_eq!(is_refused(scraper), scope != Scope::Metrics, "{method} {path}: {scraper}");
                }
            }
        }
        assert!(!is_refused(status(Some(OPS), "redrive.example").await), "{path}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_with_one_scope_opens_the_routes_of_that_scope_and_no_others() {
    let secret = |scope: Scope| format!("only-{scope}-0123456789");
    let mut setup = Setup::default();
    setup.options.tokens =
        Scope::ALL.map(|scope| Token::new(scope.name(), &secret(scope), [scope]).unwrap()).into();
    let server = start_with(setup).await;
    for (method, path, access) in routes() {
        let Access::Needs(needed) = access else { continue };
        for scope in Scope::ALL {
            let status = status(&server, &method, &path, Some(&secret(scope)), "localhost").await;
            let opens = scope == needed || (scope == Scope::Read && needed == Scope::Metrics);
            assert_eq!(is_refused(status), !opens, "{method} {path} with {scope}: {status}");
        }
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_one_reads_are_open_to_this_machine_and_to_nothing_that_came_from_elsewhere() {
    let server = start_with(without_tokens()).await;
    for (method, path, access) in routes() {
        let Access::Needs(scope) = access else { continue };
        let reads = matches!(scope, Scope::Read | Scope::Metrics);
        assert_eq!(
            is_refused(status(&server, &method, &path, None, "localhost:7333").await),
            !reads,
            "{path}"
        );
        // A foreign page whose name resolves to this machine.
        assert_eq!(status(&server, &method, &path, None, "evil.example:7333").await, 401, "{path}");
    }
    let path = "/v1/pipelines HTTP/1.1\r\nhost: localhost";
    assert_eq!(get(&server, path).await.status, 200);
    for sign in
        ["x-forwarded-for: 203.0.113.9", "forwarded: for=203.0.113.9", "via: 1.1 caddy", "x-real-ip: x"]
    {
        assert_eq!(get(&server, &format!("{path}\r\n{sign}")).await.status, 401, "{sign}");
    }
    // As nginx forwards it by default: with its own name for us, and HTTP/1.0.
    assert_eq!(get(&server, "/v1/pipelines HTTP/1.0\r\nhost: 127.0.0.1:7333").await.status, 401);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_may_close_or_open_the_reads_whatever_else_is_set() {
    let mut closed = without_tokens();
    closed.options.reads = Reads::Token;
    let server = start_with(closed).await;
    assert_eq!(status(&server, "GET", "/v1/pipelines", None, "localhost").await, 401);
    server.stop().await;
    let mut open = Setup::default();
    open.options.reads = Reads::Open;
    let server = start_with(open).await;
    assert_eq!(status(&server, "GET", "/v1/pipelines", None, "redrive.example").await, 200);
    assert_eq!(status(&server, "GET", "/metrics", None, "redrive.example").await, 200);
    assert_eq!(status(&server, "POST", "/v1/pipelines/orders/pause", None, "localhost").await, 401);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_double_host_is_refused() {
    let server = start_with(without_tokens()).await;
    for head in [
        "/livez HTTP/1.1",
        "/v1/pipelines HTTP/1.1",
        "/v1/pipelines HTTP/1.1\r\nhost: localhost\r\nhost: evil.example",
        "/nowhere HTTP/1.1\r\nhost: localhost\r\nHost: localhost",
    ] {
        let answer = get(&server, head).await;
        assert_eq!((answer.status, answer.json()["code"].as_str()), (400, Some("bad_request")), "{head}");
    }
    // HTTP/1.0 has no Host header, and a balancer may still probe liveness with it.
    assert_eq!(get(&server, "/livez HTTP/1.0").await.status, 200);
    assert_eq!(get(&server, "/v1/pipelines HTTP/1.0").await.status, 401);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn health_tells_nothing_but_a_word() {
    let server = start().await;
    for path in ["/livez", "/healthz", "/readyz"] {
        let answer = server.send(Request { path, ..Request::default() }).await;
        let fields = answer.json();
        assert_eq!(fields.as_object().unwrap().len(), 1, "{fields}");
        assert!(fields["status"].is_string(), "{fields}");
        assert!(answer.header("server").is_none());
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_tokens_are_limited_and_right_ones_never_are() {
    let server = start().await;
    let ask = async |token: &str| status(&server, "GET", "/v1/pipelines", Some(token), "localhost").await;
    let mut limited = 0;
    for guess in 0..200 {
        let wrong = format!("guess-{guess}-0123456789");
        match ask(&wrong).await {
            401 => {}
            429 => limited += 1,
            other => panic!("{other}"),
        }
        if guess % 10 == 0 {
            assert_eq!(ask(READER).await, 200, "after {guess} wrong ones");
        }
    }
    assert!(limited > 100, "{limited} of 200 were told to stop");
    let request =
        Request { path: "/v1/pipelines", token: Some("nobody-knows-this-one"), ..Request::default() };
    let answer = server.send(request).await;
    assert_eq!(answer.json()["code"], "too_many_wrong_tokens");
    assert_eq!((answer.header("retry-after"), answer.header("connection")), (Some("30"), Some("close")));
    let metrics = server.get("/metrics").await.text;
    let counted = metrics.lines().find_map(|line| line.strip_prefix("redrive_wrong_tokens_total "));
    assert_eq!(counted, Some("201"));
    server.stop().await;
}

/// A foreign page may send requests, but cannot read answers, and has no token to send.
#[tokio::test(flavor = "multi_thread")]
async fn no_answer_is_shared_with_other_origins_and_nothing_is_in_a_cookie() {
    let server = start_with(without_tokens()).await;
    for path in ["/", "/livez", "/v1/pipelines", "/metrics", "/v1/openapi.json"] {
        let answer =
            get(&server, &format!("{path} HTTP/1.1\r\nhost: localhost\r\norigin: https://evil.example"))
                .await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(!answer.headers.iter().any(|(name, _)| name.starts_with("access-control-")), "{path}");
        assert_eq!(answer.header("set-cookie"), None, "{path}");
    }
    let asked = server.send(Request { method: "OPTIONS", path: "/v1/replays", ..Request::default() }).await;
    assert_eq!(asked.status, 405);
    server.stop().await;
}
