// Deliberate mistakes in an op: each is named with its file, its line and a remedy.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <rapidcheck.h>

#include "checked_op.hpp"
#include "cuda/nvrtc_api.hpp"

using namespace kiln;
using namespace kiln::check;
using namespace kiln::check::testing;

namespace {

struct Slip {
  const char* file;
  const char* from;
  const char* to;
  const char* at;      // text on the line that is named
  const char* what;    // a part of what is said
  const char* remedy;  // a part of the remedy
  Severity severity = Severity::error;
  const char* also_from = nullptr;  // a second change of the file, which the first needs
  const char* also_to = nullptr;
};

/// Checks that the slip's line is named, and that nothing else is wrong.
void check_named(const Slip& slip, Folder folder, const Findings& findings, bool alone) {
  const std::string said = text_of(findings);
  CAPTURE(slip.to);
  CAPTURE(said);
  const int line = line_of(folder, slip.file, slip.at);
  const std::vector<Finding> all = findings.sorted();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Finding& each) {
    return each.file == std::string("ops/row_sums/") + slip.file && each.line.number == line &&
           each.what.find(slip.what) != std::string::npos;
  });
  CHECK(found != all.end());
  if (found == all.end()) return;
  CHECK(found->remedy.find(slip.remedy) != std::string::npos);
  CHECK(found->severity == slip.severity);
  if (alone) CHECK(all.size() == 1);
}

constexpr Severity warning = Severity::warning;

const Slip in_op[] = {
    {"op.toml", "revision        = 1", "revison = 1", "revison", "the unknown key 'revison'", "expected 'summary'"},
    {"op.toml", "[\"split\", \"plain\"]", "[\"split\", \"plane\"]", "plane", "did you mean 'plain'?", "'plain'"},
    {"op.toml", "revision        = 1", "revision = 1\nallowed = ['dtype == \"f32\"']", "allowed",
     "which the defaults break", "defaults that are allowed"},
    {"op.toml", "rows = { bucket = \"pow2\", max = 1048576 }", "rows = { bucket = \"pow2\" }", "rows = {",
     "no 'max' in axis 'rows'", "expected one"},
    {"op.toml", "\"pow2\"", "\"power2\"", "power2", "'power2' as a bucket policy", "'exact' or 'pow2'"},
    {"op.toml", "max = 1048576", "max = 3000000, multiple_of = 3", "multiple_of = 3", "upper edges are powers of two",
     "a power of two"},
    {"op.toml", "[\"bf16\", \"f32\"]", "[\"bf16\", \"float\"]", "float", "'float' as an element type", "'f32'"},
    {"op.toml", "type = \"f32\", default", "type = \"f23\", default", "f23", "'f23' as a type of scalars", "'f32'"},
    {"op.toml", "default = \"cols\"", "default = \"colls\"", "colls", "the unknown name 'colls'", "'cols'"},
    {"op.toml", "default = \"cols\"", "default = \"cols / (cols - cols)\"", "cols - cols", "division by zero",
     "rule the divisor 0 out"},
    {"op.toml", "sum  = { shape = [\"rows\"]", "sum  = { shape = [\"row\"]", "[\"row\"]", "the unknown name 'row'",
     "'rows'"},
    {"op.toml", "[\"x_row_stride\", \"1\"]", "[\"x_row_stride\"]", "[\"x_row_stride\"]", "1 strides of 'x'",
     "2, one for each dimension"},
    {"op.toml", "dtype = \"dtype\", optional", "dtype = \"dtyp\", optional", "dtyp\"", "'dtyp' as the dtype of 'bias'",
     "'dtype'"},
    {"op.toml", "f32  = { relative = 1e-5, absolute = 1e-6 }\n", "", "[tolerance]", "no tolerance for 'f32'", "one"},
    {"op.toml", "factor       =", "scale = \"f32\"\nfactor       =", "scale =",
     "the run-time value 'scale' is never used", "remove it", warning},
    {"op.toml", "cols = { bucket", "depth = { bucket = \"exact\", max = 8 }\ncols = { bucket", "depth",
     "the axis 'depth' is never used", "remove it", warning},
    {"op.toml", "cols = { bucket", "depth = { bucket = \"exact\", max = 8 }\ncols = { bucket",
     "depth =", "the axis 'depth' is never used", "remove it", warning, "summary         = \"",
     "summary         = \"to any depth, "},
    {"op.toml", "sum\", \"rows\"", "smu\", \"rows\"", "smu", "the unknown argument 'smu'", "'sum'"},
    {"op.toml", "kernel = \"reference_rows<", "kernel = \"refrence_rows<", "refrence", "did you mean 'reference_rows'?",
     "'reference_rows'"},
    {"op.toml", "source = \"plain.cuh\"", "source = \"plane.cuh\"", "plane.cuh", "no source 'plane.cuh'",
     "'plain.cuh'"},
    {"op.toml", "3 * rows * cols", "3 * rows / (cols % 8)", "flops", "division by zero", "rule the divisor 0 out"},
    {"op.toml", "[cost]", "[cots]", "[cots]", "did you mean 'cost'?", "'cost'"},
    {"op.toml", "flops = ", "flops ", "flops ", "", "mend the line"},
    {"op.toml", "3 * rows * cols", "3 * rows * cols * cols * cols * cols", "flops", "overflow", "within 64 bits"},
    {"op.toml", "bytes = \"2 * rows * cols * sizeof(dtype) + rows * 4\"\n", "", "[cost]", "no 'bytes' in [cost]",
     "the least bytes", warning},
    {"op.toml", "2 * rows * cols * sizeof(dtype) + rows * 4", "rows * cols", "bytes = ", "and the tensors have",
     "sizeof(TYPE)", warning},
    {"op.toml", "default = 1.0, verify = 0.7", "default = 1.0",
     "factor       =", "a tune verifies with 'factor' = 1, which hides", "give it a 'verify'", warning},
    {"op.toml", "factor       = { type = \"f32\", default = 1.0, verify = 0.7 }", "factor = \"f32\"",
     "factor = ", "a tune verifies with 'factor' = 1e-5", "a 'default' or a 'verify'", warning},
    {"op.toml", "\"bias\", \"y\", \"sum\"", "\"bias\", \"y\", \"y\"", "[[reference.pass]]",
     "no pass of the reference takes the output 'sum'", "name it in 'args'"},
    {"op.toml", "\"x\", \"bias\"", "\"x\", \"x\"", "[[reference.pass]]",
     "no pass of the reference takes 'bias', so nothing verifies", "name it in 'args'", warning},
};

