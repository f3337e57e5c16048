//! The queues between the polling thread and the Kafka engine, unchanged.

#[path = "../../../redrive-kafka/src/consume/handover.rs"]
pub(crate) mod handover;
