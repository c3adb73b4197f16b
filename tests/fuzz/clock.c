/* Times in answers and queries, RFC 3339. */
#include "fuzz.h"

#include "base/clock.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	_free_ char *given = copy_text(data, n);
	char shown[CLOCK_TEXT];
	int64_t us = 0, again = 0;
	if (clock_parse_rfc3339(given, &us))
		return 0;
	clock_rfc3339(shown, us);
	CHECK(strlen(shown) == strlen("2026-01-22T15:06:11.971102Z"));
	CHECK(clock_parse_rfc3339(shown, &again) == 0 && again == us);
	clock_iso8601(shown, us);
	CHECK(clock_parse_rfc3339(shown, &again) == 0 && again == us);
	return 0;
}
