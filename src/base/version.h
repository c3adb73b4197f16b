/* What the programs call themselves. */
#ifndef BASE_VERSION_H
#define BASE_VERSION_H

#define SANDGATE_VERSION "0.1.0"

#endif
