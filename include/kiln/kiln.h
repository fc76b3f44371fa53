// Kiln in C99: engines, ops, plans and launches for other languages. Complete without the C++ headers.
//
//   kiln_engine* engine = NULL;
//   kiln_op* norm = NULL;
//   kiln_problem problem = KILN_PROBLEM_INIT;
//   kiln_arguments arguments = KILN_ARGUMENTS_INIT;
//   const kiln_setting sizes[] = {KILN_SIZE("rows", rows), KILN_SIZE("cols", 4096), KILN_WORD("dtype", "bf16")};
//   const kiln_argument values[] = {KILN_ADDRESS("x", x), KILN_ADDRESS("weight", weight), KILN_ADDRESS("y", y),
//                                   KILN_REAL("epsilon", 1e-6)};
//   if (kiln_engine_create(NULL, &engine) || kiln_engine_op(engine, "rms_norm", &norm) ||
//       kiln_op_problem(norm, sizes, 3, &problem) || kiln_op_arguments(norm, values, 4, &arguments) ||
//       kiln_launch(norm, &problem, &arguments, stream, NULL))
//     fprintf(stderr, "%s\n", kiln_last_error());
//   kiln_op_destroy(norm);
//   kiln_engine_destroy(engine);
//
// Errors. A function that can fail returns a kiln_status: KILN_OK, which is 0, or the kind of failure. Then
// kiln_last_error() is the sentence, and results are not written. A null handle, a null pointer to a result, and a
// struct without its size give KILN_BAD_INPUT. No C++ exception leaves a function of this header.
//
// Threads. Every function may be called from any thread, at the same time as any other, with the same handles. Two
// things are the caller's: a handle is not destroyed while another call uses it, and a struct is not written while
// another call reads it.
//
// Memory. The caller owns what it passes in. It is read during the call; only the functions and `user` of kiln_options
// are kept, until the engine's resources end. These live until the engine and all of its ops, plans and tuners are
// destroyed, in any order. A handle is the caller's until its _destroy, and a `char**` result until kiln_free_text().
// A `const char*` that is returned, or that a struct is filled with, belongs to the handle that it was asked of.
//
// Waiting. "Blocks" at a function says that it may take long: it waits for files, compiles, tunes or the device. The
// other functions take microseconds at most. Release a lock that callbacks need, such as an interpreter's, before a
// function that blocks.
#ifndef KILN_KILN_H
#define KILN_KILN_H

#include <stddef.h>  // NOLINT(modernize-deprecated-headers)
#include <stdint.h>  // NOLINT(modernize-deprecated-headers)

#include "kiln/export.h"
#include "kiln/version.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;
// A CUstream or cudaStream_t; null is the default stream.
typedef struct CUstream_st* kiln_stream;

typedef int32_t kiln_status;
enum {
  KILN_OK = 0,
  KILN_BAD_INPUT = 1,       // unknown op, axis, type or tensor; a size out of range; a missing or misaligned tensor
  KILN_BAD_MANIFEST = 2,    // op.toml or an implementation's file is wrong
  KILN_BAD_EXPRESSION = 3,  // an expression's value overflows 64 bits
  KILN_NO_DRIVER = 4,       // libcuda is absent or too old
  KILN_NO_DEVICE = 5,       // the driver sees no such device
  KILN_NO_NVRTC = 6,        // a compile is needed and libnvrtc is absent
  KILN_NO_CUBLASLT = 7,     // cuBLASLt is asked for and absent or unusable
  KILN_NO_NCCL = 8,         // NCCL is asked for and absent or unusable
  KILN_COMPILE_FAILED = 9,  // NVRTC refused a template; the sentence holds its log
  KILN_DRIVER_FAILED = 10,  // a driver call failed
  KILN_OUT_OF_MEMORY = 11,  // device or host memory
  KILN_BAD_FILE = 12,       // a .kiln file is damaged, too new, or no .kiln file
  KILN_NO_PERMISSION = 13,  // the file system refused
  KILN_IO = 14,             // any other failure of files, sockets, processes or SQLite
  KILN_NOT_TUNED = 15,      // a miss under KILN_ON_MISS_ERROR, or nothing legal can serve
  KILN_CAPTURE = 16,        // the work would end a stream capture
  KILN_WRONG_RESULT = 17,   // verification failed
  KILN_INTERRUPTED = 18,    // stop_requested said so
  KILN_TEAM_FAILED = 19,    // a rank of the team ended, failed, came late or not at all
  KILN_NOT_READY = 20,      // kiln_try_launch() would have to wait; no failure
  KILN_INTERNAL = 100       // an exception of no known kind
};

