-- The ledger: pins, runs, destinations, receipts and their events. See src/ledger/mod.rs for the verbs, and the
-- comments of migrations/postgres for the meaning of every column.
-- Times are integer microseconds since 1970-01-01T00:00:00Z.

CREATE TABLE ledger_identity (
    singleton     INTEGER NOT NULL PRIMARY KEY DEFAULT 1 CHECK (singleton = 1),
    ledger_id     TEXT    NOT NULL DEFAULT (lower(hex(randomblob(16)))),
    environment   TEXT    NOT NULL CHECK (environment <> ''),
    stable_check  BLOB    NOT NULL CHECK (length(stable_check) = 8),
    created_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE key_pins (
    iso_week   INTEGER NOT NULL PRIMARY KEY,
    key_id     TEXT    NOT NULL,
    key_check  BLOB    NOT NULL CHECK (length(key_check) = 8),
    pinned_at  INTEGER NOT NULL
) STRICT;

CREATE TABLE content_pins (
    digest_type      TEXT    NOT NULL,
    content_version  TEXT    NOT NULL,
    content_hash     BLOB    NOT NULL CHECK (length(content_hash) = 32),
    pinned_at        INTEGER NOT NULL,
    PRIMARY KEY (digest_type, content_version)
) STRICT, WITHOUT ROWID;

CREATE TABLE runs (
    run_number         INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id             TEXT    NOT NULL UNIQUE,
    iso_week           INTEGER NOT NULL,
    digest_type        TEXT    NOT NULL,
    content_version    TEXT    NOT NULL,
    mode               TEXT    NOT NULL CHECK (mode IN ('observe', 'advisory', 'enforce')),
    snapshot_id        TEXT    NOT NULL,
    rows               INTEGER NOT NULL CHECK (rows >= 0),
    parts              INTEGER NOT NULL CHECK (parts >= 0),
    repeated           INTEGER NOT NULL CHECK (repeated >= 0),
    rejected           INTEGER NOT NULL CHECK (rejected >= 0),
    key_id             TEXT    NOT NULL,
    content_hash       BLOB    NOT NULL CHECK (length(content_hash) = 32),
    deadline_at        INTEGER NOT NULL,
    correction         INTEGER NOT NULL CHECK (correction IN (0, 1)),
    brake              TEXT,
    opened_at          INTEGER NOT NULL,
    closed_at          INTEGER,
    closed_by          TEXT,
    close_note         TEXT,
    database_identity  TEXT,
    database_timeline  TEXT,
    trigger_count      INTEGER NOT NULL CHECK (trigger_count >= 1),
    last_triggered_at  INTEGER NOT NULL,
    CHECK (closed_at IS NOT NULL OR (closed_by IS NULL AND close_note IS NULL))
) STRICT;
CREATE UNIQUE INDEX runs_once ON runs (iso_week, digest_type, content_version, snapshot_id, mode) WHERE mode <> 'observe';

CREATE TABLE run_parts (
    run_number           INTEGER NOT NULL REFERENCES runs,
    part                 INTEGER NOT NULL CHECK (part >= 0),
    rows                 INTEGER NOT NULL CHECK (rows >= 0),
    state                TEXT    NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'leased', 'waiting', 'done')),
    worker               INTEGER,
    lease_ends_at        INTEGER,
    due_at               INTEGER,
    foreign_duplicate    INTEGER NOT NULL DEFAULT 0,
    foreign_in_progress  INTEGER NOT NULL DEFAULT 0,
    foreign_retryable    INTEGER NOT NULL DEFAULT 0,
    foreign_held         INTEGER NOT NULL DEFAULT 0,
    foreign_failed       INTEGER NOT NULL DEFAULT 0,
    foreign_suppressed   INTEGER NOT NULL DEFAULT 0,
    foreign_quarantined  INTEGER NOT NULL DEFAULT 0,
    marked_at            INTEGER,
    PRIMARY KEY (run_number, part),
    CHECK ((state = 'leased') = (worker IS NOT NULL AND lease_ends_at IS NOT NULL)),
    CHECK ((state = 'waiting') = (due_at IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE destinations (
    destination_number  INTEGER PRIMARY KEY AUTOINCREMENT,
    name                TEXT    NOT NULL,
    account             BLOB    NOT NULL CHECK (length(account) = 32),
    first_used_at       INTEGER NOT NULL,
    UNIQUE (name, account)
) STRICT;

CREATE TABLE destination_pace (
    name          TEXT NOT NULL PRIMARY KEY,
    arrival_at    INTEGER,
    paused_until  INTEGER
) STRICT, WITHOUT ROWID;

-- The rows lie in key order, a week's receipts together; no other index. No foreign key: it would be paid once a row.
CREATE TABLE receipts (
    iso_week            INTEGER NOT NULL,
    receipt_key         BLOB    NOT NULL,
    run_number          INTEGER NOT NULL,
    part                INTEGER NOT NULL,
    fingerprint         BLOB    NOT NULL,
    state               TEXT    NOT NULL,
    reason              TEXT,
    attempts            INTEGER NOT NULL,
    grant_number        INTEGER NOT NULL,
    worker              INTEGER,
    claimed_at          INTEGER NOT NULL,
    lease_ends_at       INTEGER,
    first_claimed_at    INTEGER NOT NULL,
    first_attempt_at    INTEGER,
    next_attempt_at     INTEGER,
    ambiguous_since     INTEGER,
    in_conflict         INTEGER NOT NULL DEFAULT 0 CHECK (in_conflict IN (0, 1)),
    reconciled          INTEGER NOT NULL DEFAULT 0 CHECK (reconciled IN (0, 1)),
    destination_number  INTEGER NOT NULL,
    provider_reference  TEXT,
    provider_code       TEXT,
    late_reference      TEXT,
    sent_at             INTEGER,
    updated_at          INTEGER NOT NULL,
    PRIMARY KEY (iso_week, receipt_key),
    CONSTRAINT receipts_lengths CHECK (length(receipt_key) = 32 AND length(fingerprint) = 32),
    CONSTRAINT receipts_state CHECK (state IN ('claimed', 'sent', 'retryable', 'held', 'failed', 'quarantined', 'suppressed')),
    CONSTRAINT receipts_numbers CHECK (attempts >= 0 AND grant_number >= 1 AND part >= 0),
    CONSTRAINT receipts_reason CHECK ((reason IS NULL) = (state IN ('claimed', 'sent'))),
    CONSTRAINT receipts_claimed CHECK ((state = 'claimed') = (lease_ends_at IS NOT NULL) AND (state <> 'claimed' OR worker IS NOT NULL)),
    CONSTRAINT receipts_sent CHECK ((state = 'sent') = (sent_at IS NOT NULL) AND (state <> 'sent' OR provider_reference IS NOT NULL)),
    CONSTRAINT receipts_retryable CHECK ((state = 'retryable') = (next_attempt_at IS NOT NULL)),
    CONSTRAINT receipts_doubt CHECK (
        CASE WHEN state = 'held' THEN ambiguous_since IS NOT NULL
             WHEN state IN ('claimed', 'retryable') THEN true
             ELSE ambiguous_since IS NULL END)
) STRICT, WITHOUT ROWID;

-- Rows are appended; what is found by key is the index. A table in key order would touch a page for every event.
CREATE TABLE receipt_events (
    event_id            INTEGER PRIMARY KEY AUTOINCREMENT,
    iso_week            INTEGER NOT NULL,
    receipt_key         BLOB    NOT NULL CHECK (length(receipt_key) = 32),
    run_number          INTEGER NOT NULL,
    part                INTEGER NOT NULL,
    kind                TEXT    NOT NULL CHECK (kind IN ('claim', 'settle', 'give_back', 'lease_end', 'late_settle', 'lookup', 'conflict', 'review', 'double_accept')),
    at                  INTEGER NOT NULL,
    grant_number        INTEGER NOT NULL,
    worker              INTEGER,
    claimed_at          INTEGER,
    state               TEXT    NOT NULL CHECK (state IN ('claimed', 'sent', 'retryable', 'held', 'failed', 'quarantined', 'suppressed')),
    reason              TEXT,
    attempts            INTEGER NOT NULL,
    fingerprint         BLOB    NOT NULL CHECK (length(fingerprint) = 32),
    presented           BLOB    CHECK (length(presented) = 32),
    first_claimed_at    INTEGER NOT NULL,
    first_attempt_at    INTEGER,
    next_attempt_at     INTEGER,
    ambiguous_since     INTEGER,
    in_conflict         INTEGER NOT NULL CHECK (in_conflict IN (0, 1)),
    reconciled          INTEGER NOT NULL CHECK (reconciled IN (0, 1)),
    destination_number  INTEGER NOT NULL,
    provider_reference  TEXT,
    provider_code       TEXT,
    actor               TEXT,
    note                TEXT
) STRICT;
CREATE UNIQUE INDEX receipt_events_of_receipt ON receipt_events (iso_week, receipt_key, event_id);

CREATE TABLE receipt_conflicts (
    iso_week       INTEGER NOT NULL,
    receipt_key    BLOB    NOT NULL CHECK (length(receipt_key) = 32),
    presented      BLOB    NOT NULL CHECK (length(presented) = 32),
    run_number     INTEGER NOT NULL,
    recorded       BLOB    NOT NULL CHECK (length(recorded) = 32),
    part           INTEGER NOT NULL,
    seen_count     INTEGER NOT NULL CHECK (seen_count >= 1),
    first_seen_at  INTEGER NOT NULL,
    last_seen_at   INTEGER NOT NULL,
    closed_at      INTEGER,
    PRIMARY KEY (iso_week, receipt_key, presented, run_number),
    CHECK (presented <> recorded)
) STRICT, WITHOUT ROWID;

-- Events are history. Only retention may remove them, and says so by a row here inside its own transaction.
-- Nothing may change one.
CREATE TABLE retention_permit (
    granted_at  INTEGER NOT NULL
) STRICT;
CREATE TRIGGER receipt_events_keep BEFORE UPDATE ON receipt_events
BEGIN
    SELECT RAISE(ABORT, 'receipt_events is append-only: UPDATE refused');
END;
CREATE TRIGGER receipt_events_keep_all BEFORE DELETE ON receipt_events
WHEN NOT EXISTS (SELECT 1 FROM retention_permit)
BEGIN
    SELECT RAISE(ABORT, 'receipt_events is append-only: DELETE refused');
END;
-- INSERT OR REPLACE removes a row without asking the trigger above.
CREATE TRIGGER receipt_events_once BEFORE INSERT ON receipt_events
WHEN EXISTS (SELECT 1 FROM receipt_events WHERE event_id = NEW.event_id)
BEGIN
    SELECT RAISE(ABORT, 'receipt_events is append-only: REPLACE refused');
END;

CREATE VIEW receipt_overview AS
SELECT lower(hex(r.receipt_key)) AS receipt_key,
       printf('%04d-W%02d', r.iso_week / 100, r.iso_week % 100) AS iso_week,
       u.digest_type,
       u.content_version,
       r.state,
       r.reason,
       r.attempts,
       strftime('%Y-%m-%dT%H:%M:%S', r.first_claimed_at / 1000000, 'unixepoch') || printf('.%06dZ', r.first_claimed_at % 1000000) AS first_claimed_at,
       strftime('%Y-%m-%dT%H:%M:%S', r.sent_at / 1000000, 'unixepoch') || printf('.%06dZ', r.sent_at % 1000000) AS sent_at,
       strftime('%Y-%m-%dT%H:%M:%S', r.next_attempt_at / 1000000, 'unixepoch') || printf('.%06dZ', r.next_attempt_at % 1000000) AS next_attempt_at,
       strftime('%Y-%m-%dT%H:%M:%S', r.ambiguous_since / 1000000, 'unixepoch') || printf('.%06dZ', r.ambiguous_since % 1000000) AS ambiguous_since,
       d.name AS destination,
       r.provider_reference,
       lower(hex(r.fingerprint)) AS fingerprint,
       u.key_id,
       u.run_id,
       strftime('%Y-%m-%dT%H:%M:%S', r.updated_at / 1000000, 'unixepoch') || printf('.%06dZ', r.updated_at % 1000000) AS updated_at
FROM receipts r
LEFT JOIN runs u ON u.run_number = r.run_number
LEFT JOIN destinations d ON d.destination_number = r.destination_number;
