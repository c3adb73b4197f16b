/* The Python driver as a string, so that the engine is one file and reads nothing at run time. */
#include "engine/engine.h"

__asm__(".section .rodata\n"
	".globl kernel_driver\n"
	".type kernel_driver, @object\n"
	"kernel_driver:\n"
	".incbin \"src/engine/kernel.py\"\n"
	".byte 0\n"
	".size kernel_driver, . - kernel_driver\n"
	".previous\n");
