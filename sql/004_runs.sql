-- Version 4. Executions that can be followed, cancelled and told apart by their context.

-- Every run changed these twice. What goes on at a time is little, and is read from
-- executions_going_on and from the leases themselves.
DROP INDEX executions_unfinished;
DROP INDEX leases_by_sandbox;

-- The context whose turn it waits for; '' is the sandbox's own. Commands wait for nobody.
ALTER TABLE executions ADD COLUMN context_id TEXT NOT NULL DEFAULT '';
-- When somebody asked for its end, and what it took.
ALTER TABLE executions ADD COLUMN cancel_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE executions ADD COLUMN cancelled_by TEXT NOT NULL DEFAULT ''
	CHECK (cancelled_by IN ('', 'interrupt', 'restart', 'kill'));
-- Why older state was gone when it ran, where its answer is the one that says so.
ALTER TABLE executions ADD COLUMN lost_reason TEXT NOT NULL DEFAULT '';
-- How many events it had, the last one included, and the bytes of all before that, whether the log
-- could take them or not. 0: nobody was left to say.
ALTER TABLE executions ADD COLUMN events INTEGER NOT NULL DEFAULT 0;
ALTER TABLE executions ADD COLUMN event_bytes INTEGER NOT NULL DEFAULT 0;

-- The environment of a sandbox's later runs. Values are secrets: never logged, shown or audited.
CREATE TABLE envs (
	sandbox INTEGER NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
	name    TEXT    NOT NULL CHECK (name <> ''),
	value   TEXT    NOT NULL,
	PRIMARY KEY (sandbox, name)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER envs_end AFTER UPDATE OF status ON sandboxes WHEN NEW.status = 'ended' BEGIN
	DELETE FROM envs WHERE sandbox = NEW.id;
END;

-- How long it took to make.
ALTER TABLE sandboxes ADD COLUMN create_ms INTEGER NOT NULL DEFAULT 0;

-- The provider's watcher of the user's home, the execution that uses it just now, and when it was
-- last read; 0 when something of ours has changed files since.
ALTER TABLE sandboxes ADD COLUMN watcher_id TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN watched_by TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN watched_at INTEGER NOT NULL DEFAULT 0;
