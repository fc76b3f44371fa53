// [launch]
#include <kiln/kiln.h>
#include <stdio.h>

// rms_norm of rows of 4096, with its names looked up once. One serves all lengths and threads.
struct norm {
  kiln_op* op;
  kiln_problem sizes;
  kiln_arguments values;
  uint32_t rows, x, weight, y;
};

static kiln_status make_norm(kiln_engine* engine, struct norm* norm) {
  static const kiln_setting sizes[] = {KILN_SIZE("rows", 1), KILN_SIZE("cols", 4096), KILN_WORD("dtype", "bf16")};
  static const kiln_argument values[] = {KILN_REAL("epsilon", 1e-6)};
  const struct norm empty = {NULL, KILN_PROBLEM_INIT, KILN_ARGUMENTS_INIT, 0, 0, 0, 0};
  kiln_status status;
  *norm = empty;
  if ((status = kiln_engine_op(engine, "rms_norm", &norm->op))) return status;
  if ((status = kiln_op_problem(norm->op, sizes, 3, &norm->sizes))) return status;
  if ((status = kiln_op_arguments(norm->op, values, 1, &norm->values))) return status;
  if ((status = kiln_op_axis(norm->op, "rows", &norm->rows))) return status;
  if ((status = kiln_op_tensor(norm->op, "x", &norm->x))) return status;
  if ((status = kiln_op_tensor(norm->op, "weight", &norm->weight))) return status;
  return kiln_op_tensor(norm->op, "y", &norm->y);
}

// x, y: rows x 4096 of bf16, weight: 4096 of bf16, all in device memory of the caller.
kiln_status normalise(const struct norm* norm, const void* x, const void* weight, void* y, int64_t rows,
                      kiln_stream stream) {
  kiln_problem problem = norm->sizes;
  kiln_arguments arguments = norm->values;
  problem.axes[norm->rows] = rows;
  arguments.tensors[norm->x] = x;
  arguments.tensors[norm->weight] = weight;
  arguments.tensors[norm->y] = y;
  return kiln_launch(norm->op, &problem, &arguments, stream, NULL);
}
// [end]

// [bind]
// The same of tensors with sizes and strides: what does not fit is refused by name.
kiln_status normalise_tensors(const struct norm* norm, kiln_tensor x, kiln_tensor weight, kiln_tensor y,
                              kiln_stream stream) {
  static const kiln_argument values[] = {KILN_REAL("epsilon", 1e-6)};
  kiln_binding binding = KILN_BINDING_INIT;
  kiln_tensor tensors[3];
  kiln_status status = kiln_op_binding(norm->op, NULL, 0, values, 1, &binding);
  if (status) return status;
  tensors[0] = x;
  tensors[1] = weight;
  tensors[2] = y;
  tensors[0].id = norm->x;
  tensors[1].id = norm->weight;
  tensors[2].id = norm->y;
  if ((status = kiln_bind(norm->op, &binding, tensors, 3))) return status;
  return kiln_launch(norm->op, &binding.problem, &binding.arguments, stream, NULL);
}
// [end]

// [describe]
static kiln_status print_tensors(const kiln_op* op) {
  kiln_op_info info = KILN_OP_INFO_INIT;
  kiln_status status = kiln_op_get_info(op, &info);
  uint32_t i;
  if (status) return status;
  for (i = 0; i < info.tensors; ++i) {
    kiln_tensor_info tensor = KILN_TENSOR_INFO_INIT;
    if ((status = kiln_op_tensor_info(op, i, &tensor))) return status;
    printf("%s %s, %d dimensions%s\n", tensor.output ? "writes" : "reads", tensor.name, (int)tensor.rank,
           tensor.optional ? ", optional" : "");
  }
  return KILN_OK;
}
// [end]

// [engine]
static kiln_status make_engine(kiln_engine** engine) {
  static const char* const bases[] = {"llama3_8b.kiln"};  // tuned ahead, shipped beside the program
  kiln_options options;
  kiln_status status = kiln_options_init(&options, sizeof options);
  if (status) return status;
  options.bases = bases;
  options.base_count = 1;
  options.on_miss = KILN_ON_MISS_NEAREST;  // production: never tune
  return kiln_engine_create(&options, engine);
}
// [end]

int main(void) {
  kiln_engine* engine = NULL;
  struct norm norm;
  char* warnings = NULL;
  kiln_status status = make_engine(&engine);
  if (!status) status = kiln_engine_warnings(engine, &warnings);
  if (!status) fprintf(stderr, "%s\n", warnings);
  kiln_free_text(warnings);
  if (!status) status = make_norm(engine, &norm);
  if (!status) {
    status = print_tensors(norm.op);
    kiln_op_destroy(norm.op);
  }
  kiln_engine_destroy(engine);
  if (!status) return 0;
  fprintf(stderr, "%s: %s\n", kiln_status_name(status), kiln_last_error());
  return status == KILN_NO_DRIVER || status == KILN_NO_DEVICE ? 3 : 1;
}