const Slip in_implementations[] = {
    {"split.toml", "options = [\"--use_fast_math\"]", "options = [\"-O3\"]", "-O3", "the option '-O3'",
     "--use_fast_math"},
    {"split.toml", "threads = [128, 256]", "threads = [128, 256, 256]", "256, 256", "256 twice", "each value once"},
    {"split.toml", "vector  = 1", "vector  = 3", "vector  = 3", "vector = 3 in [default]", "1, 2, 4"},
    {"split.toml", "splits  = 1\n", "", "[default]", "no 'splits' in [default]", "a value for each parameter"},
    {"split.toml", "\"bytes <= 8\"", "\"byte <= 8\"", "\"byte <=", "the unknown name 'byte'", "'bytes'"},
    {"split.toml", "splits  = [1, 2, 4]", "splits  = [0, 1, 2, 4]", "cols % (vector", "division by zero",
     "rule the divisor 0 out"},
    {"split.toml", "\"bytes <= 8\"", "\"bytes <= 1\"", "\"bytes <= 1\"", "no config meets the constraint 'bytes <= 1'",
     "loosen a constraint"},
    {"split.toml", "\"bytes <= 8\"", "\"bytes <= 2\", \"vector > 1\"", "\"bytes <= 2\"",
     "no config meets [constraints]", "loosen a constraint", Severity::error, "[parameters]",
     "requires = 'sizeof(dtype) == 2'\n[parameters]"},
    {"split.toml", "\"bytes <= 8\"", "\"sums == plain || bytes <= 8\"", "sums == plain",
     "the word 'plain' without quotes", "\"plain\""},
    {"split.toml", "\"bytes <= 8\"", "\"bytes <= 8 && splits > 1\"", "[default]", "the default breaks the constraint",
     "a default that is legal", warning},
    {"split.toml", "rows < 8192", "rows < 0\", \"splits > 1", "rows < 0", "[search] leaves no config",
     "loosen a condition", warning},
    {"split.toml", "splits  = [1, 2, 4]", "splits  = [1, 2, 4]\nstages = [1, 2]",
     "stages =", "the parameter 'stages' changes no launch, and multiplies the configs by 2", "name it in a pass",
     Severity::error, "[default]", "[default]\nstages = 1"},
    {"split.toml", "[constraints]", "rounds = \"vector * 2\"\n[constraints]", "rounds",
     "the term 'rounds' is never used", "remove it", warning},
    {"split.toml", "[workspace]", "[workspace]\nrest = { bytes = 1024 }", "rest", "no pass takes the workspace 'rest'",
     "remove it", warning},
    {"split.toml", "rows * splits * 4", "rows * splits * 4 - 1048576 * 8", "1048576", "the bytes of workspace 'parts'",
     "0 or more"},
    {"split.toml", "y = \"bytes\"", "y = \"bytes * 3\"", "bytes * 3", "the alignment of 'y'", "a power of two"},
    {"split.toml", "[\"rows\", \"splits\"]", "[\"splits\", \"rows\"]", "[\"splits\", \"rows\"]",
     "the grid's y, 'rows', is 1048576", "put the size that grows on x"},
    {"split.toml", "ceil_div(rows, 256)", "rows / 256", "rows / 256", "the grid's x, 'rows / 256', is 0", "ceil_div"},
    {"plain.toml", "threads = [128, 256]", "threads = [128, 256, 2048]", "block  =", "the block has 2048 threads",
     "add a constraint"},
    {"split.toml", "\"threads * 4\"", "\"threads * 1600\"", "threads * 1600", "is 409600 bytes", "<= shared_per_block"},
    {"split.toml", "block  = [\"256\"]", "cluster = [2]\nblock  = [\"256\"]", "cluster = [2]",
     "a cluster of 2 blocks on sm_80", "sm >= 90", Severity::error, "\"ceil_div(rows, 256)\"",
     "\"round_up(ceil_div(rows, 256), 2)\""},
    {"split.toml", "block  = [\"256\"]", "cluster = [2]\nblock  = [\"256\"]", "\"ceil_div(rows, 256)\"",
     "the grid has 1 blocks where a cluster has 2", "round_up", Severity::error, "[parameters]",
     "requires = 'sm >= 90'\n[parameters]"},
    {"split.toml", "kernel = \"add_parts\"", "kernel = \"ad_parts\"", "ad_parts", "did you mean 'add_parts'?",
     "'add_parts'"},
    {"split.toml", "{threads}, {vector}", "{threads}, {vectr}", "{vectr}", "the unknown name 'vectr'", "'vector'"},
    {"plain.toml", "\"bias\", \"y\"", "\"basi\", \"y\"", "basi", "the unknown argument 'basi'", "'bias'"},
    {"plain.toml", "\"x\", \"bias\"", "\"x\", { value = \"0\", type = \"u64\" }", "[[pass]]", "no pass takes 'bias'",
     "name it in 'args'", warning},
    {"plain.toml", "\"y\", \"sum\"", "\"y\", \"y\"", "[[pass]]", "no pass takes the output 'sum'", "name it in 'args'"},
    {"plain.toml", "[parameters]", "requires = 'sm == 75'\n[parameters]", "requires", "holds for no types and choices",
     "--arch", warning},
    {"split.toml", "block  = [\"256\"]", "programmatic = true\nblock  = [\"256\"]", "programmatic",
     "waits for no launch before", "wait_for_predecessor()"},
    {"split.toml", "ceil_div(rows, 256)\"]", "round_up(ceil_div(rows, 256), 16)\", \"4\"]\ncluster = [4, 4]", "cluster",
     "the cluster has 16 blocks", "at most 8", Severity::error, "[parameters]", "requires = 'sm >= 90'\n[parameters]"},
    {"plain.toml", "[parameters]", "requires = 'dtype != 0'\n[parameters]", "requires",
     "compares 'dtype' with a number, and its values are words", "expected 'bf16'"},
    {"plain.cuh", "__shared__ float sums[threads];", "extern __shared__ float sums[];", "extern __shared__",
     "no pass of", "shared = \"...\"", warning},
    {"plain.cuh", "__shared__ float sums[threads];", "extern __align__(16) __shared__ float sums[];",
     "extern __align__", "no pass of", "shared = \"...\"", warning},
    {"op.toml", "block  = [\"256\"]", "block  = [\"2048\"]", "2048", "the block has 2048 threads", "at most 1024"},
    {"split.cuh", "#include \"rows.cuh\"", "#include \"row.cuh\"", "row.cuh", "includes \"row.cuh\"", "add the file"},
    {"split.cuh", "#include \"rows.cuh\"", "#include \"rows.cuh\"\n#include \"split.cuh\"", "split.cuh",
     "includes 'split.cuh', which includes this file", "a file of its own", warning},
};

}  // namespace

