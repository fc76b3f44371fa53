// The version of these headers. kiln::version(), and kiln_version() in C, give that of the library that runs.
#ifndef KILN_VERSION_H
#define KILN_VERSION_H

#define KILN_VERSION_MAJOR 0
#define KILN_VERSION_MINOR 1
#define KILN_VERSION_PATCH 0
#define KILN_VERSION_STRING "0.1.0"
// For the preprocessor to compare: 10000 * major + 100 * minor + patch.
#define KILN_VERSION_NUMBER (10000 * KILN_VERSION_MAJOR + 100 * KILN_VERSION_MINOR + KILN_VERSION_PATCH)

#endif
