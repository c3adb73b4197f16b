/* The log: key=value lines on stderr. Only mains and event loops call it; libraries return errors.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

extern enum log_level log_level;

/* One line: time, level, then the formatted rest. A newline inside becomes a space. */
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A text as it may stand between quotes in a line: one of its own would end it. Long ones are cut.
 */
#define LOG_PLAIN 512
const char *log_plain(char out[LOG_PLAIN], const char *s);

/* 0, or -1 when name is none of error, warn, info, debug. */
int log_set_level(const char *name);

#endif
