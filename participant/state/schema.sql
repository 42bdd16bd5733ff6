-- The site's durable state. Everything here is written before the message that depends on it is sent.

-- One row per run that was proposed to this site.
CREATE TABLE IF NOT EXISTS runs (
    run_id      TEXT PRIMARY KEY,
    spec        BLOB NOT NULL,             -- canonical JSON, as proposed
    digest      BLOB NOT NULL,             -- its SHA-256, which the site signed
    status      TEXT NOT NULL,             -- waiting, enrolled, refused, finished or ended
    reasons     TEXT NOT NULL DEFAULT '[]',-- of a refusal, or why a person is asked: JSON list
    private     INTEGER NOT NULL,          -- whether the site was flagged private when it answered
    approved    INTEGER NOT NULL DEFAULT 0,-- the approval it used, by id; 0: none
    proposed_ms INTEGER NOT NULL,
    outcome     TEXT NOT NULL DEFAULT '',  -- how the run ended, one sentence
    cohort      TEXT NOT NULL DEFAULT '[]' -- JSON list: everyone in the run, once it is known; it never changes
) STRICT;

-- The runs about which a person is asked: before the site enrols, or while it takes part (`RunRow.asks`).
CREATE VIEW IF NOT EXISTS asking AS
    SELECT * FROM runs WHERE status = 'waiting' OR (status = 'enrolled' AND reasons != '[]');

-- The data with which a secure run began. Its masks hide one update a round, so no other data may answer.
CREATE TABLE IF NOT EXISTS pinned_data (
    run_id TEXT PRIMARY KEY,
    data   BLOB NOT NULL                   -- SHA-256 of the hashes of its columns, in order
) STRICT;

-- Over which cohorts sums were opened that contain this data.
CREATE TABLE IF NOT EXISTS exposed_cohorts (
    data   BLOB NOT NULL,                  -- digest of its set of columns; the set is in a file (column_sets.py)
    run_id TEXT NOT NULL,
    cohort TEXT NOT NULL,                  -- JSON list of names
    PRIMARY KEY (data, run_id, cohort)
) STRICT;

-- Approvals by people at the site (`dcfpca-participant approve`).
CREATE TABLE IF NOT EXISTS approvals (
    id         INTEGER PRIMARY KEY,
    run_id     TEXT NOT NULL,              -- the run that is approved
    digest     BLOB NOT NULL,              -- of its spec, as the approver saw it
    approver   TEXT NOT NULL,              -- as they named themselves
    given_ms   INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    used       INTEGER NOT NULL DEFAULT 0 CHECK (used IN (0, 1))  -- how often it was used
) STRICT;

-- The announcement of the open round of each run; replayed after a restart, so that the answer is the same.
CREATE TABLE IF NOT EXISTS inbox (
    position INTEGER PRIMARY KEY,
    run_id   TEXT NOT NULL,
    body     BLOB NOT NULL                 -- the assignment as received
) STRICT;

-- Runs of which 0.1 kept a local step, in a file that this version does not continue. Later steps are in files that say
-- themselves what they are (step_files.py).
CREATE TABLE IF NOT EXISTS computed (
    run_id    TEXT PRIMARY KEY,
    round     INTEGER NOT NULL,
    consensus BLOB NOT NULL,               -- SHA-256 of the consensus it answers
    file      TEXT NOT NULL,               -- below the state directory
    checksum  INTEGER NOT NULL             -- of the file
) STRICT;

-- The boot during which the above was written; one row.
CREATE TABLE IF NOT EXISTS boot (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    boot_id TEXT NOT NULL
) STRICT;

-- Everything that left the site, and the approvals for it. Each row contains the hash of the previous one.
CREATE TABLE IF NOT EXISTS ledger (
    sequence INTEGER PRIMARY KEY,
    at_ms    INTEGER NOT NULL,
    run_id   TEXT NOT NULL,
    round    INTEGER,
    attempt  INTEGER,
    kind     TEXT NOT NULL,                -- which declared message
    shape    TEXT NOT NULL,                -- of its tensor, or how many items
    size     INTEGER NOT NULL,             -- bytes
    sha256   BLOB NOT NULL,                -- of the message's content
    detail   TEXT NOT NULL,                -- one sentence, e.g. a refusal's reason
    previous BLOB NOT NULL,
    hash     BLOB NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS ledger_by_run ON ledger (run_id, kind, round, attempt);