// The name of a status, such as "bad_input"; "unknown" for other numbers. Never null, and never freed.
KILN_API const char* kiln_status_name(kiln_status status);
// What the calling thread's last failed call has to say: what was asked, what was found, and what to do. Empty before a
// failure. Valid until the thread's next failed call, at most 8191 bytes. Never null, and not to be freed.
KILN_API const char* kiln_last_error(void);
// The library's version, "0.1.0"; that of this header is KILN_VERSION_STRING. Never freed.
KILN_API const char* kiln_version(void);
// Frees a text that a function of this header gave. Null is nothing.
KILN_API void kiln_free_text(char* text);

// Values: problems, arguments, tensors.

#define KILN_MAX_AXES 12
#define KILN_MAX_SELECTIONS 16
#define KILN_MAX_RUNTIME 32
#define KILN_MAX_TENSORS 24
#define KILN_MAX_RANK 4

// Each of these structs begins with its size, by which a library tells the versions of callers apart. Initialise it with
// its _INIT macro. Structs may be copied and kept; they point at nothing that Kiln owns.

// Sizes and selections. Made by kiln_op_problem(); `axes` may be changed between calls, by ids of kiln_op_axis().
typedef struct kiln_problem {
  size_t size;
  int64_t axes[KILN_MAX_AXES];              // in elements; of 0: a launch does nothing
  uint8_t selections[KILN_MAX_SELECTIONS];  // of each type and choice: the index of its value
  uint32_t op;                              // a digest of the op's names; 0: not checked
  uint32_t reserved;
} kiln_problem;
#define KILN_PROBLEM_INIT \
  { sizeof(kiln_problem), {0}, {0}, 0, 0 }

// Addresses and run-time values. Made by kiln_op_arguments(). `tensors` may be changed between calls, by ids of
// kiln_op_tensor(); the rest by the functions below.
typedef struct kiln_arguments {
  size_t size;
  const void* tensors[KILN_MAX_TENSORS];  // device addresses; null for an optional tensor that is absent
  int64_t runtime[KILN_MAX_RUNTIME];
  const int32_t* lengths[KILN_MAX_AXES];  // device addresses of lengths
  uint32_t runtime_set;
  uint32_t lengths_set;
  uint32_t op;  // as in kiln_problem
  uint32_t reserved;
} kiln_arguments;
#define KILN_ARGUMENTS_INIT \
  { sizeof(kiln_arguments), {0}, {0}, {0}, 0, 0, 0, 0 }

typedef int32_t kiln_dtype;
enum {
  KILN_BF16 = 0,
  KILN_F16 = 1,
  KILN_F32 = 2,
  KILN_F64 = 3,
  KILN_E4M3 = 4,
  KILN_E5M2 = 5,
  KILN_I8 = 6,
  KILN_U8 = 7,
  KILN_I32 = 8,
  KILN_I64 = 9
};
enum { KILN_DEVICE_UNKNOWN = -1, KILN_DEVICE_HOST = -2 };

// One tensor of a call, for kiln_bind().
typedef struct kiln_tensor {
  size_t size;
  uint32_t id;  // of kiln_op_tensor()
  kiln_dtype type;
  int32_t rank;         // 0, for a single element, to KILN_MAX_RANK
  int32_t device;       // the ordinal of the GPU that has it, KILN_DEVICE_HOST, or KILN_DEVICE_UNKNOWN: not checked
  const void* address;  // null where a size is 0
  int64_t sizes[KILN_MAX_RANK];    // outermost first
  int64_t strides[KILN_MAX_RANK];  // elements between neighbours, 0 or more
} kiln_tensor;
#define KILN_TENSOR_INIT                                                    \
  {                                                                         \
    sizeof(kiln_tensor), 0, KILN_F32, 0, KILN_DEVICE_UNKNOWN, 0, {0}, { 0 } \
  }

