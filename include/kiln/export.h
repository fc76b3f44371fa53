/* What the shared library exports: only what is marked KILN_API. For C99 and C++. */
#ifndef KILN_EXPORT_H
#define KILN_EXPORT_H

#if defined(__GNUC__)
#define KILN_API __attribute__((visibility("default")))
#define KILN_HIDDEN __attribute__((visibility("hidden"))) /* a private member of an exported class */
#else
#define KILN_API
#define KILN_HIDDEN
#endif

#endif
