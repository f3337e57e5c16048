//! The schemas of requests and answers, derived from the types that parse and write them.

use redrive_api::{
    Accepted, Actions, AlertNotice, Compacted, DeadLetterEvent, Discard, DiscardAnswer, Edit, EditAnswer,
    Erase, EraseAnswer, GroupDecision, GroupDetail, GroupView, Groups, HealthEvent, ImportedLetters, KeyView,
    LetterPage, LetterStats, LetterView, Liveness, MessagePage, MessageView, NamedSubscription,
    NewSubscription, PipelineView, Pipelines, Purging, PurgingStoppedEvent, Refusal, RemovedSubscription,
    ReplayEvent, ReplayForecast, ReplayJob, Replays, Restored, StartReplay, Steered, SubscriptionEvent,
    SubscriptionKeys, SubscriptionPage, SubscriptionView, Undo, UndoSubscription, UndoneSubscriptions,
};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use crate::import::line::GivenLetter;
use crate::ingest::message::GivenMessage;

/// Adds the schema of each of these types, and of their parts.
macro_rules! add {
    ($generator:ident: $($of:ty),* $(,)?) => { $($generator.subschema_for::<$of>();)* };
}

/// All schemas by name. In an answer a field is required if it is always present, in a request if the server requires
/// it.
pub(super) fn schemas() -> Map<String, Value> {
    let mut answers = generator(SchemaSettings::draft2020_12().for_serialize());
    add!(answers: Accepted, Actions, AlertNotice, Compacted, DeadLetterEvent, DiscardAnswer, EditAnswer, EraseAnswer, GroupDetail, GroupView, Groups, HealthEvent, ImportedLetters, KeyView,
        LetterPage, LetterStats, LetterView, Liveness, MessagePage, MessageView, PipelineView, Pipelines, Purging, PurgingStoppedEvent, Refusal,
        RemovedSubscription, ReplayEvent, ReplayForecast, ReplayJob, Replays, Restored, Steered, SubscriptionEvent, SubscriptionKeys, SubscriptionPage,
        SubscriptionView, UndoneSubscriptions);
    let mut requests = generator(SchemaSettings::draft2020_12().for_deserialize());
    add!(requests: Discard, Edit, Erase, GivenLetter<'static>, GivenMessage<'static>, GroupDecision, NamedSubscription,
        NewSubscription, StartReplay, Undo, UndoSubscription);
    let mut answers = answers.take_definitions(true);
    answers.values_mut().for_each(without_null_where_left_out);
    let mut schemas = requests.take_definitions(true);
    schemas.extend(answers);
    schemas.values_mut().for_each(tidy);
    schemas
}

fn generator(settings: SchemaSettings) -> SchemaGenerator {
    settings.with(|settings| settings.definitions_path = "/components/schemas".into()).into_generator()
}

/// The fields of an object.
fn fields(schema: &mut Value) -> impl Iterator<Item = (&String, &mut Map<String, Value>)> {
    let fields = schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten();
    fields.filter_map(|(name, field)| Some((name, field.as_object_mut()?)))
}

/// Removes null from fields that are omitted when empty: they are never null.
fn without_null_where_left_out(schema: &mut Value) {
    let required = schema.get("required").cloned().unwrap_or_default();
    let is_required =
        |name: &String| required.as_array().is_some_and(|all| all.iter().any(|one| one == name));
    for (_, field) in fields(schema).filter(|(name, _)| !is_required(name)) {
        let Some(Value::Array(types)) = field.get_mut("type") else { continue };
        types.retain(|one| one != "null");
        if let [one] = &types[..] {
            field["type"] = one.clone();
        }
    }
}

/// Removes defaults that clients assume for older servers, which no server promises, and line breaks from the source.
fn tidy(schema: &mut Value) {
    for (_, field) in fields(schema) {
        field.remove("default");
        if let Some(Value::String(text)) = field.get_mut("description") {
            *text = text.replace('\n', " ");
        }
    }
}

#[cfg(test)]
mod tests {
    use redrive::internal::engine::{
        GroupState, LetterState, MessagePhase, PendingState, ProblemKind, ReplayTarget,
    };
    use redrive::internal::subscriptions::SubscriptionState;
    use redrive::replay::ReplayState;
    use serde_json::json;

    use super::*;

    /// Names that the engine chooses are listed in the schemas: none may be missing.
    #[test]
    fn a_schema_lists_every_name_that_the_engine_can_answer() {
        let schemas = schemas();
        let listed = |schema: &str, field: &str| {
            let names = &schemas[schema]["properties"][field]["enum"];
            names.as_array().unwrap_or_else(|| panic!("{schema}.{field} lists no names")).clone()
        };
        let check = |schema: &str, field: &str, names: &[&str]| {
            let mut listed = listed(schema, field);
            listed.retain(|name| !name.is_null());
            let missing: Vec<_> = names.iter().filter(|name| !listed.contains(&json!(name))).collect();
            assert!(missing.is_empty(), "{schema}.{field} lacks {missing:?}");
            assert_eq!(listed.len(), names.len(), "{schema}.{field} has names that nothing has: {listed:?}");
        };
        check("Letter", "state", &LetterState::ALL.map(LetterState::name));
        check("Message", "state", &MessagePhase::ALL.map(MessagePhase::name));
        check("ListedMessage", "state", &PendingState::ALL.map(PendingState::name));
        check("Group", "state", &GroupState::ALL.map(GroupState::name));
        check("PipelineProblem", "kind", &ProblemKind::ALL.map(ProblemKind::name));
        check("Replay", "state", &ReplayState::ALL.map(ReplayState::name));
        check("Replay", "to", &ReplayTarget::ALL.map(ReplayTarget::name));
        check("ReplayForecast", "to", &ReplayTarget::ALL.map(ReplayTarget::name));
        check("Subscription", "state", &SubscriptionState::ALL.map(SubscriptionState::name));
    }

    #[test]
    fn an_answer_requires_what_is_always_there_and_a_request_what_the_server_insists_on() {
        let schemas = schemas();
        let required = |schema: &str| schemas[schema]["required"].clone();
        assert_eq!(required("Problem"), json!(["code", "message", "hint"]));
        assert_eq!(required("StartReplay"), json!(["pipeline"]));
        assert_eq!(required("NewMessage"), Value::Null);
        assert_eq!(schemas["StartReplay"]["additionalProperties"], json!(false));
        let letter = required("Letter");
        assert!(letter.as_array().unwrap().contains(&json!("deadline")), "null, and there: {letter}");
        assert!(!letter.as_array().unwrap().contains(&json!("payload")), "only where asked for: {letter}");
        assert_eq!(required("ForeignLetter"), json!(["payload"]));
        assert_eq!(schemas["Message"]["properties"]["letter"]["type"], "string", "left out, and never null");
        assert_eq!(schemas["Message"]["properties"]["due"]["type"], json!(["string", "null"]));
    }

    #[test]
    fn what_a_field_means_is_said_where_it_is_declared() {
        let schemas = schemas();
        assert_eq!(schemas["Letter"]["properties"]["queue"]["description"], "The pipeline it died in.");
        assert_eq!(schemas["Attempt"]["properties"]["at"]["format"], "date-time");
        assert!(schemas.values().all(|schema| schema.get("$schema").is_none()));
    }
}
