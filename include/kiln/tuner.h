// Tuning ahead, in C99. Part of kiln/kiln.h, which says how errors, threads and memory are treated.
#ifndef KILN_TUNER_H
#define KILN_TUNER_H

#include "kiln/kiln.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KILN_RETUNE_NONE = 0, KILN_RETUNE_STALE = 1, KILN_RETUNE_ALL = 2 };

// The buckets of the engine's launches so far, as the text of a workload file, which `kiln prewarm` and
// `kiln coverage` read; the caller's to free.
KILN_API kiln_status kiln_engine_workload(kiln_engine* engine, char** text);

// A tuner on an engine's device, with its files and options; the caller's until kiln_tuner_destroy().
KILN_API kiln_status kiln_tuner_create(kiln_engine* engine, kiln_tuner** tuner);
KILN_API void kiln_tuner_destroy(kiln_tuner* tuner);
// Adds the buckets of `count` problems of an op to what the calls below are about.
KILN_API kiln_status kiln_tuner_add(kiln_tuner* tuner, const char* op, const kiln_problem* problems, size_t count);
// Adds each bucket of the problems from `low` to `high`, both included on every axis.
KILN_API kiln_status kiln_tuner_add_between(kiln_tuner* tuner, const char* op, const kiln_problem* low,
                                            const kiln_problem* high);
// Tunes buckets without a usable record, and those of `retune`, into the overlay. The report, as JSON, is the caller's
// to free, and may be null. One bucket's failure stands in the report. Blocks: minutes.
KILN_API kiln_status kiln_tuner_tune(kiln_tuner* tuner, int32_t retune, char** report);
// Brings all machine code that these buckets can need to the overlay. Blocks: minutes.
KILN_API kiln_status kiln_tuner_compile(kiln_tuner* tuner, char** report);
// Writes a file to ship (kiln_options.bases) that serves these buckets without NVRTC. `replace` not 0: over any file.
// Blocks: minutes.
KILN_API kiln_status kiln_tuner_deploy(kiln_tuner* tuner, const char* path, int32_t replace, char** report);

#ifdef __cplusplus
}
#endif

#endif
