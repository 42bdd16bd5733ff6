-- From version 1: checksums of all rows of a run, the software and memory format of each run, and the opening mark.

ALTER TABLE runs ADD COLUMN software TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN memory TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN state_checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE events ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE consensus ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE rounds ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;

UPDATE runs SET
    checksum = row_checksum(run_id, request_id, spec, created_at, memory),
    state_checksum = row_checksum(run_id, state, state_seq, software);
UPDATE events SET checksum = row_checksum(run_id, seq, body);
UPDATE consensus SET checksum = row_checksum(run_id, body);
UPDATE rounds SET checksum = row_checksum(run_id, round, view);

CREATE TABLE opening (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    id  TEXT NOT NULL,
    layout INTEGER NOT NULL              -- checksum of the schema itself
);
INSERT INTO opening (one, id, layout) VALUES (1, '', 0);

-- The opened sums of the latest rounds of runs with a fixed cohort, which members may fetch and check.
CREATE TABLE opened_sums (
    run_id TEXT NOT NULL REFERENCES runs,
    round  INTEGER NOT NULL,
    header BLOB NOT NULL,                -- serialized dcfpca.v1.SumHeader
    sum    BLOB NOT NULL,                -- residues, little-endian
    PRIMARY KEY (run_id, round)
);
