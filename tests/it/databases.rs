//! Opens fresh ledgers for tests: SQLite files, and databases on a private PostgreSQL.
