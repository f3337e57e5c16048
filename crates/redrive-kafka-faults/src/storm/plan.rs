//! Which faults, in which order, against which targets: all of it follows from a seed.

use std::fmt;

use redrive_core::SplitMix64;

/// Number of brokers, and of processors.
pub const NODES: u64 = 3;

/// Nodes of the cluster count from 1, processors from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    BrokerKilled {
        node: u32,
    },
    BrokerFrozen {
        node: u32,
    },
    BrokersRolled,
    ProcessorKilled {
        processor: usize,
        disk_lost: bool,
    },
    /// For longer than its session.
    ProcessorFrozen {
        processor: usize,
    },
    ProcessorsRolled,
    BothKilled {
        node: u32,
        processor: usize,
        disk_lost: bool,
    },
    /// The source of the unordered flow gets more partitions.
    PartitionsAdded,
    /// Write permission on the tiers and on `T.DLQ` is revoked; meanwhile a processor dies with its disk.
    WriteRevoked {
        processor: usize,
    },
    /// One flow is paused while a processor is killed and another one restarted.
    PausedInRebalance {
        killed: usize,
    },
    /// Letters are put back onto the source by hand while a processor is dead.
    PutBack {
        processor: usize,
    },
}

impl Fault {
    /// Whether deliveries may be repeated because of it. A clean stop and a clean rebalance repeat nothing.
    pub const fn may_repeat(self) -> bool {
        !matches!(self, Self::ProcessorsRolled | Self::PartitionsAdded)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let disk = |lost: bool| if lost { ", disk lost" } else { "" };
        match *self {
            Self::BrokerKilled { node } => write!(f, "broker {node} killed (-9)"),
            Self::BrokerFrozen { node } => write!(f, "broker {node} frozen"),
            Self::BrokersRolled => f.write_str("rolling restart of the brokers"),
            Self::ProcessorKilled { processor, disk_lost } => {
                write!(f, "processor {processor} killed (-9){}", disk(disk_lost))
            }
            Self::ProcessorFrozen { processor } => write!(f, "processor {processor} frozen"),
            Self::ProcessorsRolled => f.write_str("rolling restart of the processors"),
            Self::BothKilled { node, processor, disk_lost } => {
                write!(f, "broker {node} and processor {processor} killed (-9){}", disk(disk_lost))
            }
            Self::PartitionsAdded => f.write_str("partitions added to orders"),
            Self::WriteRevoked { processor } => {
                write!(f, "write revoked, processor {processor} killed, disk lost")
            }
            Self::PausedInRebalance { killed } => {
                write!(f, "orders paused, processor {killed} killed, another restarted")
            }
            Self::PutBack { processor } => write!(f, "letters put back, processor {processor} killed"),
        }
    }
}

/// Returns every kind of fault `rounds` times, the most harmful ones more often, in an order and against targets that
/// follow from the seed. Partitions are added twice at most.
pub fn plan(seed: u64, rounds: u64) -> Vec<Fault> {
    let mut random = SplitMix64::new(seed);
    let mut faults = Vec::new();
    for round in 0..rounds {
        let mut node = || random.below(NODES) as u32 + 1;
        let nodes = [node(), node(), node(), node()];
        let mut processor = || random.below(NODES) as usize;
        faults.extend([
            Fault::BrokerKilled { node: nodes[0] },
            Fault::BrokerKilled { node: nodes[1] },
            Fault::BrokerFrozen { node: nodes[2] },
            Fault::BrokersRolled,
            Fault::ProcessorKilled { processor: processor(), disk_lost: false },
            Fault::ProcessorKilled { processor: processor(), disk_lost: false },
            Fault::ProcessorKilled { processor: processor(), disk_lost: true },
            Fault::ProcessorFrozen { processor: processor() },
            Fault::ProcessorsRolled,
            Fault::BothKilled { node: nodes[3], processor: processor(), disk_lost: round % 2 == 1 },
            Fault::WriteRevoked { processor: processor() },
            Fault::PausedInRebalance { killed: processor() },
            Fault::PutBack { processor: processor() },
        ]);
        if round < 2 {
            faults.push(Fault::PartitionsAdded);
        }
    }
    shuffle(&mut faults, &mut random);
    faults
}

fn shuffle(faults: &mut [Fault], random: &mut SplitMix64) {
    for last in (1..faults.len()).rev() {
        faults.swap(last, random.below(last as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_storm_every_time_and_another_seed_another() {
        assert_eq!(plan(7, 2), plan(7, 2));
        assert_ne!(plan(7, 2), plan(8, 2));
    }

    #[test]
    fn one_round_has_every_kind_of_fault() {
        let faults = plan(1, 1);
        let has = |is: fn(&Fault) -> bool| faults.iter().any(is);
        assert!(has(|fault| matches!(fault, Fault::BrokerKilled { .. })));
        assert!(has(|fault| matches!(fault, Fault::BrokerFrozen { .. })));
        assert!(has(|fault| matches!(fault, Fault::BrokersRolled)));
        assert!(has(|fault| matches!(fault, Fault::ProcessorKilled { disk_lost: false, .. })));
        assert!(has(|fault| matches!(fault, Fault::ProcessorKilled { disk_lost: true, .. })));
        assert!(has(|fault| matches!(fault, Fault::ProcessorFrozen { .. })));
        assert!(has(|fault| matches!(fault, Fault::ProcessorsRolled)));
        assert!(has(|fault| matches!(fault, Fault::BothKilled { .. })));
        assert!(has(|fault| matches!(fault, Fault::PartitionsAdded)));
        assert!(has(|fault| matches!(fault, Fault::WriteRevoked { .. })));
        assert!(has(|fault| matches!(fault, Fault::PausedInRebalance { .. })));
        assert!(has(|fault| matches!(fault, Fault::PutBack { .. })));
        assert_eq!(faults.len(), 14);
        assert_eq!(plan(1, 4).iter().filter(|fault| **fault == Fault::PartitionsAdded).count(), 2);
    }
}
