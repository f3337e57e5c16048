//! The witness: a system other than Redrive that knows which ids had their effect.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use super::postgres::Postgres;
use super::stub::Stub;
use crate::client::ApiAddress;
use crate::exit::{Exit, Failed};

#[derive(Debug)]
pub enum AuditWitness {
    /// The table `applied` of a PostgreSQL database.
    Postgres(Postgres),
    /// The ledger of `redrive downstream`, over HTTP.
    Stub(Stub),
    /// A file with one id per line, such as the result of a query elsewhere.
    File(PathBuf),
}

/// Further findings of a witness.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WitnessReport {
    /// Repeated calls after the effect, which did nothing.
    pub repeats_merged: Option<u64>,
}

impl AuditWitness {
    /// Parses `--applied`. `ca_file` is for a witness over https.
    pub fn at(url: &str, ca_file: Option<&Path>) -> Result<Self, Failed> {
        // The text is never repeated as a whole: the address of a database may contain a password.
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return url.parse().map(Self::Postgres);
        }
        if url.starts_with("http://") || url.starts_with("https://") {
            let address: ApiAddress =
                url.parse().map_err(|fault: crate::client::address::ApiAddressFault| {
                    Failed::usage(format!("--applied: {fault}"))
                })?;
            return Stub::new(address, ca_file).map(Self::Stub);
        }
        if !url.contains("://") && Path::new(url).is_file() {
            return Ok(Self::File(PathBuf::from(url)));
        }
        Err(Failed::usage("--applied is neither postgres://…, nor http://…, nor a file")
            .hint("give the database with the table `applied`, the address of `redrive downstream`, http://127.0.0.1:7335, or a file with one id on each line"))
    }

    /// The name of the proof in the output.
    pub fn proof(&self) -> &'static str {
        match self {
            Self::Postgres(_) => "by id against postgres",
            Self::Stub(_) => "by id against the downstream's ledger",
            Self::File(_) => "by id against a file",
        }
    }

    /// Calls `each` with every id that had its effect, once per row.
    pub async fn applied(&self, each: &mut impl FnMut(&str)) -> Result<(), Failed> {
        match self {
            Self::Postgres(postgres) => postgres.applied(each).await,
            Self::Stub(stub) => stub.applied(each).await,
            Self::File(path) => read_ids(path, each),
        }
    }

    /// Calls `each` with every row of the table of effects.
    pub async fn effects(&self, table: &str, each: &mut impl FnMut(&str)) -> Result<(), Failed> {
        match self {
            Self::Postgres(postgres) => postgres.effects(table, each).await,
            Self::Stub(_) | Self::File(_) => {
                Err(Failed::usage("--effects is a table of a database; only postgres://… has one"))
            }
        }
    }

    pub async fn report(&self) -> Result<WitnessReport, Failed> {
        match self {
            Self::Postgres(_) | Self::File(_) => Ok(WitnessReport::default()),
            Self::Stub(stub) => Ok(WitnessReport { repeats_merged: stub.duplicates().await? }),
        }
    }
}

/// Every non-empty line is an id.
fn read_ids(path: &Path, each: &mut impl FnMut(&str)) -> Result<(), Failed> {
    let failed = |error: std::io::Error| {
        Failed::new(Exit::Bad, format!("--applied: {} cannot be read: {error}", path.display()))
    };
    for line in BufReader::new(std::fs::File::open(path).map_err(failed)?).lines() {
        let line = line.map_err(failed)?;
        let id = line.trim();
        if !id.is_empty() {
            each(id);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_a_witness_with_one_id_on_each_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("applied.txt");
        std::fs::write(&path, "o-1\n\no-2\r\no-1\n").unwrap();
        let Ok(AuditWitness::File(path)) = AuditWitness::at(path.to_str().unwrap(), None) else {
            panic!("no witness")
        };
        let mut seen = Vec::new();
        read_ids(&path, &mut |id| seen.push(id.to_owned())).unwrap();
        assert_eq!(seen, ["o-1", "o-2", "o-1"]);
        assert!(AuditWitness::at("no-such-file", None).is_err());
    }
}
