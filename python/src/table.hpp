// What the library of kiln.torch calls: kiln.h, and what the package kiln adds for Python. It is a wheel of its own, and holds no Kiln.
#pragma once

#include "kiln/kiln.h"

extern "C" {

/// Functions that give a kiln_status say why by `error`. All may be called with the GIL or without.
struct kiln_python_table {
  size_t size;
  /// Before a call: refused at the interpreter's end, and in a child that was forked from a process with engines. Where
  /// it gives KILN_OK, `leave` follows.
  kiln_status (*enter)(void);
  void (*leave)(void);
  /// The op of the engine that kiln.op() uses there; it lives until the interpreter ends. Blocks.
  kiln_status (*find_op)(const char* name, const char* folder, int32_t device, kiln_op** op);
  /// kiln_launch() as kiln.op() calls it: Ctrl-C ends a tune, and the log is told. Blocks.
  kiln_status (*launch)(const kiln_op* op, const kiln_problem* problem, const kiln_arguments* arguments,
                        kiln_stream stream);
  /// Device memory of engines that are made later; `user` is the device's ordinal.
  void (*set_allocator)(void* (*allocate)(size_t bytes, kiln_stream stream, int32_t captured, void* user),
                        void (*free)(void* address, size_t bytes, kiln_stream stream, void* user));
  /// The calling thread's last failure.
  const char* (*error)(void);

  kiln_status (*op_info)(const kiln_op* op, kiln_op_info* info);
  kiln_status (*op_axis)(const kiln_op* op, const char* name, uint32_t* id);
  kiln_status (*op_tensor)(const kiln_op* op, const char* name, uint32_t* id);
  kiln_status (*op_value)(const kiln_op* op, const char* name, uint32_t* id);
  kiln_status (*op_binding)(const kiln_op* op, const kiln_setting* settings, size_t setting_count,
                            const kiln_argument* values, size_t value_count, kiln_binding* binding);
  kiln_status (*bind)(const kiln_op* op, kiln_binding* binding, const kiln_tensor* tensors, size_t count);
  kiln_status (*set_integer)(kiln_arguments* arguments, uint32_t value, int64_t number);
  kiln_status (*set_real)(kiln_arguments* arguments, uint32_t value, double number);
  kiln_status (*set_length)(kiln_arguments* arguments, uint32_t axis, const int32_t* length);
  kiln_status (*try_launch)(const kiln_op* op, const kiln_problem* problem, const kiln_arguments* arguments,
                            kiln_stream stream, int32_t* origin);
};

}  // extern "C"
