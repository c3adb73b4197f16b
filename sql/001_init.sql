-- Version 1. Times are microseconds since 1970 in UTC. 0 and '' mean "none".

-- One row for each sandbox that was ever asked for. The row is written before the provider is
-- called, so that no sandbox can exist that no row and no nonce knows.
CREATE TABLE sandboxes (
	id              INTEGER PRIMARY KEY AUTOINCREMENT,
	owner           TEXT    NOT NULL CHECK (owner <> ''),
	session_id      TEXT    NOT NULL CHECK (session_id <> ''),
	generation      INTEGER NOT NULL CHECK (generation >= 1),
	sandbox_id      TEXT    NOT NULL DEFAULT '',
	type            TEXT    NOT NULL CHECK (type IN ('code_interpreter', 'custom')),
	template        TEXT    NOT NULL DEFAULT '',
	status          TEXT    NOT NULL
	                CHECK (status IN ('starting', 'running', 'paused', 'stopping', 'ended')),
	created_at      INTEGER NOT NULL,
	last_activity   INTEGER NOT NULL,
	expires_at      INTEGER NOT NULL DEFAULT 0,
	lifetime_at     INTEGER NOT NULL DEFAULT 0,
	provider_end_at INTEGER NOT NULL DEFAULT 0,
	nonce           TEXT    NOT NULL UNIQUE CHECK (nonce <> ''),
	claim_deadline  INTEGER NOT NULL,
	claim_slot      INTEGER NOT NULL,
	claim_pid       INTEGER NOT NULL,
	claim_start     INTEGER NOT NULL,
	envd_token      TEXT    NOT NULL DEFAULT '',
	traffic_token   TEXT    NOT NULL DEFAULT '',
	domain          TEXT    NOT NULL DEFAULT '',
	agent_id        TEXT    NOT NULL DEFAULT '',
	task_id         TEXT    NOT NULL DEFAULT '',
	end_reason      TEXT    NOT NULL DEFAULT ''
	                CHECK (end_reason IN ('', 'stopped', 'expired_idle', 'expired_lifetime',
	                                      'killed_by_provider', 'killed_by_admin', 'cancel_kill',
	                                      'start_failed', 'unknown')),
	destroyed_at    INTEGER NOT NULL DEFAULT 0,
	state_lost      INTEGER NOT NULL DEFAULT 0 CHECK (state_lost IN (0, 1)),
	lost_reason     TEXT    NOT NULL DEFAULT '',
	CHECK (expires_at <= lifetime_at),
	CHECK (status <> 'starting' OR sandbox_id = ''),
	CHECK (status NOT IN ('running', 'paused') OR sandbox_id <> ''),
	CHECK ((status IN ('stopping', 'ended')) = (end_reason <> '')),
	CHECK ((status = 'ended') = (destroyed_at <> 0)),
	CHECK (state_lost = 0 OR lost_reason <> '')
) STRICT;

-- One session, one sandbox: the promise that everything else may rely on.
CREATE UNIQUE INDEX sandboxes_live ON sandboxes (owner, session_id)
	WHERE status IN ('starting', 'running', 'paused');
CREATE UNIQUE INDEX sandboxes_by_provider_id ON sandboxes (sandbox_id) WHERE sandbox_id <> '';
CREATE INDEX sandboxes_by_session ON sandboxes (owner, session_id, id);
CREATE INDEX sandboxes_by_owner ON sandboxes (owner, id);
CREATE INDEX sandboxes_not_ended ON sandboxes (status, expires_at) WHERE status <> 'ended';

-- What has ended stays so, and what is being stopped can only end.
CREATE TRIGGER sandboxes_one_way BEFORE UPDATE OF status ON sandboxes
WHEN OLD.status = 'ended' OR (OLD.status = 'stopping' AND NEW.status <> 'ended')
BEGIN
	SELECT RAISE(ABORT, 'a sandbox that was ended stays ended');
END;

-- Who is using a sandbox right now: executions and transfers. Protects from the idle limit.
CREATE TABLE leases (
	id      TEXT    PRIMARY KEY CHECK (id <> ''),
	sandbox INTEGER NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
	slot    INTEGER NOT NULL,
	pid     INTEGER NOT NULL,
	start   INTEGER NOT NULL,
	until   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX leases_by_sandbox ON leases (sandbox);

-- owner and session_id repeat the sandbox's, so that a session's history is one range of an index.
CREATE TABLE executions (
	seq          INTEGER PRIMARY KEY AUTOINCREMENT,
	id           TEXT    NOT NULL UNIQUE CHECK (id GLOB 'x_?*'),
	sandbox      INTEGER NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
	owner        TEXT    NOT NULL,
	session_id   TEXT    NOT NULL,
	generation   INTEGER NOT NULL,
	kind         TEXT    NOT NULL CHECK (kind IN ('code', 'command', 'install')),
	state        TEXT    NOT NULL CHECK (state IN ('queued', 'running', 'succeeded', 'failed',
	                                               'timed_out', 'cancelled',
	                                               'completion_unknown')),
	input        TEXT    NOT NULL CHECK (length(CAST(input AS BLOB)) <= 4096),
	input_bytes  INTEGER NOT NULL,
	request_hash TEXT    NOT NULL DEFAULT '',
	pid          INTEGER NOT NULL,
	start        INTEGER NOT NULL,
	started_at   INTEGER NOT NULL,
	ended_at     INTEGER NOT NULL DEFAULT 0,
	exit_code    INTEGER,
	stdout_bytes INTEGER NOT NULL DEFAULT 0,
	stderr_bytes INTEGER NOT NULL DEFAULT 0,
	error_name   TEXT    NOT NULL DEFAULT '',
	CHECK ((state IN ('queued', 'running')) = (ended_at = 0))
) STRICT;
CREATE INDEX executions_by_session ON executions (owner, session_id, seq);
CREATE INDEX executions_by_sandbox ON executions (sandbox);
CREATE INDEX executions_unfinished ON executions (pid, start) WHERE state IN ('queued', 'running');

-- The secret itself is nowhere; hash is its SHA-256 in hex.
CREATE TABLE tokens (
	seq        INTEGER PRIMARY KEY AUTOINCREMENT,
	id         TEXT    NOT NULL UNIQUE CHECK (id GLOB 't_?*'),
	hash       TEXT    NOT NULL UNIQUE CHECK (length(hash) = 64),
	user       TEXT    NOT NULL CHECK (user <> ''),
	role       TEXT    NOT NULL CHECK (role IN ('user', 'admin')),
	scopes     INTEGER NOT NULL CHECK (scopes BETWEEN 0 AND 15),
	session_id TEXT    NOT NULL DEFAULT '',
	created_at INTEGER NOT NULL,
	expires_at INTEGER NOT NULL DEFAULT 0,
	revoked_at INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE audit (
	id         INTEGER PRIMARY KEY AUTOINCREMENT,
	at         INTEGER NOT NULL,
	request_id TEXT    NOT NULL,
	user       TEXT    NOT NULL,
	action     TEXT    NOT NULL CHECK (action <> ''),
	target     TEXT    NOT NULL,
	outcome    TEXT    NOT NULL CHECK (outcome <> '')
) STRICT;
CREATE INDEX audit_by_time ON audit (at);
