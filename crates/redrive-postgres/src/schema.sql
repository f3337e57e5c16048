-- The ids whose effects are committed. Each row is written in the transaction of its effect.
CREATE TABLE applied (
    -- "C" compares bytes: faster, and no operating system upgrade can reorder the index and hide a duplicate.
    id         TEXT COLLATE "C" PRIMARY KEY,
    applied_at TIMESTAMPTZ NOT NULL DEFAULT now()
);

-- For pruning: finds the oldest ids without reading the table.
CREATE INDEX applied_by_age ON applied (applied_at);

-- One row about the ledger itself.
CREATE TABLE applied_meta (
    only_row       BOOLEAN PRIMARY KEY DEFAULT true CHECK (only_row),
    version        INTEGER NOT NULL,
    -- Every id applied since then is in `applied`; earlier ones may have been pruned or never recorded.
    complete_since TIMESTAMPTZ NOT NULL DEFAULT now()
);

INSERT INTO applied_meta (version) VALUES (1);