TEST_CASE("an op without a mistake is checked in silence") {
  const Findings findings = findings_in(row_sums());
  CHECK(text_of(findings) == "");
}

TEST_CASE("each of forty mistakes is named with file, line and remedy, without a compiler") {
  const auto try_all = [](std::span<const Slip> slips) {
    for (const Slip& slip : slips) {
      Folder folder = row_sums();
      replace(folder, slip.file, slip.from, slip.to);
      if (slip.also_from != nullptr) replace(folder, slip.file, slip.also_from, slip.also_to);
      check_named(slip, folder, findings_in(folder), true);
    }
  };
  try_all(in_op);
  try_all(in_implementations);
  CHECK(std::size(in_op) + std::size(in_implementations) >= 40);
}

TEST_CASE("a grid is checked at sizes that a device holds, where an axis may be longer") {
  Folder folder = row_sums();
  replace(folder, "op.toml", "max = 1048576", "max = 1152921504606846976");
  replace(folder, "split.toml", "[\"rows\", \"splits\"]", "[\"splits\", \"rows\"]");
  CHECK(text_of(findings_in(folder)).find("the grid's y, 'rows', is ") != std::string::npos);
}

TEST_CASE("what a kernel takes and needs is compared with its manifest, by its machine code" *
          doctest::skip(cuda::Nvrtc::find() == nullptr)) {
  CHECK(text_of(findings_in(row_sums(), 2)) == "");

  const Slip taken[] = {
      {"split.toml", "\"x_row_stride\", \"factor\"]\n[[pass]]", "\"x_row_stride\"]\n[[pass]]", "args   = [\"x\"",
       "takes 8 arguments, and 'args' has 7: argument 8 of 4 bytes is missing", "what the kernel is declared with"},
      {"split.toml", "\"i32\"", "\"i64\"", "\"i64\"", "takes 4 bytes as argument 4, and 'splits' has 8",
       "what the kernel is declared with"},
      {"op.toml", "\"x_row_stride\", \"factor\"]", "\"x_row_stride\", \"factor\", \"rows\"]", "args   = [",
       "argument 9, 'rows', is one too many", "what the kernel is declared with"},
      {"split.cuh", "__launch_bounds__(threads)", "__launch_bounds__(threads / 2)", "", "", ""},
      {"split.toml", "block  = [\"threads\"]", "block  = [\"threads\"]", "block  = [\"threads\"]",
       "the block has 256 threads, and the kernel takes at most 128", "__launch_bounds__"},
      {"plain.toml", "args   = [\"x\",", "args   = [{ view = \"x\" },", "{ view", "takes 8 bytes as argument 1, and",
       "what the kernel is declared with"},
      {"plain.toml", "block  = [\"threads\"]", "block  = [\"threads\"]\nshared = \"232000\"", "232000",
       "1024 bytes of static and 232000 of dynamic shared memory", "at most 232448 together"},
      {"split.toml", "\"ceil_div(rows, 256)\"]\nblock", "\"rows\"]\ncooperative = true\nblock", "grid   = [\"rows\"]",
       "a cooperative launch of 4096 blocks, where the device holds 1056 at once", "bound the grid by sm_count"},
      {"rows.cuh", "  float sum = 0;\n  for (long long i = begin",
       "  float sum = 0, kept[64];\n  for (int i = 0; i < 64; ++i) kept[i] = y == nullptr ? 1.0f : factor * i;\n"
       "  factor = kept[begin % 64];\n  for (long long i = begin",
       "", "", ""},
      {"split.toml", "kernel = \"split_rows", "kernel = \"split_rows", "kernel = \"split_rows",
       "of each thread in local memory", "index arrays by constants", warning},
  };
  Folder folder = row_sums();
  for (const Slip& slip : taken) replace(folder, slip.file, slip.from, slip.to);
  const Findings found = findings_in(folder, 1);
  for (const Slip& slip : taken)
    if (*slip.at != '\0') check_named(slip, folder, found, false);

  const Slip refused[] = {
      {"split.toml", "{threads}, {vector}, sums_of", "{threads}, sums_of", "kernel = \"split_rows",
       "the kernel 'split_rows<", "its template parameters"},
      {"plain.cuh", "sums[i];\n}", "sumz[i];\n}", "sumz[i]", "identifier \"sumz\" is undefined", "mend the source"},
  };
  folder = row_sums();
  for (const Slip& slip : refused) replace(folder, slip.file, slip.from, slip.to);
  const Findings said = findings_in(folder, 1);
  for (const Slip& slip : refused) check_named(slip, folder, said, false);
}

