-- Version 3. What a run asks about the runs before it, and a pass of the cleanup about what is live,
-- costs the same however many there were.

DROP INDEX executions_by_sandbox;
CREATE INDEX executions_by_sandbox ON executions (sandbox, started_at);
CREATE INDEX executions_going_on ON executions (sandbox) WHERE state IN ('queued', 'running');
CREATE INDEX executions_timed_out ON executions (owner, session_id, ended_at)
	WHERE state = 'timed_out';

CREATE INDEX sandboxes_not_ended_by_id ON sandboxes (id) WHERE status <> 'ended';
