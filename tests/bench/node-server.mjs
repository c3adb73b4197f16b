// The opponent: the status route as one would write it for Node, with Fastify and better-sqlite3 on the gateway's own database. It
// does what the gateway does: a token is looked up by its hash when nginx asks who calls, its row is read again for the call itself,
// and each call leaves a line in a log. As many processes as there are cores; nginx keeps its connections to them.
//
//   node node-server.mjs DATABASE SOCKET
import cluster from 'node:cluster';
import { createHash } from 'node:crypto';
import os from 'node:os';
import Database from 'better-sqlite3';
import fastify from 'fastify';

const [file, socket] = process.argv.slice(2);

function primary() {
  const workers = Array.from({ length: os.availableParallelism() }, () => cluster.fork());
  let listening = 0;
  cluster.on('listening', () => ++listening === workers.length && console.error('ready'));
  process.on('SIGTERM', () => {
    for (const worker of workers) worker.process.kill('SIGTERM');
    process.exit(0);
  });
}

/** Microseconds since 1970 as the gateway writes them. */
function time(us) {
  const whole = new Date(Math.floor(us / 1000)).toISOString().slice(0, 19);
  return `${whole}.${String(us % 1_000_000).padStart(6, '0')}+00:00`;
}

const valid = (token) => token && !token.revoked_at && (!token.expires_at || token.expires_at > Date.now() * 1000);

function serve() {
  const db = new Database(file, { readonly: true, fileMustExist: true });
  const TOKEN = 'SELECT id, user, scopes, session_id, expires_at, revoked_at FROM tokens WHERE';
  const tokenByHash = db.prepare(`${TOKEN} hash = ?`);
  const tokenById = db.prepare(`${TOKEN} id = ?`);
  const sandbox = db.prepare(
    `SELECT sandbox_id, session_id, type, status, created_at, last_activity, expires_at, lifetime_at, generation FROM sandboxes
     WHERE owner = ? AND session_id = ? AND status IN ('starting', 'running', 'paused')`,
  );
  const app = fastify({ logger: true, disableRequestLogging: true });

  app.addHook('onResponse', (req, reply, done) => {
    const { 'x-request-id': request_id, 'x-user': user } = req.headers;
    if (user) req.log.info({ request_id, user, session: req.params.sid, op: 'status', status: reply.statusCode, ms: reply.elapsedTime });
    done();
  });

  app.get('/auth', (req, reply) => {
    const secret = (req.headers.authorization ?? '').replace(/^Bearer /i, '');
    const token = tokenByHash.get(createHash('sha256').update(secret).digest('hex'));
    if (!valid(token)) return reply.code(401).send();
    return reply.code(204).header('x-user', token.user).header('x-token', token.id).send();
  });

  app.get('/api/v1/session/:sid/sandbox/status', (req, reply) => {
    const user = req.headers['x-user'];
    const { sid } = req.params;
    const token = tokenById.get(req.headers['x-token']);
    if (!valid(token) || token.user !== user) return reply.code(401).send({ detail: 'Unauthorized' });
    if (!(token.scopes & 1) || (token.session_id && token.session_id !== sid)) return reply.code(403).send({ detail: 'Forbidden' });
    const row = sandbox.get(user, sid);
    reply.header('cache-control', 'no-store');
    if (!row || row.lifetime_at <= Date.now() * 1000) return reply.type('application/json').send('null');
    return {
      sandbox_id: row.sandbox_id,
      session_id: row.session_id,
      sandbox_type: row.type,
      status: row.status,
      created_at: time(row.created_at),
      last_activity: time(row.last_activity),
      expires_at: time(row.expires_at),
      generation: row.generation,
    };
  });

  app.listen({ path: socket }).catch((e) => {
    console.error(e);
    process.exit(1);
  });
}

if (cluster.isPrimary) primary();
else serve();