TEST_CASE("the types of kernels are compared with what they are given, by the names of machine code" *
          doctest::skip(cuda::Nvrtc::find() == nullptr)) {
  const auto check = [](std::span<const Slip> slips) {
    Folder folder = row_sums();
    for (const Slip& slip : slips) replace(folder, slip.file, slip.from, slip.to);
    const Findings found = findings_in(folder, 1);
    for (const Slip& slip : slips)
      if (*slip.at != '\0') check_named(slip, folder, found, false);
  };
  const char* const order = "the kernel's order and types";
  const Slip types[] = {
      {"split.toml", "\"y\", \"parts\"", "\"parts\", \"y\"", "\"parts\", \"y\"",
       "takes 'float*' as argument 4, and the elements of 'y' are 'kiln::bf16'", order},
      {"plain.toml", "\"sum\", \"rows\"", "\"rows\", \"sum\"", "\"rows\", \"sum\"",
       "takes 'float*' as argument 4, and 'rows' is an integer of 64 bits", order},
      {"plain.cuh", "const T* bias, float* y,", "const T* bias, T* y,", "", "", ""},
      {"op.toml", "source = \"plain.cuh\"", "source = \"plain.cuh\"", "args   = [",
       "takes 'kiln::bf16*' as argument 3, and a reference writes 'y' as 'float'", order},
      {"split.cuh", "float* sums, long long rows", "const float* sums, long long rows", "", "", ""},
      {"split.cuh", "  sums[row] = sum;", "  if (sums[row] == sum) __trap();", "", "", ""},
      {"split.toml", "args   = [\"parts\", \"sum\"", "args   = [\"parts\", \"sum\"", "args   = [\"parts\", \"sum\"",
       "no pass can write the output 'sum'", "not const"},
  };
  check(types);
  const Slip references[] = {
      {"plain.cuh", "long long x_row_stride, float factor) {\n  whole_row<T, threads",
       "const long long& x_row_stride, float factor) {\n  whole_row<T, threads", "", "", ""},
      {"plain.toml", "args   = [", "args   = [", "args   = [",
       "takes 'long long const&' as argument 7, a reference: a launch hands values over, so take it by value", order}};
  check(references);
  const Slip memory[] = {
      {"split.cuh", "float* parts, long long rows,\n ", "const float* parts, long long rows,\n ", "", "", ""},
      {"split.cuh", "parts[row * gridDim.y + blockIdx.y] = sum;", "if (parts[row] == sum) __trap();", "", "", ""},
      {"split.toml", "\"y\", \"parts\"", "\"y\", \"parts\"", "\"y\", \"parts\"",
       "takes the workspace 'parts' takes a pointer to const, and nothing wrote it", "not const"},
      {"plain.cuh", "__shared__ float sums[threads]", "__shared__ float sums[threads * 400]", "", "", ""},
      {"plain.toml", "kernel =", "kernel =", "kernel =", "the kernel declares 409600 bytes of __shared__ memory",
       "at most 232448: make it dynamic"},
  };
  check(memory);
  const Slip headers[] = {{"split.cuh", "#include \"rows.cuh\"", "#include <cuda_fp16.h>\n#include \"rows.cuh\"",
                           "cuda_fp16.h", "could not open source file", "toolkit_headers = true"}};
  check(headers);
}

