//! The members of the group, and their partitions.

use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use redrive::internal::engine::EngineError;

use crate::Cluster;
use crate::client::reach;

const WAIT: Duration = Duration::from_secs(10);

/// One member of the group, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// `redrive_0.4.0_5f1a22c0_redrive-0_orders`: program, version, settings, name, pipeline.
    pub client: String,
    pub host: String,
    /// Topics with their partitions.
    pub assigned: Vec<(String, Vec<i32>)>,
}

impl Member {
    /// Returns name, version and settings of the process, if this is its consumer of `pipeline`.
    pub fn of_pipeline(&self, pipeline: &str) -> Option<Process<'_>> {
        let process = self.client.strip_suffix(pipeline)?.strip_suffix('_')?;
        let mut parts = process.splitn(4, '_');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some("redrive"), Some(version), Some(settings), Some(name)) => {
                Some(Process { name, version: Some(version), settings: Some(settings) })
            }
            _ => Some(Process { name: process, version: None, settings: None }),
        }
    }

    pub fn partitions(&self, topic: &str) -> &[i32] {
        self.assigned.iter().find(|(name, _)| name == topic).map_or(&[], |(_, partitions)| partitions)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process<'a> {
    pub name: &'a str,
    pub version: Option<&'a str>,
    /// Differs between processes with different pipeline settings.
    pub settings: Option<&'a str>,
}

/// Returns the state of the cluster's group (`Stable`, `Empty`, `PreparingRebalance`, …) and its members.
pub fn members(cluster: &Cluster) -> Result<(String, Vec<Member>), EngineError> {
    let failed = |error: KafkaError| {
        EngineError::Unavailable(format!("the group {} cannot be asked about: {error}", cluster.group))
    };
    let consumer: BaseConsumer = cluster.reader().create().map_err(failed)?;
    // Ask for metadata first: a cluster that refuses access just does not answer questions about groups.
    reach::metadata(cluster, |wait| consumer.fetch_metadata(None, wait))
        .map_err(|unreached| unreached.of(cluster))?;
    members_by(&consumer, cluster, WAIT).map_err(failed)
}

/// Like [`members`], with an existing consumer.
pub fn members_by(
    consumer: &BaseConsumer,
    cluster: &Cluster,
    wait: Duration,
) -> Result<(String, Vec<Member>), KafkaError> {
    let list = consumer.fetch_group_list(Some(&cluster.group), wait)?;
    let Some(group) = list.groups().iter().find(|group| group.name() == cluster.group) else {
        return Ok(("Empty".to_owned(), Vec::new()));
    };
    let members = group.members().iter().map(|member| Member {
        client: member.client_id().to_owned(),
        host: member.client_host().trim_start_matches('/').to_owned(),
        assigned: member.assignment().map(assignment).unwrap_or_default(),
    });
    Ok((group.state().to_owned(), members.collect()))
}

/// Parses an assignment of the group protocol: a version, then topics, each with its partitions. A part that cannot be
/// read is left out.
fn assignment(bytes: &[u8]) -> Vec<(String, Vec<i32>)> {
    let mut rest = bytes.get(2..).unwrap_or_default();
    let mut assigned = Vec::new();
    let mut read = || {
        let topics = number(&mut rest)?;
        for _ in 0..topics {
            let (len, after) = rest.split_at_checked(2)?;
            let len = usize::from(u16::from_be_bytes([len[0], len[1]]));
            let (name, after) = after.split_at_checked(len)?;
            rest = after;
            let count = number(&mut rest)?;
            let mut partitions = (0..count).map(|_| number(&mut rest)).collect::<Option<Vec<_>>>()?;
            partitions.sort_unstable();
            assigned.push((String::from_utf8_lossy(name).into_owned(), partitions));
        }
        Some(())
    };
    let _ = read();
    assigned
}

fn number(rest: &mut &[u8]) -> Option<i32> {
    let (bytes, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    Some(i32::from_be_bytes(*bytes)).filter(|number| *number >= 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(client: &str) -> Member {
        Member { client: client.to_owned(), host: String::new(), assigned: Vec::new() }
    }

    #[test]
    fn a_member_is_known_by_what_its_client_is_called() {
        let ours = member("redrive_0.4.0_5f1a22c0_redrive-0_a_orders_eu");
        let process = ours.of_pipeline("orders_eu").unwrap();
        assert_eq!(
            (process.name, process.version, process.settings),
            ("redrive-0_a", Some("0.4.0"), Some("5f1a22c0"))
        );
        assert_eq!(ours.of_pipeline("orders"), None);
        assert_eq!(member("rdkafka").of_pipeline("orders"), None);
        let own = member("mine_orders");
        assert_eq!(
            own.of_pipeline("orders").unwrap(),
            Process { name: "mine", version: None, settings: None }
        );
    }

    #[test]
    fn an_assignment_is_read_as_far_as_it_goes() {
        let mut bytes = vec![0, 1, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 3];
        assert_eq!(assignment(&bytes), [("t".to_owned(), vec![3, 7])]);
        bytes.truncate(15);
        assert_eq!(assignment(&bytes), []);
        assert_eq!(assignment(&[]), []);
    }
}
