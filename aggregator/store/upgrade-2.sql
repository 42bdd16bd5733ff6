-- From store version 1 to 2.

-- The opened sums of the latest rounds of runs with a fixed cohort, which members may fetch and check.
CREATE TABLE opened_sums (
    run_id TEXT NOT NULL REFERENCES runs,
    round  INTEGER NOT NULL,
    header BLOB NOT NULL,                -- serialized dcfpca.v1.SumHeader
    sum    BLOB NOT NULL,                -- residues, little-endian
    PRIMARY KEY (run_id, round)
);
