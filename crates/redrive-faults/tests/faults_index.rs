//! The index is a cache: deleted, truncated, half gone or older than the journal, it is rebuilt or brought forward.

mod support;

use std::fs;

use redrive_faults::plan::{PIPELINES, Random};
use redrive_faults::verify::{Seen, copy_dir};
use support::{Rig, files_in, often};

#[derive(Debug, Clone, Copy)]
enum Harm {
    Delete,
    HalfDelete,
    Truncate,
    Older,
}

#[test]
fn whatever_happens_to_the_index_nothing_is_lost() {
    let rounds = often("REDRIVE_INDEX_ROUNDS", 24);
    let mut random = Random::new(often("REDRIVE_SEED", 4));
    let mut rig = Rig::new();
    let mut seen = Seen::default();
    for round in 0..rounds {
        if round % 8 == 0 {
            rig = Rig::new();
        }
        let older = rig.scratch.0.join("older");
        let _ = fs::remove_dir_all(&older);
        for pipeline in PIPELINES {
            let index = rig.dir.join(pipeline).join("index");
            if index.exists() {
                copy_dir(&index, &older.join(pipeline)).expect("a copy");
            }
        }
        if random.chance(50) {
            rig.work(random.next(), 300);
        } else {
            let victim = rig.start(random.next(), 0);
            support::random_moment(&rig, &mut random);
            victim.kill();
        }
        let harm = [Harm::Delete, Harm::HalfDelete, Harm::Truncate, Harm::Older][random.below(4) as usize];
        for pipeline in PIPELINES {
            let index = rig.dir.join(pipeline).join("index");
            if index.exists() {
                harm_index(harm, &index, &older.join(pipeline), &mut random);
            }
        }
        // The verifier compares the index it finds with one that is built from the journal alone.
        seen += rig.check(false, &format!("round {round}, {harm:?}"));
    }
    println!("{rounds} times harmed, verified after each: {seen}");
}

fn harm_index(harm: Harm, index: &std::path::Path, older: &std::path::Path, random: &mut Random) {
    let mut files = files_in(index);
    match harm {
        Harm::Delete => fs::remove_dir_all(index).expect("removed"),
        Harm::HalfDelete => {
            files.retain(|_| random.chance(50));
            for file in &files {
                fs::remove_file(file).expect("removed");
            }
        }
        Harm::Truncate => {
            let file = &files[random.below(files.len() as u64) as usize];
            let len = fs::metadata(file).expect("it is there").len();
            let open = fs::OpenOptions::new().write(true).open(file).expect("opened");
            open.set_len(random.below(len.max(1))).expect("cut");
        }
        Harm::Older if older.exists() => {
            fs::remove_dir_all(index).expect("removed");
            copy_dir(older, index).expect("a copy");
        }
        Harm::Older => {}
    }
}
