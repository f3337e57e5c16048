//! `redrive dlq` without arguments: how to work with dead letters, in the order of a working day.

use crate::exit::{Exit, Failed};
use crate::output::Output;

const LESSON: &str = "\
A dead letter is a message that Redrive gave up on. Nothing is lost: it is kept with every attempt, and nothing
removes it unless you say so. With many of them, go from groups to decisions (`orders` is the pipeline):

  redrive dlq groups orders                           letters by cause of death, with counts
  redrive dlq groups orders g7k2m9x4q                 why these letters are one group, and a few of them
  redrive dlq show orders g7k2m9x4q                   one of its letters: every attempt, payload, headers
  redrive dlq inspect orders --group g7k2m9x4q        its letters in a table

Fixed? Try a few before the rest, then put them all back, each once, at a pace your downstream can take:

  redrive dlq replay orders --group g7k2m9x4q --dry-run
  redrive dlq groups orders g7k2m9x4q --resolve       letters of this kind that die from now on show up as regressed
  redrive dlq replay orders --group g7k2m9x4q --rate 20/s

The message itself is wrong? Change it: see the difference first, replay what was changed, or take it back:

  redrive dlq edit orders --group g7k2m9x4q --set /currency='\"EUR\"' --dry-run
  redrive dlq edit orders --group g7k2m9x4q --jq '.currency |= ascii_upcase' --dry-run
  redrive dlq replay orders --edit e-12
  redrive dlq edit --undo e-12

Stopped, or lost track of it? A job survives a kill of the command or the processor:

  redrive dlq replays list
  redrive dlq replay --resume r-31

Not worth it? Close them; they can be taken back for thirty days:

  redrive dlq discard orders --group g7k2m9x4q --reason \"customers deleted\"
  redrive dlq undo d-9

Must the data go? Erase the contents for good; who, when and why are kept:

  redrive dlq erase orders --filter 'payload.customer.id:42' --reason \"GDPR ticket 881\" --dry-run

Whose are they?  redrive dlq groups orders --by tenant
Not now?  redrive dlq groups orders g7k2m9x4q --snooze 2d --note \"ticket 881\"
Elsewhere?  redrive dlq export orders --redact /card > letters.ndjson
From Spring, Connect, Streams …?  redrive dlq import --topic orders-dlt --pipeline orders --dry-run

Every command takes --help. Which letters: --group, --since 1h, or --filter
'reason:max_retries status:503 age:>1h -tenant:acme payload.customer.id:42'. Commands that change or replay letters
take --ids, --edit and --all as well.";

pub fn run(out: &mut Output) -> Result<Exit, Failed> {
    LESSON.lines().try_for_each(|line| out.line(line))?;
    Ok(Exit::Ok)
}
