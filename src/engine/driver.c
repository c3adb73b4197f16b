/* What runs inside a sandbox to drive its interpreters, as strings, so that the engine is one file
 * and reads nothing at run time. */
#include "engine/engine.h"

#define EMBED(symbol, file)                                                                        \
	__asm__(".section .rodata\n"                                                               \
		".globl " #symbol "\n"                                                             \
		".type " #symbol ", @object\n" #symbol ":\n"                                       \
		".incbin \"" file "\"\n"                                                           \
		".byte 0\n"                                                                        \
		".size " #symbol ", . - " #symbol "\n"                                             \
		".previous\n")

EMBED(kernel_driver, "src/engine/kernel.py");
EMBED(kernel_charts, "src/engine/charts.py");
EMBED(kernel_javascript, "src/engine/kernel.js");
