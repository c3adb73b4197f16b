#include "ctl/sheet.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "wire/jsontext.h"
#include "wire/utf8.h"

#define JSON_TEXT_MAX (64u << 10)

struct sheet {
	const struct sheet_column *columns;
	size_t n;
	enum { MEASURE, TABLE, JSON } pass;
	int width[SHEET_COLUMNS_MAX];
};

const char *sheet_time(char out[CLOCK_TEXT], int64_t real_us)
{
	out[0] = '\0';
	return real_us ? clock_iso8601(out, real_us) : out;
}

/* Prints a cell (out NULL: only counts) and returns its width. What came in by other ways than this
 * tool may contain anything: nothing of it may steer the operator's terminal. */
static int show(FILE *out, const char *cell)
{
	int width = 0;
	size_t len = strlen(cell);
	for (size_t i = 0, n; i < len; i += n, width++) {
		uint32_t code;
		n = utf8_next(cell + i, len - i, &code);
		bool bad = code < 0x20 || (code >= 0x7f && code < 0xa0) || code > UTF8_LAST;
		if (out)
			fwrite(bad ? "?" : cell + i, 1, bad ? 1 : n, out);
	}
	return width;
}

static const char *or_dash(const char *cell)
{
	return *cell ? cell : "-";
}

static void measure(struct sheet *s, const char *const *cells)
{
	for (size_t i = 0; i < s->n; i++) {
		int width = show(NULL, or_dash(cells[i]));
		if (width > s->width[i])
			s->width[i] = width;
	}
}

static void table_line(const struct sheet *s, const char *const *cells)
{
	for (size_t i = 0; i < s->n; i++) {
		int width = show(stdout, or_dash(cells[i]));
		/* A row that came after the measuring may be wider. */
		int fill = width < s->width[i] ? s->width[i] - width : 0;
		if (i + 1 < s->n)
			printf("%*s", fill + 2, "");
	}
	putchar('\n');
}

static int json_text(const char *p, size_t n, struct err *err)
{
	_cleanup_(buf_free) struct buf text = BUF(JSON_TEXT_MAX);
	if (json_put_string(&text, p, n) < 0)
		return err_set(err, ERR_LIMIT, "a value is too long to be printed");
	fwrite(text.p, 1, text.len, stdout);
	return 0;
}

static int json_list(const char *cell, struct err *err)
{
	int rc = 0;
	putchar('[');
	for (size_t n; *cell && rc == 0; cell += n + (cell[n] == ',')) {
		n = strcspn(cell, ",");
		rc = json_text(cell, n, err);
		fputs(cell[n] ? "," : "", stdout);
	}
	putchar(']');
	return rc;
}

static int json_cell(enum cell_kind kind, const char *cell, struct err *err)
{
	if (kind == CELL_LIST)
		return json_list(cell, err);
	if (kind == CELL_TEXT && *cell)
		return json_text(cell, strlen(cell), err);
	fputs(*cell ? cell : "null", stdout);
	return 0;
}

static int json_line(const struct sheet *s, const char *const *cells, struct err *err)
{
	for (size_t i = 0; i < s->n; i++) {
		printf("%s\"%s\":", i ? "," : "{", s->columns[i].key);
		if (json_cell(s->columns[i].kind, cells[i], err) < 0)
			return -1;
	}
	puts("}");
	return 0;
}

int sheet_row(struct sheet *s, const char *const *cells, struct err *err)
{
	if (s->pass == MEASURE)
		measure(s, cells);
	else if (s->pass == TABLE)
		table_line(s, cells);
	else if (json_line(s, cells, err) < 0)
		return -1;
	/* With nobody to read it there is no reason to go through all the rest. */
	return ferror(stdout) ? err_errno(err, "standard output") : 0;
}

int sheet_print(const struct sheet_column *columns, size_t n, bool json, sheet_source *source,
		void *ctx, struct err *err)
{
	struct sheet s = { .columns = columns, .n = n, .pass = json ? JSON : MEASURE };
	if (json)
		return source(ctx, &s, err);
	const char *titles[SHEET_COLUMNS_MAX];
	for (size_t i = 0; i < n; i++)
		titles[i] = columns[i].title;
	measure(&s, titles);
	if (source(ctx, &s, err) < 0)
		return -1;
	s.pass = TABLE;
	return sheet_row(&s, titles, err) < 0 ? -1 : source(ctx, &s, err);
}
