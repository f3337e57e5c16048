//! The OpenAPI 3.1 document, generated from the table of routes. A committed copy is docs/reference/openapi.json.

mod operations;
mod schemas;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use axum::body::Body;
use axum::http::{HeaderValue, Method, header};
use axum::response::Response;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::access::auth::Access;
use crate::answer_memory::Held;
use crate::ingest::batch::LINES_MAX;
use crate::problem::Code;
use crate::routes::{Operation, ROUTES, Route};
use operations::{Described, describe};

/// The same bytes for all clients: one that does not read them occupies no memory.
pub(crate) async fn serve() -> Response {
    static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| format!("{}\n", document()).into());
    let mut response = Response::new(Body::from(DOCUMENT.clone()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    response.extensions_mut().insert(Held);
    response
}

const JSON: &str = "application/json";

/// The whole document.
pub fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path.replace("{*", "{")).or_insert_with(|| json!({}));
        let method = if route.operation.method() == Method::POST { "post" } else { "get" };
        path[method] = operation(&route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Redrive",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Messages in, dead letters out and back. Each request needs a bearer token with the scope that \
                            is named at it. Reads go without one only on a server that listens on loopback and has no \
                            configured token, or is set up with `reads = \"open\"`. Every error is JSON: \
                            `{\"code\",\"message\",\"hint\"}`; what is not HTTP at all, or has a head of more than 64 KiB, \
                            is answered by 400 or 431 without a body. Times are RFC 3339 in UTC.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "http://127.0.0.1:7333" }],
        "paths": paths,
        "webhooks": { "alert": alert() },
        "components": {
            "schemas": schemas::schemas(),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

/// The message that an `[[alert]]` sends.
fn alert() -> Value {
    json!({
        "post": {
            "summary": "A notice of an `[[alert]]`: it fires, or is resolved.",
            "requestBody": { "required": true, "content": { "application/json": { "schema": schema_of("AlertNotice") } } },
            "responses": { "2XX": { "description": "Accepted. Any other status is retried." } },
        }
    })
}

/// The fields of an event's data, except `type` and `at`.
fn event_data() -> Value {
    let of = ["DeadLetterEvent", "HealthEvent", "ReplayEvent", "SubscriptionEvent", "PurgingStoppedEvent"];
    json!({ "anyOf": of.map(schema_of) })
}

/// The inputs that a request may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Takes {
    pub params: bool,
    pub body: bool,
}

/// The documented inputs of an operation are what the server reads of a request.
pub(crate) fn takes(operation: Operation) -> Takes {
    let Described { params, body, .. } = describe(operation);
    Takes { params: !params.is_empty(), body: body.is_some() }
}

/// The name of an operation, as in `showPipeline`.
fn id(operation: Operation) -> String {
    let name = format!("{operation:?}");
    name[..1].to_lowercase() + &name[1..]
}

fn operation(route: &Route) -> Value {
    let Described { summary, params, body, answers, codes } = describe(route.operation);
    let mut parameters = path_parameters(route.path);
    for (name, kind, text) in params {
        let schema = json!({ "type": kind });
        parameters.push(json!({ "name": name, "in": "query", "schema": schema, "description": text }));
    }
    let mut responses = Map::new();
    for (status, text, media, schema) in answers {
        let content = json!({ *media: { "schema": schema_of(schema) } });
        responses.insert((*status).to_owned(), json!({ "description": text, "content": content }));
    }
    let mut all = common(route);
    all.extend(codes);
    let mut named = BTreeSet::new();
    for code in all.iter().filter(|code| named.insert(code.name())) {
        let status = code.status().as_u16().to_string();
        let entry = responses.entry(status).or_insert_with(|| {
            let content = json!({ "application/json": { "schema": schema_of("Problem") } });
            json!({ "description": "", "content": content })
        });
        let before = entry["description"].as_str().unwrap_or_default();
        let sep = if before.is_empty() { "" } else { ", " };
        entry["description"] = json!(format!("{before}{sep}`{}`", code.name()));
    }
    let mut operation =
        json!({ "operationId": id(route.operation), "summary": summary, "responses": responses });
    if !parameters.is_empty() {
        operation["parameters"] = json!(parameters);
    }
    if let Some(body) = body {
        let mut content = json!({ "application/json": { "schema": schema_of(body) } });
        if body == "NewMessage" {
            let lines = format!(
                "One NewMessage per line; all of them are accepted, or none. At most {LINES_MAX} lines, and 64 MiB unless \
                 the server is set up otherwise."
            );
            content["application/x-ndjson"] = json!({
                "schema": { "type": "string", "description": lines }
            });
        }
        if body == "ForeignLetter" {
            content = json!({ "application/x-ndjson": { "schema": schema_of(body) } });
        }
        operation["requestBody"] = json!({ "required": true, "content": content });
    }
    if route.operation == Operation::StreamEvents {
        operation["x-event-data"] = event_data();
    }
    if let Access::Needs(scope) = route.access {
        operation["security"] = json!([{ "token": [] }]);
        operation["x-scope"] = json!(scope.name());
        operation["description"] = json!(format!("Scope `{scope}`."));
    }
    operation
}

/// The errors that a route can return because of its shape, added automatically so that none is forgotten.
fn common(route: &Route) -> Vec<Code> {
    // No Host header or several; an unreadable path or query string.
    let mut codes = vec![Code::BadRequest];
    if !matches!(route.operation, Operation::Live | Operation::Health | Operation::Ready) {
        codes.push(Code::Busy);
    }
    if matches!(route.access, Access::Needs(_)) {
        codes.extend([Code::Unauthorized, Code::Forbidden, Code::TooManyWrongTokens]);
    }
    // A body is read on every route, if only to refuse it.
    if route.path.starts_with("/v1/") {
        codes.extend([Code::Timeout, Code::TooLarge]);
    }
    if route.path.contains('{') {
        codes.push(Code::NotFound);
    }
    if route.path.contains("{pipeline}") || route.path.starts_with("/v1/replays") {
        codes.extend([Code::Stopping, Code::Unavailable, Code::StorageFailed]);
    }
    codes
}

fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let of = |name: &str| {
        let name = name.trim_start_matches('*');
        json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })
    };
    names.map(of).collect()
}