// A problem and its arguments. Made by kiln_op_binding(), filled by kiln_bind(), and given to kiln_launch().
typedef struct kiln_binding {
  size_t size;
  kiln_problem problem;
  kiln_arguments arguments;
  uint32_t axes_given, selections_given, values_given;
  uint32_t reserved;
} kiln_binding;
#define KILN_BINDING_INIT \
  { sizeof(kiln_binding), KILN_PROBLEM_INIT, KILN_ARGUMENTS_INIT, 0, 0, 0, 0 }

// A size of an axis, or where `word` is not null the value of a type or choice.
typedef struct kiln_setting {
  const char* name;
  const char* word;
  int64_t number;
} kiln_setting;
#define KILN_SIZE(name, number) \
  { (name), 0, (number) }
#define KILN_WORD(name, word) \
  { (name), (word), 0 }

// A tensor's address, the device address of an axis's length, or a run-time value.
typedef struct kiln_argument {
  const char* name;
  int32_t kind;
  int32_t reserved;
  const void* address;
  int64_t integer;
  double real;
} kiln_argument;
enum { KILN_ARGUMENT_ADDRESS = 0, KILN_ARGUMENT_INTEGER = 1, KILN_ARGUMENT_REAL = 2 };
#define KILN_ADDRESS(name, address) \
  { (name), KILN_ARGUMENT_ADDRESS, 0, (address), 0, 0 }
#define KILN_INTEGER(name, integer) \
  { (name), KILN_ARGUMENT_INTEGER, 0, 0, (integer), 0 }
#define KILN_REAL(name, real) \
  { (name), KILN_ARGUMENT_REAL, 0, 0, 0, (real) }

// Engines.

typedef struct kiln_engine kiln_engine;
typedef struct kiln_op kiln_op;
typedef struct kiln_plan kiln_plan;
typedef struct kiln_tuner kiln_tuner;
typedef struct kiln_team kiln_team;

// What a launch does when no record can serve its bucket.
enum {
  KILN_ON_MISS_TUNE = 0,        // wait for a tune, then launch the winner; needs NVRTC
  KILN_ON_MISS_BACKGROUND = 1,  // launch what NEAREST would, tune in a worker process; needs NVRTC and kiln-worker
  KILN_ON_MISS_NEAREST = 2,     // never tune: a near record, else the model's choice, else the default
  KILN_ON_MISS_ERROR = 3        // KILN_NOT_TUNED
};
enum { KILN_LOADING_LAZY = 0, KILN_LOADING_EAGER = 1 };
enum { KILN_REGIME_COLD_L2 = 0, KILN_REGIME_HOT_L2 = 1 };
enum { KILN_STRATEGY_RACING = 0, KILN_STRATEGY_EXHAUSTIVE = 1 };
enum { KILN_ISOLATION_AUTOMATIC = 0, KILN_ISOLATION_WORKER = 1, KILN_ISOLATION_IN_PROCESS = 2 };
enum { KILN_TRUST_DEFAULT = 0, KILN_TRUST_OWNER = 1, KILN_TRUST_SIGNED = 2 };

enum { KILN_TUNE_WAITING = 0, KILN_TUNE_BEGUN = 1, KILN_TUNE_CANDIDATE = 2, KILN_TUNE_FINISHED = 3 };
// One step of a tune. Its texts are valid during the call, and never null.
typedef struct kiln_tune_event {
  size_t size;
  int32_t kind;
  int32_t reserved;
  const char *op, *bucket, *implementation, *config;
  const char* verdict;  // "ok", "wrong_result", ...
  const char* reason;   // of every verdict but "ok"; or who tunes the bucket
  int64_t done, total;  // candidates
  double cost_ns, best_ns, baseline_ns;
} kiln_tune_event;