TEST_CASE("a kernel that is missing is named once") {
  Folder folder = row_sums();
  replace(folder, "plain.toml", "plain_rows<", "plane_rows<");
  CHECK(findings_in(folder, 1).count(Severity::error) == 1);
}

TEST_CASE("an op without a reference is told what one has") {
  Folder folder = row_sums();
  std::string& text = folder["op.toml"];
  text.erase(text.find("[reference]"), text.find("[cost]") - text.find("[reference]"));
  const auto found = findings_in(folder).sorted();
  REQUIRE(found.size() == 1);
  CHECK(found[0].what.find("no [reference]") != std::string::npos);
  CHECK(found[0].remedy.find("[[reference.pass]]") != std::string::npos);
}

TEST_CASE("a source that nothing reads is named, but not while a manifest that may name it has a mistake") {
  Folder folder = row_sums();
  folder.files.emplace_back("old.cuh", "// of last year\n");
  const auto found = findings_in(folder).sorted();
  REQUIRE(found.size() == 1);
  CHECK(found[0].file == "ops/row_sums/old.cuh");
  CHECK(found[0].severity == warning);
  replace(folder, "plain.toml", "[default]", "[defaults]");
  for (const Finding& each : findings_in(folder).sorted()) CHECK(each.file != "ops/row_sums/old.cuh");
}

