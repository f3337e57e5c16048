//! nginx and Caddy in front of a real processor, with the recipes of `deploy/proxy` and with defaults: nothing can be
//! read through them without a token, whatever a client claims.

mod world;

use std::path::Path;

use redrive_server::auth::Access;
use redrive_server::routes::ROUTES;
use world::process::{Processor, redrive};
use world::proxy::{Kind, Proxy};
use world::{free_port, http};

const OPS: &str = "ops-secret-0123456789";

/// Headers by which a client may pretend to be local.
const LIES: [&[(&str, &str)]; 5] = [
    &[],
    &[("x-forwarded-for", "127.0.0.1"), ("x-real-ip", "127.0.0.1")],
    &[("forwarded", "for=127.0.0.1;host=localhost")],
    &[("x-forwarded-host", "localhost"), ("via", "")],
    &[("connection", "x-forwarded-for, x-real-ip, via")],
];

/// A processor with one message, on its own port. Without `tokens` it generates one, as on a developer's machine.
fn processor(dir: &Path, tokens: bool) -> Processor {
    let mut config = "[engine]\ndir = \"store\"\n[server]\nlisten = \"127.0.0.1:@PORT@\"\n".to_owned();
    if tokens {
        std::fs::write(dir.join("ops"), OPS).unwrap();
        config +=
            "[[server.token]]\nname = \"ops\"\nscopes = [\"read\", \"ingest\"]\nsecret_file = \"ops\"\n";
    }
    config += "[[pipeline]]\nname = \"orders\"\n[pipeline.sink.webhook]\nurl = \"http://127.0.0.1:9/\"\n";
    let port = free_port();
    std::fs::write(dir.join("redrive.toml"), config.replace("@PORT@", &port.to_string())).unwrap();
    Processor::run(dir, port, redrive(dir).env_remove("REDRIVE_TOKEN").arg("processor"))
}

fn reads() -> impl Iterator<Item = &'static str> {
    ROUTES.iter().filter(|route| route.operation.method() == "GET").filter_map(|route| match route.access {
        Access::Needs(_) => Some(route.path),
        Access::Open => None,
    })
}

fn nothing_is_read_without_a_token(proxy: &Proxy, what: &str) {
    let mut asked = 0;
    for path in reads() {
        let path = path
            .replace("{pipeline}", "orders")
            .replace("{*id}", "o-1")
            .replace("{*key}", "k")
            .replace("{id}", "r-1");
        for lies in LIES {
            for host in ["localhost", "127.0.0.1:7333", "redrive.example.com"] {
                let answer = http::send_as(host, "GET", &proxy.url(&path), lies, "");
                assert_eq!(answer.status, 401, "{what}: {path} as {host} with {lies:?}: {}", answer.body);
                asked += 1;
            }
        }
    }
    assert!(asked > 100);
    for open in ["/livez", "/readyz"] {
        assert_eq!(http::get(&proxy.url(open)).status, 200, "{what}");
    }
    let page = http::get(&proxy.url("/"));
    assert!(page.status == 200 && page.header("content-security-policy").is_some(), "{what}: {}", page.head);
}

#[test]
fn through_a_proxy_nothing_is_readable_without_a_token() {
    for kind in Kind::ALL {
        if kind.find().is_none() {
            println!(
                "skipped: {kind:?} in front of a processor: it is not installed; scripts/tools.sh installs it"
            );
            continue;
        }
        for tokens in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let processor = processor(dir.path(), tokens);
            let made = std::fs::read_to_string(dir.path().join("store/token")).unwrap_or_default();
            let bearer = format!("Bearer {}", if tokens { OPS } else { made.trim() });
            let headers = [("authorization", bearer.as_str())];
            for recipe in [true, false] {
                let what = format!("{kind:?}, tokens configured: {tokens}, our recipe: {recipe}");
                let config = |port| if recipe { kind.recipe(port) } else { kind.defaults(port) };
                let proxy = Proxy::start(kind, dir.path(), processor.port, config);
                nothing_is_read_without_a_token(&proxy, &what);
                let messages = proxy.url("/v1/pipelines/orders/messages");
                let sent = http::send("POST", &messages, &headers, r#"{"id":"o-1","delay":"1h"}"#);
                assert!(matches!(sent.status, 200 | 202), "{what}: {}", sent.body);
                let read = http::send("GET", &proxy.url("/v1/pipelines/orders/messages/o-1"), &headers, "");
                assert_eq!((read.status, &read.json()["id"]), (200, &"o-1".into()), "{what}");
            }
            // Locally and without a proxy, reads are open only as long as no token is configured.
            let straight = http::get(&processor.url("/v1/pipelines")).status;
            assert_eq!(straight, if tokens { 401 } else { 200 });
        }
    }
}

/// The recipes in the guide are the tested ones.
#[test]
fn the_guide_prints_the_recipes_as_they_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = std::fs::read_to_string(root.join("docs/guide/operations.md")).unwrap();
    for recipe in ["nginx.conf", "Caddyfile"] {
        let text = std::fs::read_to_string(root.join("deploy/proxy").join(recipe)).unwrap();
        let lines =
            text.lines().filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
        for line in lines {
            assert!(guide.lines().any(|printed| printed == line), "{recipe}: {line}");
        }
    }
}