enum { KILN_COMPILE_WHEN_NEEDED = 0, KILN_COMPILE_NEVER = 1 };
enum { KILN_LOG_INFO = 0, KILN_LOG_WARNING = 1 };
enum {
  KILN_LOG_OF_WARNING = 0,   // what kiln_engine_warnings() has, too
  KILN_LOG_OF_TUNE = 1,      // a bucket's tune begins, ends, or waits for another process's
  KILN_LOG_OF_COMPILE = 2,   // a specialisation was compiled, or failed to
  KILN_LOG_OF_FALLBACK = 3,  // a fallback serves a bucket from now on
  KILN_LOG_OF_SWAP = 4       // what was tuned or compiled in the background serves in a fallback's place
};
// What an engine tells while it works. Its texts are valid during the call, and never null.
typedef struct kiln_log_event {
  size_t size;
  int32_t level, kind;
  const char *op, *bucket;  // empty where it is of none
  const char* text;         // one sentence
} kiln_log_event;

// Fill it with kiln_options_init(), then change what differs. kiln/options.hpp and docs/embedding.md say more of each.
typedef struct kiln_options {
  size_t size;
  int32_t device;            // ordinal
  int32_t on_miss;           // KILN_ON_MISS_TUNE
  const char* overlay;       // the user's own file; null: $KILN_CACHE, else the user's cache folder; "": in memory
  const char* const* bases;  // shipped files, asked in order after the overlay
  size_t base_count;
  int32_t require_bases;            // not 0: a base that is missing or refused is an error, not a warning
  int32_t trust;                    // which bases may supply machine code
  const char* const* trusted_keys;  // folders of public keys
  size_t trusted_key_count;
  const char* const* template_paths;  // folders of ops
  size_t template_path_count;
  int64_t overlay_limit_bytes;    // 0: no limit
  int64_t workspace_limit_bytes;  // 0: an eighth of the device's memory
  int32_t loading, regime;
  double background_share;  // of the GPU's time, for KILN_ON_MISS_BACKGROUND
  int32_t histogram;        // not 0: one launch in 16 is counted by its problem
  int32_t strategy;
  int64_t search_trials;         // 0: no limit
  int64_t search_time_limit_ms;  // 0: no limit
  uint64_t search_seed;
  const char* search_samples;  // null: none
  int32_t compile_workers;     // 0: one for each core
  int32_t isolation;
  const char* worker;  // kiln-worker; null: looked for
  int64_t compile_limit_ms, compile_memory_bytes, candidate_limit_ms;
  // Both are called on the thread that tunes, with `user`; null: none. stop_requested returns not 0 to end the tune.
  // Neither may throw, end its thread, or ask this engine for a tune. They are called until the engine's resources end.
  int32_t (*stop_requested)(void* user);
  void (*on_tune)(const kiln_tune_event* event, void* user);
  // Called on the thread on which it happens, by several threads at once; null: none. It must not call the engine.
  void (*on_log)(const kiln_log_event* event, void* user);
  // Device memory for workspaces in place of the driver's; both or neither. One at a time, on any thread, with the
  // device's primary context current; neither may call the engine, nor wait for a thread that does. allocate: aligned to
  // 256 bytes, for work on `stream`; null: none are left, and it is asked again once other streams gave theirs back.
  // `captured` not 0: a graph keeps them until free. free: work that was enqueued on `stream` before may still use them;
  // wait for the device where `stream` is null or may have ended. kiln/options.hpp says more.
  void* (*allocate)(size_t bytes, kiln_stream stream, int32_t captured, void* user);
  void (*free)(void* address, size_t bytes, kiln_stream stream, void* user);
  void* user;
  kiln_team* team;        // the ranks that compute ops with a team axis; null: none. Its device must be `device`
  int32_t compile;        // KILN_COMPILE_NEVER: NVRTC is not opened
  int32_t compile_ahead;  // compiles at a time that no launch waits for; -1: half of compile_workers; 0: none
  const char* nvrtc;      // libnvrtc.so; null: $KILN_NVRTC_LIBRARY, else looked for
  const char *remote, *signing_key;  // a store that machines share, and its key; null: $KILN_REMOTE, $KILN_SIGNING_KEY
} kiln_options;

// Writes the defaults. `size` is sizeof(kiln_options).
KILN_API kiln_status kiln_options_init(kiln_options* options, size_t size);

