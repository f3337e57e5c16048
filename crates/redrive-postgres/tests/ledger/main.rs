//! The ledger against a real PostgreSQL. `scripts/postgres.sh start` provides one.

mod keeping;
mod once;
mod support;
