//! The table `applied` of a PostgreSQL database as a witness. Read-only, in one snapshot.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, NoTls};

use crate::exit::{Exit, Failed};

/// Rows per round trip.
const FETCH: &str = "FETCH FORWARD 10000 FROM redrive_audit";

pub struct Postgres {
    config: Config,
}

impl FromStr for Postgres {
    type Err = Failed;

    /// The connection is not encrypted. That is fine on the same machine; to another host it is made only if the
    /// address says so explicitly.
    fn from_str(url: &str) -> Result<Self, Failed> {
        // The parser's own error could quote part of the password.
        let mut config: Config = url.parse().map_err(|_| {
            Failed::usage("--applied: the address of the database cannot be read")
                .hint("write it like postgres://user:password@127.0.0.1:5432/orders")
        })?;
        let local = config.get_hosts().iter().all(is_local);
        if config.get_ssl_mode() == SslMode::Require || (!local && !url.contains("sslmode=disable")) {
            return Err(Failed::usage(
                "--applied: this command speaks to PostgreSQL without TLS, and the database is on another machine",
            )
            .hint("audit on the database's own machine or through a tunnel, or add ?sslmode=disable if the network is yours"));
        }
        config.ssl_mode(SslMode::Disable).application_name("redrive audit");
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(10));
        }
        Ok(Self { config })
    }
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
        }
        Host::Unix(_) => true,
    }
}

impl Postgres {
    pub async fn applied(&self, each: &mut impl FnMut(&str)) -> Result<(), Failed> {
        self.read("applied", each).await
    }

    pub async fn effects(&self, table: &str, each: &mut impl FnMut(&str)) -> Result<(), Failed> {
        self.read(table, each).await
    }

    async fn read(&self, table: &str, each: &mut impl FnMut(&str)) -> Result<(), Failed> {
        let (client, connection) = self.config.connect(NoTls).await.map_err(|error| failed(&error))?;
        let connection = tokio::spawn(connection);
        let read = read(&client, table, each).await;
        drop(client);
        // The connection ends when the client is dropped; the statement has already reported any error.
        let _ = connection.await;
        read
    }
}

async fn read(client: &Client, table: &str, each: &mut impl FnMut(&str)) -> Result<(), Failed> {
    let fault = |error| failed(&error);
    client.batch_execute("BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ").await.map_err(fault)?;
    let (name, column) = find(client, table).await?;
    let declare = format!("DECLARE redrive_audit NO SCROLL CURSOR FOR SELECT \"{column}\"::text FROM {name}");
    client.batch_execute(&declare).await.map_err(fault)?;
    loop {
        let rows = client.query(FETCH, &[]).await.map_err(fault)?;
        if rows.is_empty() {
            return Ok(());
        }
        for row in rows {
            if let Some(id) = row.try_get::<_, Option<&str>>(0).map_err(fault)? {
                each(id);
            }
        }
    }
}

/// The table as quoted SQL, and the column with the id: `order_id`, else `id`.
async fn find(client: &Client, table: &str) -> Result<(String, String), Failed> {
    const FIND: &str = "SELECT attrelid::regclass::text, attname::text FROM pg_attribute \
         WHERE attrelid = to_regclass($1) AND attname IN ('order_id', 'id') AND NOT attisdropped \
         ORDER BY attname DESC LIMIT 1";
    let row = client.query_opt(FIND, &[&table]).await.map_err(|error| failed(&error))?;
    let row = row.ok_or_else(|| {
        Failed::usage(format!("--applied: the database has no table `{table}` with a column order_id or id"))
            .hint("check the database's name, its search_path and the rights of the role")
    })?;
    let get = |i| row.try_get::<_, String>(i).map_err(|error| failed(&error));
    Ok((get(0)?, get(1)?))
}

/// An unreachable database may come back, so try again; one that refuses needs a different request.
fn failed(error: &tokio_postgres::Error) -> Failed {
    match error.as_db_error() {
        Some(said) => Failed::usage(format!("--applied: the database answered: {}", said.message())),
        None => Failed::new(Exit::TryAgain, format!("--applied: the database does not answer: {error}")),
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Postgres(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_elsewhere_is_only_read_in_the_clear_if_the_address_says_so() {
        for url in [
            "postgres://audit@127.0.0.1/orders",
            "postgres://audit@localhost:5433/orders",
            "postgres://audit@[::1]/orders",
            "postgres://audit@%2Frun%2Fpostgresql/orders",
            "postgres://audit@db/orders?sslmode=disable",
        ] {
            assert!(url.parse::<Postgres>().is_ok(), "{url}");
        }
        for url in
            ["postgres://audit:s3cret@db/orders", "postgres://audit:s3cret@127.0.0.1/orders?sslmode=require"]
        {
            let failed = url.parse::<Postgres>().unwrap_err();
            assert_eq!(failed.exit, Exit::Usage);
            assert!(
                failed.to_string().contains("without TLS") && !failed.to_string().contains("s3cret"),
                "{failed}"
            );
        }
    }

    #[test]
    fn a_password_is_in_no_message() {
        let failed = "postgres://audit:s3cret@[/orders".parse::<Postgres>().unwrap_err();
        assert!(!failed.to_string().contains("s3cret"), "{failed}");
        let postgres: Postgres = "postgres://audit:s3cret@localhost/orders".parse().unwrap();
        assert_eq!(format!("{postgres:?}"), "Postgres(…)");
    }
}
