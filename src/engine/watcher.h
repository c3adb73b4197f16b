/* Watchers of directories: filesystem.Filesystem's WatchDir, whose stream is the watcher's life,
 * and CreateWatcher, which lives until it is removed. The agent follows the directory and keeps
 * what happened; it is asked for that only as fast as the client takes it, so that nothing piles up
 * here. */
#ifndef ENGINE_WATCHER_H
#define ENGINE_WATCHER_H

#include "engine/rpc.h"

rpc_fn watcher_stream; /* WatchDir */
rpc_fn watcher_create; /* CreateWatcher */
rpc_fn watcher_events; /* GetWatcherEvents */
rpc_fn watcher_remove; /* RemoveWatcher */

/* For the sandbox, when it is paused or over: all end, streams are cut. */
void watchers_end(struct sandbox *s);

#endif
