//! The PostgreSQL of the tests, with a schema for each test.

use tokio_postgres::{Client, NoTls};

/// The server for the tests. Without it they fail: a skipped test would look like a passed one.
fn server_url() -> String {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/postgres/url");
    let url = std::env::var("REDRIVE_TEST_POSTGRES").or_else(|_| std::fs::read_to_string(file));
    url.expect(
        "this test needs a PostgreSQL server: run scripts/postgres.sh start, \
         or set REDRIVE_TEST_POSTGRES=postgres://user:password@host:port/database",
    )
    .trim()
    .to_owned()
}

/// A separate schema, removed on drop.
pub struct Schema {
    /// The address to connect to; tables are created and found in the schema.
    pub url: String,
    name: String,
    client: Client,
    runtime: tokio::runtime::Runtime,
}

impl Schema {
    pub fn new(word: &str) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = server_url();
        let (client, connection) = runtime.block_on(tokio_postgres::connect(&server, NoTls)).unwrap();
        runtime.spawn(connection);
        let name = format!("redrive_{word}_{}", std::process::id());
        let joint = if server.contains('?') { '&' } else { '?' };
        let url = format!("{server}{joint}options=-c%20search_path%3D{name}");
        let schema = Self { url, name, client, runtime };
        schema.execute(&format!(
            "DROP SCHEMA IF EXISTS {0} CASCADE; CREATE SCHEMA {0}; SET search_path = {0}",
            schema.name
        ));
        schema
    }

    pub fn execute(&self, statements: &str) {
        self.runtime.block_on(self.client.batch_execute(statements)).unwrap();
    }

    /// The first column of every row, as text.
    pub fn column(&self, query: &str) -> Vec<String> {
        let rows = self.runtime.block_on(self.client.query(query, &[])).unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let statement = format!("DROP SCHEMA IF EXISTS {} CASCADE", self.name);
        // A failure to clean up after a failed test must not hide that failure.
        let _ = self.runtime.block_on(self.client.batch_execute(&statement));
    }
}
