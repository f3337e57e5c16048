//! How `build` reports settings that cannot work.

mod support;

use std::time::Duration;

use redrive::{
    AfterDead, BuildError, DeliveryOrder, Failure, MemoryStores, Message, Pipeline, Policy, Redrive,
};

async fn fine(_: &Message) -> Result<(), Failure> {
    Ok(())
}

fn keys(error: &BuildError) -> Vec<(Option<&str>, &str)> {
    error.faults.iter().map(|fault| (fault.pipeline.as_deref(), fault.key.as_str())).collect()
}

#[test]
fn all_faults_of_all_pipelines_are_shown_at_once() {
    let error = Redrive::builder()
        .pipeline(Pipeline::new("a").policy(Policy::tiers(["30s", "5s"])).concurrency(0))
        .pipeline(Pipeline::new("a").handler(fine).timeout("soon"))
        .pipeline(Pipeline::new("b/c").handler(fine).after_dead(AfterDead::BlockKey))
        .drain(Duration::MAX)
        .build()
        .unwrap_err();
    assert_eq!(
        keys(&error),
        [
            (None, "engine"),
            (None, "drain"),
            (Some("a"), "name"),
            (Some("a"), "handler"),
            (Some("a"), "tiers"),
            (Some("a"), "concurrency"),
            (Some("a"), "timeout"),
            (Some("b/c"), "name"),
            (Some("b/c"), "after_dead"),
        ]
    );
    let text = error.to_string();
    assert!(text.contains("pipeline `a`: `tiers` must grow"), "{text}");
    assert!(error.faults.iter().all(|fault| !fault.fix.is_empty()));
}

#[test]
fn a_store_that_does_not_open_is_a_fault_of_its_pipeline() {
    struct Broken;
    impl redrive::Stores for Broken {
        fn open(
            &self,
            _: &str,
            _: redrive::internal::engine::StoreOptions,
        ) -> Result<Box<dyn redrive::internal::engine::Engine>, redrive::internal::engine::EngineError>
        {
            Err(redrive::internal::engine::EngineError::Owned("pid 7".into()))
        }
    }
    let error =
        Redrive::builder().engine(Broken).pipeline(Pipeline::new("a").handler(fine)).build().unwrap_err();
    assert_eq!(keys(&error), [(Some("a"), "engine")]);
    assert!(error.to_string().contains("has an owner: pid 7"));
}

#[test]
fn nothing_to_run_is_a_fault() {
    let error = Redrive::builder().engine(MemoryStores::new()).build().unwrap_err();
    assert_eq!(keys(&error), [(None, "pipeline")]);
}

#[test]
fn finished_and_unfinished_policies_are_both_taken() {
    let finished = Policy::tiers(["5s"]).build().unwrap();
    let redrive = Redrive::builder()
        .engine(MemoryStores::new())
        .pipeline(Pipeline::new("a").policy(finished).handler(fine))
        .pipeline(Pipeline::new("b").policy(Policy::fixed("1s")).ordering(DeliveryOrder::Key).handler(fine))
        .build()
        .unwrap();
    assert!(
        redrive.pipeline("a").is_some() && redrive.pipeline("b").is_some() && redrive.pipeline("c").is_none()
    );
}