/// A schema of this document by its name, or a plain type.
fn schema_of(name: &str) -> Value {
    if matches!(name, "string" | "object") {
        return json!({ "type": name });
    }
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_is_described_once_under_an_id_of_its_own() {
        let document = document();
        let mut ids = BTreeSet::new();
        for route in ROUTES {
            let method = route.operation.method().as_str().to_lowercase();
            let described = &document["paths"][route.path.replace("{*", "{")][&method];
            assert!(
                described["summary"].as_str().is_some_and(|summary| summary.ends_with('.')),
                "{}",
                route.path
            );
            assert!(ids.insert(described["operationId"].to_string()), "{}", route.path);
            assert!(described["responses"].as_object().is_some_and(|answers| !answers.is_empty()));
        }
        assert_eq!(ids.len(), ROUTES.len());
    }

    #[test]
    fn every_reference_leads_somewhere_and_every_schema_is_used() {
        fn collect(value: &Value, into: &mut BTreeSet<String>) {
            match value {
                Value::Object(fields) => {
                    if let Some(Value::String(to)) = fields.get("$ref") {
                        into.insert(to.trim_start_matches("#/components/schemas/").to_owned());
                    }
                    fields.values().for_each(|value| collect(value, into));
                }
                Value::Array(values) => values.iter().for_each(|value| collect(value, into)),
                _ => {}
            }
        }
        let document = document();
        let mut used = BTreeSet::new();
        collect(&document, &mut used);
        let there: BTreeSet<String> = schemas::schemas().keys().cloned().collect();
        assert_eq!(used, there);
    }

    #[test]
    fn every_code_is_named_somewhere() {
        let text = document().to_string();
        for code in Code::ALL {
            assert!(text.contains(&format!("`{}`", code.name())), "{}", code.name());
        }
    }
}