// Makes an engine for one device; null options are the defaults. Retains the device's primary context. The engine is
// the caller's, until kiln_engine_destroy(). Blocks: it opens files.
KILN_API kiln_status kiln_engine_create(const kiln_options* options, kiln_engine** engine);
// Null is nothing. The engine's resources end with its last handle. Blocks until a background tune stops, except in a callback.
KILN_API void kiln_engine_destroy(kiln_engine* engine);

// Names of ops, one a line, for the caller to free. Blocks: it reads manifests.
KILN_API kiln_status kiln_engine_ops(kiln_engine* engine, char** names);
// The op of this name, which is the caller's until kiln_op_destroy(). Blocks at the first call for an op: it reads the
// manifest, and under KILN_LOADING_EAGER it loads machine code.
KILN_API kiln_status kiln_engine_op(kiln_engine* engine, const char* name, kiln_op** op);
KILN_API void kiln_op_destroy(kiln_op* op);

enum {
  KILN_ORIGIN_HOT = 0,      // a plan in memory
  KILN_ORIGIN_OVERLAY = 1,  // a record of the user's file
  KILN_ORIGIN_BASE = 2,     // a record of a shipped file
  KILN_ORIGIN_NEAREST = 3,  // fallback: another record, of a near device or bucket
  KILN_ORIGIN_MODEL = 4,    // fallback: the cost model's choice
  KILN_ORIGIN_DEFAULT = 5   // fallback: the op's default
};
// "hot", "overlay", ...; "unknown" for other numbers. Never freed.
KILN_API const char* kiln_origin_name(int32_t origin);

