-- What survives a restart of the aggregator. Times are Unix seconds (REAL). PRAGMA user_version holds the version
-- of this schema; upgrades are numbered scripts beside this file.

-- Every row of a run has checksums over its other columns (checksum.py): a row that does not match is damaged.

-- One row per run: its spec, and its state as of event `state_seq`.
CREATE TABLE runs (
    run_id     TEXT PRIMARY KEY,
    request_id TEXT NOT NULL UNIQUE,     -- the proposer's idempotency key
    spec       BLOB NOT NULL,            -- canonical JSON; its SHA-256 is what the sites signed
    created_at REAL NOT NULL,
    memory     TEXT NOT NULL,            -- format of the method's memory (dcfpca/method_memory.py); empty: not known
    checksum   INTEGER NOT NULL,         -- of the columns above
    state      BLOB NOT NULL,            -- JSON of the run after event state_seq
    state_seq  INTEGER NOT NULL,
    software   TEXT NOT NULL,            -- version that wrote the state
    state_checksum INTEGER NOT NULL      -- of run_id and the three columns above
);

-- The journal: what happened since the run's stored state. Replaying it gives the run as it was.
CREATE TABLE events (
    run_id TEXT NOT NULL REFERENCES runs,
    seq    INTEGER NOT NULL,
    body   BLOB NOT NULL,                -- JSON of the event
    checksum INTEGER NOT NULL,
    PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;

-- The consensus that the open round answers, or the final one: one per run.
CREATE TABLE consensus (
    run_id TEXT PRIMARY KEY REFERENCES runs,
    body   BLOB NOT NULL,                -- npz without pickle
    checksum INTEGER NOT NULL
);

-- Finished rounds, for people.
CREATE TABLE rounds (
    run_id TEXT NOT NULL REFERENCES runs,
    round  INTEGER NOT NULL,
    view   BLOB NOT NULL,                -- serialized dcfpca.v1.RoundView
    checksum INTEGER NOT NULL,
    PRIMARY KEY (run_id, round)
) WITHOUT ROWID;

-- The opened sums of the latest rounds of runs with a fixed cohort, which members may fetch and check.
CREATE TABLE opened_sums (
    run_id TEXT NOT NULL REFERENCES runs,
    round  INTEGER NOT NULL,
    header BLOB NOT NULL,                -- serialized dcfpca.v1.SumHeader
    sum    BLOB NOT NULL,                -- residues, little-endian
    PRIMARY KEY (run_id, round)
);

-- Everyone who ever connected.
CREATE TABLE participants (
    name        TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    not_after   REAL NOT NULL,           -- when the certificate it showed last expires
    software    TEXT NOT NULL,
    rows        INTEGER NOT NULL,        -- of its matrix, as it said; 0 where not told
    features    BLOB NOT NULL,           -- SHA-256 over its feature names; empty where it has none
    last_seen   REAL NOT NULL
);

-- Certificates that are turned away, whatever the CA says.
CREATE TABLE revoked (
    fingerprint TEXT PRIMARY KEY,        -- a SHA-256 of the certificate, or another mark of dcfpca/pki/revocation_identifiers.py
    name        TEXT NOT NULL,
    reason      TEXT NOT NULL,
    at          REAL NOT NULL
);

-- Who did what when; each row holds the hash of the one before and the aggregator's signature.
CREATE TABLE audit (
    sequence    INTEGER PRIMARY KEY,
    at_ms       INTEGER NOT NULL,
    actor       TEXT NOT NULL,
    action      TEXT NOT NULL,
    run_id      TEXT NOT NULL,
    detail      TEXT NOT NULL,
    previous    BLOB NOT NULL,
    hash        BLOB NOT NULL,
    signature   BLOB NOT NULL,
    certificate BLOB NOT NULL
);
CREATE INDEX audit_by_run ON audit (run_id);

-- The mark of the present opening, also in a file beside the store (opening_mark.py); one row. Empty in a backup.
CREATE TABLE opening (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    id  TEXT NOT NULL,
    layout INTEGER NOT NULL              -- checksum of the schema itself
);
INSERT INTO opening (one, id, layout) VALUES (1, '', 0);
