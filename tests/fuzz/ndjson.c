/* The lines of a run of code, as the interpreter in a sandbox sends them. */
#include "events.h"

static void begin(struct told *t)
{
	t->feed = code_stream_feed;
	code_stream_init(&t->stream, on_event, t);
	CHECK(code_stream_began(&t->stream, &t->err) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	check_stream((const char *)data, n, begin);
	return 0;
}
