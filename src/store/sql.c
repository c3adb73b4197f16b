/* The statements. A change names the state that it expects in its WHERE clause; zero changed rows
 * then mean that somebody else was faster. */
#include "store/sql.h"

/* In the order in which sandbox_read reads them. */
#define SANDBOX                                                                                    \
	"SELECT id, owner, session_id, generation, sandbox_id, type, template, status, "           \
	"created_at, last_activity, expires_at, lifetime_at, provider_end_at, nonce, "             \
	"claim_deadline, claim_slot, claim_pid, claim_start, envd_token, traffic_token, domain, "  \
	"agent_id, task_id, end_reason, destroyed_at, state_lost, lost_reason, create_ms "         \
	"FROM sandboxes "
/* The words of the partial index, without which it is not used. */
#define LIVE "status IN ('starting', 'running', 'paused') "
#define UP   "status IN ('running', 'paused') "
#define PAGE "ORDER BY id DESC LIMIT "
/* Page by page, without walking through all that ever ended. */
#define NOT_ENDED "INDEXED BY sandboxes_not_ended_by_id WHERE id < ?1 AND status <> 'ended' "

/* In the order in which execution_read reads them. */
#define EXECUTION                                                                                  \
	"SELECT seq, id, sandbox, owner, session_id, generation, kind, state, input, "             \
	"input_bytes, request_hash, pid, start, started_at, ended_at, exit_code, stdout_bytes, "   \
	"stderr_bytes, error_name, context_id, cancel_at, cancelled_by, lost_reason, events, "     \
	"event_bytes "                                                                             \
	"FROM executions "
#define UNFINISHED "state IN ('queued', 'running') "
/* Commands wait for nobody, and an installation asks the sandbox's own context. */
#define SAME_TURN "kind <> 'command' AND context_id = "

/* In the order in which token_read reads them. */
#define TOKEN                                                                                      \
	"SELECT seq, id, user, role, scopes, session_id, created_at, expires_at, revoked_at "      \
	"FROM tokens "