typedef struct kiln_stats {
  size_t size;
  int64_t hot, overlay, base, nearest, model, default_;  // launches by origin
  int64_t tunes, compiles, stale, constraint_fallbacks, quarantined, waiting, uncounted, workspace_bytes;
  double tuning_ns;
  int64_t miss_absent, miss_unusable, miss_damaged, miss_unreadable, miss_no_cubin, miss_refused_cubin, compiles_ahead;
  int64_t shared_hits, shared_misses, shared_errors, shared_bytes;  // the shared store; bytes read and written
} kiln_stats;
#define KILN_STATS_INIT \
  { sizeof(kiln_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
KILN_API kiln_status kiln_engine_stats(kiln_engine* engine, kiln_stats* stats);
// Failures that the engine worked around, one a line, for the caller to free.
KILN_API kiln_status kiln_engine_warnings(kiln_engine* engine, char** warnings);

// Which of some problems launches would hit.
typedef struct kiln_coverage {
  size_t size;
  int64_t total, hits, gaps;
  int32_t capturable;  // 1: a capture could launch every problem
  int32_t reserved;
} kiln_coverage;
#define KILN_COVERAGE_INIT \
  { sizeof(kiln_coverage), 0, 0, 0, 0, 0 }
// Makes the bucket of every problem ready once, with workspaces for `stream`, so that launches and captures miss
// nothing. `problems` is an array of `count`. A bucket that fails is a gap, not an error. `coverage` or `json`, which
// lists the gaps with reasons and is the caller's to free, may be null. Blocks: it looks up, loads, compiles or tunes.
KILN_API kiln_status kiln_engine_prepare(kiln_engine* engine, kiln_op* op, const kiln_problem* problems, size_t count,
                                         kiln_stream stream, kiln_coverage* coverage, char** json);
// The same, but makes nothing ready: it tells what launches on `stream` would meet now. Blocks: it reads files.
KILN_API kiln_status kiln_engine_coverage(kiln_engine* engine, kiln_op* op, const kiln_problem* problems, size_t count,
                                          kiln_stream stream, kiln_coverage* coverage, char** json);
// Explains what KILN_ON_MISS_NEAREST would launch and why, as JSON or, with as_text not 0, for people; the caller's to
// free. Blocks: it reads files.
KILN_API kiln_status kiln_engine_explain(kiln_engine* engine, kiln_op* op, const kiln_problem* problem, int32_t as_text,
                                         char** explanation);
// Waits for compiles ahead, and for tunes in the background. `*ended` is 0 where the time passed before. Blocks.
KILN_API kiln_status kiln_engine_wait_for_tunes(kiln_engine* engine, int64_t limit_ms, int32_t* ended);
// Frees the workspaces of all streams, and those of graphs that are gone. `bytes` may be null. Blocks: it waits for the
// device.
KILN_API kiln_status kiln_engine_trim(kiln_engine* engine, int64_t* bytes);
// Waits for `stream`, then gives a length, or an index, in device memory that was out of its bounds, as one sentence
// for the caller to free; null where there is none. Call it until it gives null. Blocks.
KILN_API kiln_status kiln_engine_check(kiln_engine* engine, kiln_stream stream, char** fault);

// Ops.

// The op's name. Belongs to the op.
KILN_API const char* kiln_op_name(const kiln_op* op);
// Ids of names, by which structs are changed between calls. A name that the op does not have is KILN_BAD_INPUT.
KILN_API kiln_status kiln_op_axis(const kiln_op* op, const char* name, uint32_t* id);
KILN_API kiln_status kiln_op_tensor(const kiln_op* op, const char* name, uint32_t* id);
KILN_API kiln_status kiln_op_value(const kiln_op* op, const char* name, uint32_t* id);  // a run-time value

// A problem of `count` settings. Every axis must be given; a type or choice left out takes its default.
KILN_API kiln_status kiln_op_problem(const kiln_op* op, const kiln_setting* settings, size_t count,
                                     kiln_problem* problem);
// Arguments of `count` tensors, lengths and run-time values.
KILN_API kiln_status kiln_op_arguments(const kiln_op* op, const kiln_argument* values, size_t count,
                                       kiln_arguments* arguments);
// What kiln_bind() begins with: choices, sizes of axes that no tensor shows, and run-time values.
KILN_API kiln_status kiln_op_binding(const kiln_op* op, const kiln_setting* settings, size_t setting_count,
                                     const kiln_argument* values, size_t value_count, kiln_binding* binding);
// Fills a binding with the problem and arguments of `count` tensors, and checks these by what the op says of them:
// sizes, types, strides, devices, alignment to elements, and memory that outputs share. May be called again for other
// tensors. Allocates nothing but at the first call with some types and choices. A launch of a binding that was never
// bound is KILN_BAD_INPUT; tensors that are refused leave the binding as it was.
KILN_API kiln_status kiln_bind(const kiln_op* op, kiln_binding* binding, const kiln_tensor* tensors, size_t count);

// Sets a run-time value, converted to its type. A real that is no integer is refused for a value that is one.
KILN_API kiln_status kiln_set_integer(kiln_arguments* arguments, uint32_t value, int64_t number);
KILN_API kiln_status kiln_set_real(kiln_arguments* arguments, uint32_t value, double number);
// Takes the length of an axis from the int32 at this device address, which each launch reads when it runs; null: from
// the problem again.
KILN_API kiln_status kiln_set_length(kiln_arguments* arguments, uint32_t axis, const int32_t* length);

// Launches on `stream`, and writes where the config came from; `origin` may be null. Does not wait for the kernel. A
// launch of a hot bucket takes no lock and allocates nothing. Blocks on a miss, as on_miss says: a tune may take
// minutes. kiln_engine_prepare() before leaves nothing to miss.
KILN_API kiln_status kiln_launch(const kiln_op* op, const kiln_problem* problem, const kiln_arguments* arguments,
                                 kiln_stream stream, int32_t* origin);

// Launches as kiln_launch() does where nothing has to be looked up, loaded, tuned, allocated or waited for. Else nothing
// is begun, and KILN_NOT_READY is returned: call kiln_launch() or kiln_engine_prepare() where waiting is harmless. On a
// capturing stream it is kiln_launch().
KILN_API kiln_status kiln_try_launch(const kiln_op* op, const kiln_problem* problem, const kiln_arguments* arguments,
                                     kiln_stream stream, int32_t* origin);

// What the op takes, as JSON: axes, types, choices, run-time values, tensors, and its contract in words. With a problem,
// also sizes, strides, defaults, bounds and alignments there; null: without. The caller's to free.
KILN_API kiln_status kiln_op_describe(const kiln_op* op, const kiln_problem* problem, char** json);

// The same as structs. Texts belong to the op. An index from 0 on; one past the last is KILN_BAD_INPUT.
typedef struct kiln_op_info {
  size_t size;
  const char *name, *summary, *contract, *folder;
  int64_t revision;
  uint32_t axes, selections, values, tensors;  // how many there are
} kiln_op_info;
#define KILN_OP_INFO_INIT \
  { sizeof(kiln_op_info), 0, 0, 0, 0, 0, 0, 0, 0, 0 }
KILN_API kiln_status kiln_op_get_info(const kiln_op* op, kiln_op_info* info);

typedef struct kiln_axis_info {
  size_t size;
  const char *name, *policy;
  int64_t minimum, maximum, multiple_of;
  int32_t on_device, team;
} kiln_axis_info;
#define KILN_AXIS_INFO_INIT \
  { sizeof(kiln_axis_info), 0, 0, 0, 0, 0, 0, 0 }
KILN_API kiln_status kiln_op_axis_info(const kiln_op* op, uint32_t axis, kiln_axis_info* info);

// A type or a choice, in the order of kiln_problem.selections.
typedef struct kiln_selection_info {
  size_t size;
  const char *name, *default_text;
  const char* const* values;
  size_t value_count;
  int32_t is_type;
  int32_t reserved;
} kiln_selection_info;
#define KILN_SELECTION_INFO_INIT \
  { sizeof(kiln_selection_info), 0, 0, 0, 0, 0, 0 }
KILN_API kiln_status kiln_op_selection_info(const kiln_op* op, uint32_t selection, kiln_selection_info* info);

typedef struct kiln_value_info {
  size_t size;
  const char *name, *type, *default_text, *bound_text;
  uint32_t id;  // of kiln_op_value()
  int32_t team_rank;
} kiln_value_info;
#define KILN_VALUE_INFO_INIT \
  { sizeof(kiln_value_info), 0, 0, 0, 0, 0, 0 }
KILN_API kiln_status kiln_op_value_info(const kiln_op* op, uint32_t value, kiln_value_info* info);

typedef struct kiln_tensor_info {
  size_t size;
  const char *name, *type, *when;
  int32_t rank, output, optional, per_rank;
  const char* shape[KILN_MAX_RANK];
  const char* strides[KILN_MAX_RANK];
} kiln_tensor_info;
#define KILN_TENSOR_INFO_INIT                                 \
  {                                                           \
    sizeof(kiln_tensor_info), 0, 0, 0, 0, 0, 0, 0, {0}, { 0 } \
  }
KILN_API kiln_status kiln_op_tensor_info(const kiln_op* op, uint32_t tensor, kiln_tensor_info* info);

// Plans.

// Makes the problem's bucket ready and keeps what serves it; the caller's until kiln_plan_destroy(). Blocks as a missed
// launch does.
KILN_API kiln_status kiln_plan_create(const kiln_op* op, const kiln_problem* problem, kiln_stream stream,
                                      kiln_plan** plan);
KILN_API void kiln_plan_destroy(kiln_plan* plan);
// As kiln_launch(), for problems of the plan's bucket, without the look-up.
KILN_API kiln_status kiln_plan_launch(const kiln_plan* plan, const kiln_problem* problem,
                                      const kiln_arguments* arguments, kiln_stream stream, int32_t* origin);
// Of the config that serves the bucket's upper edge. Texts belong to the plan.
typedef struct kiln_plan_info {
  size_t size;
  const char *implementation, *config;
  double cost_ns;
  int64_t workspace_bytes;
  int32_t origin;
  int32_t registers;
  int64_t spill_bytes;
  int32_t blocks_per_multiprocessor;
  int32_t reserved;
} kiln_plan_info;
#define KILN_PLAN_INFO_INIT \
  { sizeof(kiln_plan_info), 0, 0, 0, 0, 0, 0, 0, 0, 0 }
KILN_API kiln_status kiln_plan_get_info(const kiln_plan* plan, kiln_plan_info* info);

#ifdef __cplusplus
}
#endif

#include "kiln/team.h"
#include "kiln/tuner.h"
#endif
