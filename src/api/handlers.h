/* The handlers of the route table. Each answers its call, exactly once. */
#ifndef API_HANDLERS_H
#define API_HANDLERS_H

struct call;

/* health.c */
void op_healthz(struct call *c);
void op_readyz(struct call *c);

/* caller.c */
void op_auth(struct call *c); /* for nginx: whose token is it? */
void op_login(struct call *c);
void op_logout(struct call *c);

/* lifecycle.c */
void op_start(struct call *c);
void op_stop(struct call *c);
void op_status(struct call *c);

/* execute.c */
void op_execute(struct call *c);
void op_install(struct call *c);

/* executions.c */
void op_executions(struct call *c);
void op_execution(struct call *c);
void op_events(struct call *c);
void op_cancel(struct call *c);

/* contexts.c */
void op_contexts(struct call *c);
void op_context_create(struct call *c);
void op_context_restart(struct call *c);
void op_context_remove(struct call *c);

/* upkeep.c */
void op_envs(struct call *c);
void op_keepalive(struct call *c);
void op_metrics(struct call *c);

/* files.c */
void op_upload(struct call *c);
void op_download(struct call *c);
void op_files(struct call *c);

#endif
