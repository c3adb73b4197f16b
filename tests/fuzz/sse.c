/* Ids of server-sent events that come back in Last-Event-ID. */
#include "fuzz.h"

#include <inttypes.h>

#include "wire/sse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	_free_ char *given = copy_text(data, n);
	char shown[32];
	uint64_t seq = 0;
	bool is_number = *given && strlen(given) == strspn(given, "0123456789");
	if (sse_id_parse(given, &seq) == 0) {
		snprintf(shown, sizeof shown, "%" PRIu64, seq);
		CHECK(!strcmp(shown, given));
	} else {
		CHECK(!is_number || *given == '0' || strlen(given) >= 20);
	}
	return 0;
}
