//! The OpenAPI 3.1 document, made from the table of routes. A committed copy is docs/reference/openapi.json.

mod operations;
mod schemas;

use axum::http::Method;
use serde_json::{Map, Value, json};

use crate::answer::Json;
use crate::auth::Access;
use crate::ingest::batch::LINES_MAX;
use crate::problem::Code;
use crate::routes::{ROUTES, Route};
use operations::{Described, describe};

pub(crate) async fn serve() -> Json<Value> {
    Json(document())
}

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
            "description": "Messages in, dead letters out and back. Reads are open on loopback; everything else needs a \
                            bearer token with the scope named at each request. Times are RFC 3339 in UTC.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "http://127.0.0.1:7333" }],
        "paths": paths,
        "components": {
            "schemas": schemas::schemas(),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn operation(route: &Route) -> Value {
    let Described { id, summary, params, body, answers, codes } = describe(route.operation);
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
    let guarded: &[Code] =
        if matches!(route.access, Access::Needs(_)) { &[Code::Unauthorized, Code::Forbidden] } else { &[] };
    for code in codes.iter().chain(guarded) {
        let status = code.status().as_u16().to_string();
        let entry = responses.entry(status).or_insert_with(|| {
            let content = json!({ "application/json": { "schema": schema_of("Problem") } });
            json!({ "description": "", "content": content })
        });
        let before = entry["description"].as_str().unwrap_or_default();
        let sep = if before.is_empty() { "" } else { ", " };
        entry["description"] = json!(format!("{before}{sep}`{}`", code.name()));
    }
    let mut operation = json!({ "operationId": id, "summary": summary, "responses": responses });
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
        operation["requestBody"] = json!({ "required": true, "content": content });
    }
    if let Access::Needs(scope) = route.access {
        operation["security"] = json!([{ "token": [] }]);
        operation["x-scope"] = json!(scope.name());
        operation["description"] = json!(format!("Scope `{scope}`."));
    }
    operation
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
