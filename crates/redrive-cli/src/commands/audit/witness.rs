//! The witness: somebody other than Redrive who knows which ids had their effect.

use std::path::Path;

use super::postgres::Postgres;
use super::stub::Stub;
use crate::client::Place;
use crate::exit::Failed;

#[derive(Debug)]
pub enum Witness {
    /// The table `applied` of a PostgreSQL database.
    Postgres(Postgres),
    /// The ledger of `redrive downstream`, over HTTP.
    Stub(Stub),
}

/// What else a witness says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Testimony {
    /// Calls that came again after their effect, and did nothing.
    pub repeats_merged: Option<u64>,
}

impl Witness {
    /// Whom `--applied` means. `ca_file` is for one that is asked over https.
    pub fn at(url: &str, ca_file: Option<&Path>) -> Result<Self, Failed> {
        // The text is never repeated as a whole: a database's address may hold a password.
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return url.parse().map(Self::Postgres);
        }
        if url.starts_with("http://") || url.starts_with("https://") {
            let place: Place = url.parse().map_err(|fault: crate::client::place::PlaceFault| {
                Failed::usage(format!("--applied: {fault}"))
            })?;
            return Stub::new(place, ca_file).map(Self::Stub);
        }
        Err(Failed::usage("--applied is neither postgres://… nor http://…")
            .hint("give the database with the table `applied`, or the address of `redrive downstream`, http://127.0.0.1:7335"))
    }

    /// How the proof is called in the output.
    pub fn proof(&self) -> &'static str {
        match self {
            Self::Postgres(_) => "by id against postgres",
            Self::Stub(_) => "by id against the downstream's ledger",
        }
    }

    /// Tells `each` every id that had its effect, once per row.
    pub async fn applied(&self, each: &mut impl FnMut(&str)) -> Result<(), Failed> {
        match self {
            Self::Postgres(postgres) => postgres.applied(each).await,
            Self::Stub(stub) => stub.applied(each).await,
        }
    }

    /// Tells `each` every row of the table of effects.
    pub async fn effects(&self, table: &str, each: &mut impl FnMut(&str)) -> Result<(), Failed> {
        match self {
            Self::Postgres(postgres) => postgres.effects(table, each).await,
            Self::Stub(_) => {
                Err(Failed::usage("--effects is a table of a database; the downstream's ledger has none"))
            }
        }
    }

    pub async fn testimony(&self) -> Result<Testimony, Failed> {
        match self {
            Self::Postgres(_) => Ok(Testimony::default()),
            Self::Stub(stub) => Ok(Testimony { repeats_merged: stub.duplicates().await? }),
        }
    }
}
