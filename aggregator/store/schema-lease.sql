-- What a store in PostgreSQL has besides schema.sql.

-- The version of the schema; one row.
CREATE TABLE store_version (
    version INTEGER NOT NULL
);

-- Who serves. One row: taking over changes its key, which waits for the transactions that have locked it.
CREATE TABLE lease (
    term    INTEGER PRIMARY KEY,         -- grows by one at each takeover; every transaction carries it
    holder  TEXT NOT NULL,               -- identity, machine and address, for people
    expires TIMESTAMPTZ NOT NULL         -- by the clock of the database
);
INSERT INTO lease (term, holder, expires) VALUES (0, '', '-infinity');
