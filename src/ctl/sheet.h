/* Rows on stdout, as a table for people or as JSON lines for programs. A table's columns are as
 * wide as what is in them: the source of the rows is asked twice, first to measure and then to
 * print, so that no number of rows needs memory. */
#ifndef CTL_SHEET_H
#define CTL_SHEET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"

enum cell_kind {
	CELL_TEXT,   /* "" is null in JSON and - in a table */
	CELL_NUMBER, /* digits */
	CELL_LIST,   /* words with commas in between; an array in JSON */
};

struct sheet_column {
	const char *title; /* of the table */
	const char *key;   /* in JSON */
	enum cell_kind kind;
};

#define SHEET_COLUMNS_MAX 16

struct sheet;

/* Adds one row: as many cells as there are columns. */
int sheet_row(struct sheet *s, const char *const *cells, struct err *err);

/* Calls sheet_row for each row. */
typedef int sheet_source(void *ctx, struct sheet *s, struct err *err);

int sheet_print(const struct sheet_column *columns, size_t n, bool json, sheet_source *source,
		void *ctx, struct err *err);

/* "2026-01-22T15:06:11.971102+00:00" as the REST answers have it, "" for 0. */
const char *sheet_time(char out[CLOCK_TEXT], int64_t real_us);

#endif
