#include "check/skeleton.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace kiln::check {
namespace {

constexpr std::string_view op_text = R"toml([op]
summary  = "y = x * factor, element by element"   # what it computes
revision = 1                                      # raise it when the mathematics changes: older records are then not used

[axes]                                            # sizes
count = { bucket = "pow2", max = 1099511627776 }  # varies from call to call: lengths 513 to 1024 share a record
# cols = { bucket = "exact", max = 65536 }        # fixed by a model: each size is tuned

[types]                                           # the first is what a caller gets who names none
dtype = ["bf16", "f16", "f32"]

[runtime]                                         # passed at each launch, never part of a record
factor = { type = "f32", default = 1.0, verify = 0.7 }

[tensors]
x = { shape = ["count"], dtype = "dtype", fill = "normal" }
y = { shape = ["count"], dtype = "dtype", output = true }

[tolerance]                                       # |got - wanted| <= relative * |wanted| + absolute * rms(wanted)
bf16 = { relative = 8e-3, absolute = 1e-6 }
f16  = { relative = 1e-3, absolute = 1e-6 }
f32  = { relative = 1e-6, absolute = 1e-7 }

[reference]                                       # plain and slow; every candidate is compared with it
source = "reference.cuh"
[[reference.pass]]
kernel = "NAME_reference<{dtype}>"
grid   = ["min(ceil_div(count, 256), 65536)"]
block  = ["256"]
args   = ["x", "y", "count", "factor"]

[cost]                                            # the least that any implementation does
bytes = "2 * count * sizeof(dtype)"
flops = "count"
)toml";

constexpr std::string_view implementation_text = R"toml(summary = "vector loads, a grid-stride loop"
source  = "NAME.cuh"

[parameters]                                      # what a tune chooses from
threads = [128, 256, 512]
vector  = [1, 2, 4, 8]
waves   = [1, 4, 16]

[constraints]                                     # which of them are right
all = ["vector * sizeof(dtype) <= 16"]

[align]                                           # bytes that addresses must be multiples of
x = "vector * sizeof(dtype)"
y = "vector * sizeof(dtype)"

[default]                                         # serves until something is tuned
threads = 256
vector  = 1
waves   = 4

[[pass]]                                          # one launch
kernel = "NAME<{dtype}, {threads}, {vector}>"
grid   = ["min(ceil_div(count, threads * vector), sm_count * waves)"]
block  = ["threads"]
args   = ["x", "y", "count", "factor"]
)toml";

constexpr std::string_view reference_text =
    R"cuda(// Plain and obviously right. Outputs of a reference are float, whatever the type of the op.
#include "common/types.cuh"

template <typename T>
__global__ __launch_bounds__(256) void NAME_reference(const T* x, float* y, long long count, float factor) {
  for (long long i = blockIdx.x * 256LL + threadIdx.x; i < count; i += gridDim.x * 256LL)
    y[i] = kiln::to_float(x[i]) * factor;
}
)cuda";

constexpr std::string_view source_text = R"cuda(#include "common/types.cuh"
#include "common/vector.cuh"

/// `count` is the real length, of which the bucket is a bound: nothing past it is read or written.
template <typename T, int Threads, int Vector>
__global__ __launch_bounds__(Threads) void NAME(const T* x, T* y, long long count, float factor) {
  const long long whole = count / Vector;
  const long long stride = static_cast<long long>(gridDim.x) * Threads;
  const long long first = static_cast<long long>(blockIdx.x) * Threads + threadIdx.x;
  for (long long i = first; i < whole; i += stride) {
    auto values = kiln::load<Vector>(x + i * Vector);
#pragma unroll
    for (int j = 0; j < Vector; ++j) values.at[j] = kiln::from_float<T>(kiln::to_float(values.at[j]) * factor);
    kiln::store<Vector>(y + i * Vector, values);
  }
  const long long i = whole * Vector + first;
  if (i < count) y[i] = kiln::from_float<T>(kiln::to_float(x[i]) * factor);
}
)cuda";

constexpr std::string_view keywords[] = {"alignas",      "alignof",   "and",           "and_eq",
                                         "asm",          "auto",      "bitand",        "bitor",
                                         "bool",         "break",     "case",          "catch",
                                         "char",         "char16_t",  "char32_t",      "char8_t",
                                         "class",        "co_await",  "co_return",     "co_yield",
                                         "compl",        "concept",   "const",         "const_cast",
                                         "consteval",    "constexpr", "constinit",     "continue",
                                         "decltype",     "default",   "delete",        "do",
                                         "double",       "else",      "dynamic_cast",  "enum",
                                         "explicit",     "export",    "extern",        "false",
                                         "float",        "for",       "friend",        "goto",
                                         "if",           "import",    "inline",        "int",
                                         "long",         "mutable",   "namespace",     "new",
                                         "noexcept",     "not",       "not_eq",        "nullptr",
                                         "operator",     "or",        "or_eq",         "private",
                                         "protected",    "public",    "register",      "reinterpret_cast",
                                         "requires",     "return",    "short",         "signed",
                                         "sizeof",       "static",    "static_assert", "static_cast",
                                         "struct",       "switch",    "template",      "this",
                                         "thread_local", "throw",     "true",          "try",
                                         "typedef",      "typeid",    "typename",      "union",
                                         "unsigned",     "using",     "virtual",       "void",
                                         "volatile",     "wchar_t",   "while",         "xor",
                                         "xor_eq"};
/// Of CUDA and its compiler, beside names such as cudaStream_t.
constexpr std::string_view of_cuda[] = {"NULL",    "assert",    "blockDim", "blockIdx",  "dim3",
                                        "gridDim", "ptrdiff_t", "size_t",   "threadIdx", "warpSize"};
constexpr std::string_view of_sources[] = {"T", "Threads", "Vector", "kiln", "main", "std"};

std::string named(std::string_view text, std::string_view name) {
  constexpr std::string_view place = "NAME";
  std::string result;
  for (std::size_t at = text.find(place); at != std::string_view::npos; at = text.find(place)) {
    result.append(text.substr(0, at)).append(name);
    text.remove_prefix(at + place.size());
  }
  return result.append(text);
}

}  // namespace

std::string what_else_it_is(std::string_view name) {
  const auto is_one_of = [name](const auto& names) { return std::ranges::find(names, name) != std::end(names); };
  const auto has_capital = [name](std::size_t at) { return name.size() > at && name[at] >= 'A' && name[at] <= 'Z'; };
  if (is_one_of(keywords)) return "a keyword of C++";
  if (name.find("__") != std::string_view::npos || (name.starts_with('_') && has_capital(1)))
    return "reserved by C++ for its compilers";
  if (is_one_of(of_cuda) || (name.starts_with("cuda") && has_capital(4))) return "a name of CUDA";
  return is_one_of(of_sources) ? "a name in the sources that are written" : "";
}

std::vector<manifest::SourceFile> skeleton(std::string_view name) {
  return {{std::string(manifest::op_file), named(op_text, name)},
          {"vectorized.toml", named(implementation_text, name)},
          {std::string(name) + ".cuh", named(source_text, name)},
          {"reference.cuh", named(reference_text, name)}};
}

}  // namespace kiln::check
