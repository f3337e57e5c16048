//! Creates the sample store in a directory: `sample DIR MESSAGES`. A release keeps one, so that the next release can
//! prove that it still opens it.

use std::path::Path;

use redrive_faults::{plan, sample};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, messages] = &args[..] else { panic!("usage: sample DIR MESSAGES") };
    let messages = messages.parse().expect("a number of messages");
    for pipeline in plan::PIPELINES {
        let fates = sample::make(Path::new(dir), pipeline, messages).expect("the sample is made");
        std::fs::write(format!("{dir}-{pipeline}.txt"), sample::write(&fates)).expect("written");
    }
}
