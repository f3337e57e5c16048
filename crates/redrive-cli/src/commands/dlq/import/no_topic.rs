//! Replaces `topic` in a build without Kafka: only files can be imported.

use super::ImportArgs;
use super::batch::ImportBatch;
use super::tally::Tally;
use crate::args::Global;
use crate::exit::Failed;

#[derive(Debug)]
pub enum TopicReader {}

impl TopicReader {
    pub fn of(_: &ImportArgs, _: &str, _: &Global) -> Result<Self, Failed> {
        Err(Failed::usage("this build knows no Kafka")
            .hint("use a build with the feature `kafka`, or --file"))
    }

    pub fn read(self, _: &mut dyn FnMut(ImportBatch) -> bool) -> Result<Tally, Failed> {
        match self {}
    }
}