TEST_CASE("an op with a piece missing or repeated is checked to its end") {
  CHECK(rc::check([] {
    Folder folder = row_sums();
    std::string& text = folder.files[*rc::gen::inRange<std::size_t>(0, folder.files.size())].second;
    const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
    const auto length = *rc::gen::inRange<std::size_t>(1, 20);
    const std::string piece = text.substr(at, length);
    *rc::gen::arbitrary<bool>() ? text.erase(at, length) : text.insert(at, piece);
    for (const Finding& each : findings_in(folder).sorted()) {
      RC_ASSERT(each.file.starts_with("ops/row_sums/"));
      RC_ASSERT(each.line.number >= 1);
      RC_ASSERT(!each.what.empty());
      RC_ASSERT(!each.remedy.empty());
    }
  }));
}

TEST_CASE("what is wrong in a part of manifests is named in the part's file") {
  Folder folder = row_sums();
  folder.files.emplace_back("tile.part.toml",
                            "[terms]\nspare = \"1\"\n[search]\nall = [\"cols / (vector - vector) > 1\"]\n");
  folder.files.emplace_back("lost.part.toml", "[terms]\nlost = \"1\"\n");
  folder["split.toml"] = "include = [\"tile.part.toml\"]\n" + folder["split.toml"];
  const std::string said = text_of(findings_in(folder));
  CAPTURE(said);
  CHECK(
      said.find(
          "ops/row_sums/tile.part.toml:4: error: the condition of [search] 'cols / (vector - vector) > 1' has no value") !=
      std::string::npos);
  CHECK(said.find("ops/row_sums/lost.part.toml:1: warning: no manifest includes this part") != std::string::npos);
  CHECK(said.find("spare") == std::string::npos);  // for others who include it
  replace(folder, "tile.part.toml", "spare", "vector");
  const std::string wrong = text_of(findings_in(folder));
  CAPTURE(wrong);
  CHECK(wrong.find("ops/row_sums/tile.part.toml:2: error: found the name 'vector' a second time") != std::string::npos);
}
