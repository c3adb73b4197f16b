-- Version 2. What one pass of the cleanup leaves for the next.

-- What three clocks said at the last pass: when they disagree at the next one, somebody has set the
-- machine's clock, and nothing has become older by that.
CREATE TABLE clock_mark (
	only    INTEGER PRIMARY KEY CHECK (only = 1),
	boot_id TEXT    NOT NULL,
	boot    INTEGER NOT NULL,
	real    INTEGER NOT NULL
) STRICT;

-- Sandboxes at the provider that carry our labels and that no row above knows. pass is that of the
-- last sighting.
CREATE TABLE orphans (
	sandbox_id TEXT    PRIMARY KEY CHECK (sandbox_id <> ''),
	first_seen INTEGER NOT NULL,
	pass       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
