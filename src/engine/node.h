/* The machine's Node.js, which javascript contexts run in. */
#ifndef ENGINE_NODE_H
#define ENGINE_NODE_H

/* Where it is inside a sandbox as well, or NULL: only what lies below /usr is there. */
const char *node_find(void);

#endif