const char *const sql_text[SQL_COUNT] = {
	[SQL_BEGIN] = "BEGIN IMMEDIATE",
	[SQL_COMMIT] = "COMMIT",
	[SQL_ROLLBACK] = "ROLLBACK",

	[SQL_SANDBOX_GET] = SANDBOX "WHERE id = ?1",
	[SQL_SANDBOX_FATE] = "SELECT status, end_reason, lifetime_at FROM sandboxes WHERE id = ?1",
	[SQL_SANDBOX_FIND] = SANDBOX "WHERE owner = ?1 AND session_id = ?2 AND " LIVE,
	[SQL_SANDBOX_BY_ID] = SANDBOX "WHERE sandbox_id = ?1 AND sandbox_id <> ''",
	[SQL_SANDBOX_BY_NONCE] = SANDBOX "WHERE nonce = ?1",
	[SQL_SANDBOX_LAST] = SANDBOX "WHERE owner = ?1 AND session_id = ?2 " PAGE "1",

	[SQL_SANDBOXES_OF_OWNER] = SANDBOX "WHERE id < ?1 AND owner = ?3 " PAGE "?2",
	[SQL_SANDBOXES_EVERY] = SANDBOX "WHERE id < ?1 " PAGE "?2",
	[SQL_SANDBOXES_LIVE] = SANDBOX NOT_ENDED "AND " LIVE PAGE "?2",
	[SQL_SANDBOXES_STOPPING] = SANDBOX NOT_ENDED "AND status = 'stopping' " PAGE "?2",
	/* Few of many: these are found by their time. */
	[SQL_SANDBOXES_EXPIRED] = SANDBOX "WHERE +id < ?1 AND status <> 'ended' AND " UP
					  "AND expires_at <= ?3 ORDER BY +id DESC LIMIT ?2",

	[SQL_SANDBOX_COUNT] = "SELECT status, count(*) FROM sandboxes "
			      "WHERE status <> 'ended' GROUP BY status",
	[SQL_SANDBOX_COUNT_OF] = "SELECT status, count(*) FROM sandboxes "
				 "WHERE status <> 'ended' AND +owner = ?1 GROUP BY status",
	[SQL_SANDBOX_QUOTA] = "SELECT count(*), coalesce(sum(owner = ?1), 0) FROM sandboxes "
			      "WHERE " LIVE,

	[SQL_SANDBOX_INSERT] =
		"INSERT INTO sandboxes (owner, session_id, generation, type, template, status, "
		"created_at, last_activity, nonce, claim_deadline, claim_slot, claim_pid, "
		"claim_start, agent_id, task_id, state_lost, lost_reason) "
		"VALUES (?1, ?2, ?3, ?4, ?5, 'starting', ?6, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, "
		"?14, ?15)",
	[SQL_SANDBOX_ADOPT] = "UPDATE sandboxes SET claim_deadline = ?3, claim_slot = ?4, "
			      "claim_pid = ?5, claim_start = ?6 "
			      "WHERE id = ?1 AND nonce = ?2 AND status = 'starting'",
	[SQL_SANDBOX_CLAIM_LONGER] = "UPDATE sandboxes SET claim_deadline = ?3 "
				     "WHERE id = ?1 AND nonce = ?2 AND status = 'starting'",
	[SQL_SANDBOX_STARTED] =
		"UPDATE sandboxes SET status = 'running', sandbox_id = ?3, envd_token = ?4, "
		"traffic_token = ?5, domain = ?6, provider_end_at = ?7, lifetime_at = ?8, "
		"expires_at = min(?8, ?9 + ?10), last_activity = ?9, "
		"create_ms = (?9 - created_at) / 1000 "
		"WHERE id = ?1 AND nonce = ?2 AND status = 'starting'",
	[SQL_SANDBOX_FAILED] =
		"UPDATE sandboxes SET status = 'ended', end_reason = 'start_failed', "
		"destroyed_at = ?5 WHERE id = ?1 AND nonce = ?2 AND status = 'starting' "
		"AND claim_pid = ?3 AND claim_start = ?4",

	[SQL_SANDBOX_GIVEN_UP] =
		"UPDATE sandboxes SET status = 'stopping', end_reason = 'start_failed' "
		"WHERE id = ?1 AND nonce = ?2 AND status = 'starting' "
		"AND claim_pid = ?3 AND claim_start = ?4",

	/* Asked first, since a write that changes nothing takes the write lock all the same. */
	[SQL_SANDBOX_TOUCH_DUE] =
		"SELECT 1 FROM sandboxes WHERE id = ?1 AND " UP "AND last_activity <= ?2",
	[SQL_SANDBOX_TOUCH] = "UPDATE sandboxes SET last_activity = ?2, "
			      "expires_at = min(lifetime_at, max(expires_at, ?2 + ?4)) "
			      "WHERE id = ?1 AND " UP "AND last_activity <= ?3",
	[SQL_SANDBOX_EXTEND] =
		"UPDATE sandboxes SET provider_end_at = iif(?2 = 0, provider_end_at, ?2), "
		"expires_at = min(lifetime_at, max(expires_at, ?3)) WHERE id = ?1 AND " UP,
	[SQL_SANDBOX_PAUSE] = "UPDATE sandboxes SET status = 'paused' "
			      "WHERE id = ?1 AND status = 'running'",
	[SQL_SANDBOX_RESUME] = "UPDATE sandboxes SET status = 'running' "
			       "WHERE id = ?1 AND status = 'paused'",
	[SQL_SANDBOX_LOST] =
		"UPDATE sandboxes SET status = 'ended', end_reason = ?2, destroyed_at = ?3, "
		"envd_token = '', traffic_token = '' WHERE id = ?1 AND " UP,
	[SQL_SANDBOX_STOP] = "UPDATE sandboxes SET status = 'stopping', end_reason = ?2 "
			     "WHERE id = ?1 AND " LIVE,
	[SQL_SANDBOX_KILLED] = "UPDATE sandboxes SET status = 'ended', destroyed_at = ?2, "
			       "envd_token = '', traffic_token = '' "
			       "WHERE id = ?1 AND status = 'stopping'",
	[SQL_STATE_LOST_TAKE] = "UPDATE sandboxes SET state_lost = 0 "
				"WHERE id = ?1 AND state_lost = 1",

	[SQL_LEASE_TAKE] = "INSERT INTO leases (id, sandbox, slot, pid, start, until) "
			   "SELECT ?1, id, ?3, ?4, ?5, ?6 FROM sandboxes WHERE id = ?2 AND " UP,
	[SQL_LEASE_RENEW] =
		"UPDATE leases SET until = ?4 WHERE id = ?1 AND pid = ?2 AND start = ?3",
	[SQL_LEASE_RELEASE] = "DELETE FROM leases WHERE id = ?1",
	[SQL_LEASE_RELEASE_ALL_OF] = "DELETE FROM leases WHERE pid = ?1 AND start = ?2",
	[SQL_LEASES_OF_SANDBOX] = "SELECT pid, start FROM leases WHERE sandbox = ?1 AND until > ?2",
	[SQL_LEASE_PRUNE_LATE] = "DELETE FROM leases WHERE until <= ?1",
	[SQL_LEASE_PROCESSES] = "SELECT DISTINCT pid, start FROM leases "
				"WHERE (pid, start) > (?1, ?2) ORDER BY pid, start LIMIT 1",

	[SQL_EXECUTION_BEGIN] =
		"INSERT INTO executions (id, sandbox, owner, session_id, generation, kind, state, "
		"input, input_bytes, request_hash, pid, start, started_at, context_id, "
		"lost_reason) "
		"SELECT ?1, id, owner, session_id, generation, ?3, CASE WHEN ?3 <> 'command' "
		"AND EXISTS (SELECT 1 FROM executions INDEXED BY executions_going_on "
		"WHERE sandbox = ?2 AND " SAME_TURN "?10 AND " UNFINISHED ") THEN 'queued' "
		"ELSE 'running' END, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11 "
		"FROM sandboxes WHERE id = ?2 AND status = 'running'",
	[SQL_EXECUTION_IS_QUEUED] = "SELECT state = 'queued' FROM executions WHERE id = ?1",
	[SQL_EXECUTION_IS_UNFINISHED] = "SELECT 1 FROM executions WHERE id = ?1 AND " UNFINISHED,
	[SQL_EXECUTION_STARTED] = "UPDATE executions SET state = 'running', started_at = ?2 "
				  "WHERE id = ?1 AND " UNFINISHED,
	[SQL_EXECUTION_BEGAN_SINCE] =
		"SELECT 1 FROM executions WHERE sandbox = ?1 AND id <> ?2 AND state <> 'queued' "
		"AND started_at >= ?3 AND " SAME_TURN "?4 LIMIT 1",
	[SQL_WATCH_TAKE] =
		"UPDATE sandboxes SET watched_by = ?2 WHERE id = ?1 AND NOT EXISTS (SELECT 1 "
		"FROM executions AS e WHERE e.id = sandboxes.watched_by AND "
		"e.state IN ('queued', 'running'))",
	[SQL_WATCH_GET] = "SELECT watcher_id, watched_at FROM sandboxes WHERE id = ?1",
	[SQL_WATCH_SET] = "UPDATE sandboxes SET watcher_id = ?3 WHERE id = ?1 AND watched_by = ?2",
	[SQL_WATCH_RELEASE] = "UPDATE sandboxes SET watched_by = '', watched_at = ?3 "
			      "WHERE watched_by = ?1 AND id = ?2",
	[SQL_WATCH_SPOIL] = "UPDATE sandboxes SET watched_at = 0 WHERE id = ?1 AND watched_at <> 0",
	[SQL_EXECUTION_AHEAD] =
		"SELECT count(*) FROM executions AS other, executions AS own WHERE own.id = ?1 "
		"AND other.sandbox = own.sandbox AND other.seq < own.seq "
		"AND other.kind <> 'command' AND other.context_id = own.context_id "
		"AND other.state IN ('queued', 'running')",
	[SQL_EXECUTION_COUNT] = "SELECT count(*) FROM executions WHERE sandbox = ?1",
	[SQL_EXECUTION_CANCEL] = "UPDATE executions SET cancel_at = ?2 "
				 "WHERE id = ?1 AND cancel_at = 0 AND " UNFINISHED,
	[SQL_EXECUTION_IS_CANCELLED] = "SELECT cancel_at <> 0 FROM executions WHERE id = ?1",
	[SQL_EXECUTION_FINISH] = "UPDATE executions SET state = ?2, ended_at = ?3, exit_code = ?4, "
				 "stdout_bytes = ?5, stderr_bytes = ?6, error_name = ?7, "
				 "cancelled_by = ?8, events = ?9, event_bytes = ?10 "
				 "WHERE id = ?1 AND " UNFINISHED "RETURNING sandbox",
	[SQL_EXECUTION_FIND] = EXECUTION "WHERE id = ?2 AND owner = ?1",
	[SQL_EXECUTION_REPEATED] =
		EXECUTION "INDEXED BY executions_timed_out WHERE owner = ?1 AND session_id = ?2 "
			  "AND request_hash = ?3 AND request_hash <> '' AND state = 'timed_out' "
			  "AND ended_at > ?4 ORDER BY seq DESC LIMIT 1",
	[SQL_EXECUTION_LIST] = EXECUTION "WHERE owner = ?1 AND session_id = ?2 AND seq < ?3 "
					 "ORDER BY seq DESC LIMIT ?4",
	[SQL_EXECUTION_PROCESSES] = "SELECT DISTINCT pid, start FROM executions WHERE " UNFINISHED
				    "AND (pid, start) > (?1, ?2) ORDER BY pid, start LIMIT 1",
	[SQL_EXECUTION_END_DEAD] =
		"UPDATE executions SET state = 'completion_unknown', ended_at = ?3 "
		"WHERE pid = ?1 AND start = ?2 AND " UNFINISHED,
	[SQL_EXECUTION_END_UNLEASED] =
		"UPDATE executions SET state = 'completion_unknown', ended_at = ?1 "
		"WHERE " UNFINISHED "AND started_at <= ?2 AND id NOT IN (SELECT id FROM leases)",

	[SQL_TOKEN_CREATE] =
		"INSERT INTO tokens (id, hash, user, role, scopes, session_id, created_at, "
		"expires_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
	[SQL_TOKEN_BY_HASH] = TOKEN "WHERE hash = ?1",
	[SQL_TOKEN_GET] = TOKEN "WHERE id = ?1",
	[SQL_TOKEN_LIST] = TOKEN "WHERE seq > ?1 ORDER BY seq LIMIT ?2",
	[SQL_TOKEN_REVOKE] = "UPDATE tokens SET revoked_at = iif(revoked_at = 0, ?2, revoked_at) "
			     "WHERE id = ?1",

	[SQL_AUDIT_APPEND] = "INSERT INTO audit (at, request_id, user, action, target, outcome) "
			     "VALUES (?1, ?2, ?3, ?4, ?5, ?6)",

	[SQL_ENV_SET] = "INSERT OR REPLACE INTO envs (sandbox, name, value) VALUES (?1, ?2, ?3)",
	[SQL_ENV_LIST] = "SELECT name, value FROM envs WHERE sandbox = ?1 ORDER BY name",

	[SQL_CLOCK_MARK_READ] = "SELECT boot_id, boot, real FROM clock_mark",
	[SQL_CLOCK_MARK_WRITE] = "INSERT OR REPLACE INTO clock_mark (only, boot_id, boot, real) "
				 "VALUES (1, ?1, ?2, ?3)",
	[SQL_ORPHAN_SEEN] = "INSERT INTO orphans (sandbox_id, first_seen, pass) "
			    "VALUES (?1, ?2, ?2) "
			    "ON CONFLICT (sandbox_id) DO UPDATE SET pass = excluded.pass",
	[SQL_ORPHAN_FIND] = "SELECT first_seen FROM orphans WHERE sandbox_id = ?1",
	[SQL_ORPHAN_FORGET_OTHERS] = "DELETE FROM orphans WHERE pass <> ?1",
};
