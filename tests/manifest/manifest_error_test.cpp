// Each mistake in a manifest is named with file, line, what was found and what was expected.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <rapidcheck.h>

#include "kiln/error.hpp"
#include "manifest/op.hpp"
#include "manifest_fixture.hpp"

using namespace kiln;
using namespace kiln::manifest;

namespace {

struct Change {
  const char* from;
  const char* to;
  const char* message;
};

void check_says(const std::string& message, std::string_view wanted) {
  CAPTURE(message);
  CAPTURE(wanted);
  CHECK(message.find(wanted) != std::string::npos);
}

/// Checks that nothing is said of the lines that use what is wrong.
void check_alone(const testing::Folder& folder) {
  std::vector<Mistake> all;
  (void)parse_op("scale", "/ops/scale", folder.files(), all);
  std::string others;
  for (const Mistake& each : all) others += testing::text_of(each) + "\n";
  CAPTURE(others);
  CHECK(all.size() == 1);
}

}  // namespace

TEST_CASE("a mistake in op.toml is named with its line") {
  const Change mistakes[] = {
      {"revision = 3", "revision = 3\nallowed = ['rows > 1']",
       "op.toml:4: found the axis 'rows', which no device fixes, in 'allowed'"},
      {"revision = 3", "revision = 3\nallowed = ['sm > 80']",
       "op.toml:4: found the device fact 'sm' in 'allowed', expected types and choices"},
      {"revision = 3", "revision = 3\nallowed = ['mode == \"saturate\"']",
       "found the rule 'mode == \"saturate\"', which the defaults break"},
      {"revision = 3", "revision = 3\nallowed = [{ message = \"no\" }]",
       "found no 'when' in a rule of 'allowed', expected one"},
      {"factor = \"f32\"", "factor = { type = \"f32\", default = \"1 / rows\" }",
       "op.toml:12: found the axis 'rows', which varies within a bucket, in the default of 'factor' '1 / rows'"},
      {"factor = \"f32\"", "factor = { type = \"f32\", verify = \"sqrt(mode)\" }",
       "found 'mode', which is no axis, in the value for verification of 'factor'"},
      {"factor = \"f32\"", "factor = { type = \"f32\", default = \"1 / sqr(cols)\" }",
       "op.toml:12: in the default of 'factor': found the unknown name 'sqr' at column 5 of '1 / sqr(cols)'"},
      {"factor = \"f32\"", "factor = { type = \"f32\", default = true }",
       "found true as the default of 'factor', expected a number"},
      {"default = \"cols\", min", "verify = \"stride + 1\", min", "found 'stride' in an expression of 'stride'"},
      {"revision = 3", "revision = ", "/ops/scale/op.toml:3: "},
      {"revision = 3", "revision \xc3\xa9 = 3", "/ops/scale/op.toml:3: "},
      {"revision = 3", "revisoin = 3",
       "op.toml:3: found the unknown key 'revisoin' in [op] (did you mean 'revision'?), expected 'summary'"},
      {"revision = 3", "", "op.toml:1: found no 'revision' in [op], expected one"},
      {"revision = 3", "revision = 0", "op.toml:3: found the number 0 as 'revision', expected 1 or more"},
      {"revision = 3", "revision = 3\nimplementations = [\"fats\"]",
       "op.toml:4: found 'fats' as an implementation (did you mean 'fast'?)"},
      {"[cost]", "[=cost]", "op.toml:26: "},
      {"[cost]", "[costs]", "found the unknown key 'costs' in the file (did you mean 'cost'?)"},
      {"bucket = \"pow2\"", "bucket = \"pow3\"",
       "op.toml:5: found 'pow3' as a bucket policy without a table (did you mean 'pow2'?), expected 'exact' or 'pow2'"},
      {"bucket = \"pow2\"", "bucket = { policy = \"edges\", edges = [16, 8] }",
       "op.toml:5: found the number 8 as an edge (they ascend), expected 17 or more"},
      {"bucket = \"pow2\"", "bucket = { policy = \"edges\", edges = [8192] }", "found the edge 8192 past max = 4096"},
      {"bucket = \"pow2\"", "bucket = { policy = \"pow2_steps\", pow2_until = 100, steps = [] }",
       "expected a power of two"},
      {"bucket = \"pow2\"",
       "bucket = { policy = \"pow2_steps\", pow2_until = 64, steps = [{ until = 100, step = 64 }] }",
       "expected a multiple of the step"},
      {"max = 4096 }", "max = 4096, on_device = true, multiple_of = 2 }",
       "op.toml:5: found on_device with multiple_of = 2 on axis 'rows', expected one of the two"},
      {"max = 4096 }", "max = 2147483648, on_device = true }", "expected at most 2147483647: lengths on the device"},
      {"max = 4096 }", "max = 4096, on_device = true }",
       "fast.toml:16: found no argument { length = \"rows\" }, though op.toml lets axis 'rows' be given on the device"},
      {"max = 65536, multiple_of = 8 }", "max = 65536, on_device = true }",
       "found the stride '(cols)' of 'y' over axis 'cols', whose length may be on the device, expected a run-time value"},
      {"max = 4096 }", "max = 1e6 }", "op.toml:5: found the number 1000000.0 as 'max', expected an integer"},
      {"[op]", "[op]\nsummary = \"without an end\n",
       "op.toml:2: found the line's end in a text, expected its closing quotation mark before"},
      {"[op]", "[op]\nsummary = \"\xC3\xA9\xC3\xA9 without an end\r\n",
       "op.toml:2: found the line's end in a text, expected its closing quotation mark before"},
      {"[op]", "[op]\nsummary = \"a \x01 b\"\n", "op.toml:2: Error while parsing string: unescaped control characters"},
      {"[[reference.pass]]", "[reference.pass]",
       "found one table as 'pass' of [reference], expected a list of them: its header in two brackets, [[...pass]]"},
      {"max = 4096 }", "max = 0 }", "op.toml:5: found the number 0 as 'max', expected 1 or more"},
      {"max = 4096 }", "multiple_of = 3, max = 4098 }",
       "op.toml:5: found multiple_of = 3 on axis 'rows', whose upper edges are powers of two"},
      {"max = 65536, ", "", "op.toml:6: found no 'max' in axis 'cols'"},
      {"rows = { bucket", "\"a;b\" = { bucket", "op.toml:5: found the name 'a;b', expected a letter"},
      {"rows = { bucket", "sm = { bucket", "op.toml:5: found the name 'sm', which is a device fact"},
      {"[\"bf16\", \"f32\"]", "[\"bf16\", \"float\"]", "op.toml:8: found 'float' as an element type"},
      {"[\"bf16\", \"f32\"]", "[\"bf16\", \"bf16\"]", "op.toml:8: found 'bf16' twice"},
      {"\"saturate\"", "\"x>; asm(0); <\"",
       "op.toml:10: found 'x>; asm(0); <' as a value of 'mode', expected a letter or underscore, then letters, digits"},
      {"factor = \"f32\"", "factor = \"f33\"", "op.toml:12: found 'f33' as a type of scalars"},
      {"factor = \"f32\"", "cols = \"f32\"", "op.toml:12: found the name 'cols' a second time"},
      {"default = \"cols\"", "default = \"factor\"",
       "op.toml:13: found the run-time value 'factor', which is no integer"},
      {"default = \"cols\"", "default = \"stride\"",
       "op.toml:13: found 'stride' in an expression of 'stride', expected only run-time values declared before it"},
      {"x = { shape = [\"rows\", \"cols\"]", "x = { shape = [\"rows\", \"colz\"]",
       "op.toml:15: in the shape of 'x': found the unknown name 'colz' (did you mean 'cols'?)"},
      {"[\"stride\", \"1\"]", "[\"1\"]", "op.toml:15: found 1 strides of 'x', expected 2"},
      {", output = true", "", "op.toml:14: found no tensor with output = true"},
      {"dtype = \"dtype\", output", "dtype = \"dtyp\", output",
       "op.toml:16: found 'dtyp' as the dtype of 'y' (did you mean 'dtype'?)"},
      {"output = true", "output = true, when = \"cols > 8\"",
       "op.toml:16: found the axis 'cols', which no device fixes, in 'when' of 'y'"},
      {"output = true", "output = 1", "op.toml:16: found the number 1 as 'output', expected true or false"},
      {"f32  = { relative = 1e-5, absolute = 1e-6 }", "", "op.toml:17: found no tolerance for 'f32'"},
      {"relative = 1e-5", "relative = nan", "expected 0 or more and below 1"},
      {"scale_reference<{dtype}>", "scale_reference<{rows}>",
       "op.toml:22: found the axis 'rows', which varies within a bucket, in the placeholder 'rows'"},
      {"scale_reference<{dtype}>", "scale_reference<{stride}>",
       "found the run-time value 'stride', which is known only at a launch,"},
      {"scale_reference<{dtype}>", "f<0>;system(\\\"x\\\")", "op.toml:22: found ';' in the kernel name"},
      {"scale_reference<{dtype}>", "scale_reference<{dtype>", "found '{' without '}'"},
      {"block  = [\"256\"]", "block  = [\"rows\"]",
       "found the axis 'rows', which varies within a bucket, in the block 'rows'"},
      {"\"stride\", \"factor\"]", "\"stride\", \"factr\"]",
       "op.toml:25: found the unknown argument 'factr' (did you mean 'factor'?)"},
      {"\"stride\", \"factor\"]", "\"stride\", \"dtype\"]",
       "op.toml:25: found 'dtype' as an argument by name, expected { value = \"dtype\", type = \"i32\" }"},
      {"[reference]\n", "[reference]\nsample = \"rosw > 1\"\n", "op.toml:21: in 'sample': found "},
      {"[reference]\n", "[reference]\nsample = \"factor\"\n",
       "op.toml:21: found the run-time value 'factor', which is no integer, in 'sample'"},
      {"[cost]", "[reference.pass.model]\n[cost]",
       "op.toml:26: found 'model' in a pass of the reference, expected none: it is never timed"},
      {"flops = \"rows * cols\"", "flops = \"rows ** cols\"", "op.toml:28: in 'flops': found '*' at column 7"},
  };
  for (const Change& mistake : mistakes) {
    testing::Folder folder = testing::scale_folder();
    folder.op = testing::replaced(folder.op, mistake.from, mistake.to);
    check_says(testing::refusal_of(folder), mistake.message);
    check_alone(folder);
  }
}

TEST_CASE("a mistake in an implementation's file is named with its line") {
  const Change mistakes[] = {
      {"summary  =", "sumary  =",
       "/ops/scale/fast.toml:1: found the unknown key 'sumary' in the file (did you mean 'summary'?)"},
      {"requires = \"sm >= 80\"", "requires = \"rows > 1\"",
       "fast.toml:2: found the axis 'rows', which no device fixes, in 'requires'"},
      {"requires = \"sm >= 80\"", "source = \"fsat.cuh\"",
       "fast.toml:2: found no source 'fsat.cuh' in the folder (did you mean 'fast.cuh'?)"},
      {"--use_fast_math", "-DX=1", "fast.toml:3: found the option '-DX=1', expected --use_fast_math"},
      {"--maxrregcount=64", "--maxrregcount=64x", "found the option '--maxrregcount=64x'"},
      {"threads = [128, 256, 2048]", "threads = [128, 256, \"2048\"]",
       "fast.toml:5: found '2048' as a value of parameter 'threads', expected an integer"},
      {"threads = [128, 256, 2048]", "threads = [128, 256, 256]",
       "fast.toml:5: found 256 twice in parameter 'threads'"},
      {"vector  = [2, 4, 8]", "vector  = [2, 4, 8]\nx = [1]", "fast.toml:7: found the name 'x' a second time"},
      {"\"threads <= 1024\"", "\"threads <= factor\"",
       "fast.toml:8: found the run-time value 'factor', which is no integer"},
      {"[align]", "[search]\nall = [\"threads <= factor\"]\n[align]",
       "fast.toml:10: found the run-time value 'factor', which is no integer"},
      {"[align]", "[search]\nall = [\"threads <\"]\n[align]", "fast.toml:10: in a condition of [search]: found"},
      {"[align]", "[search]\nall = [\"thread <= 64\"]\n[align]",
       "fast.toml:10: in a condition of [search]: found the unknown name 'thread' (did you mean 'threads'?)"},
      {"[align]", "[search]\nalll = []\n[align]", "fast.toml:10: found the unknown key 'alll' in [search]"},
      {"[align]", "[search]\n[align]", "fast.toml:9: found no 'all' in [search]"},
      {"x = \"vector * sizeof(dtype)\"", "z = \"vector * sizeof(dtype)\"", "fast.toml:10: found 'z' in [align]"},
      {"vector  = 4", "vector  = 3",
       "fast.toml:13: found vector = 3 in [default], expected one of its values: 2, 4, 8"},
      {"vector  = 4", "", "fast.toml:11: found no 'vector' in [default]"},
      {"vector  = 4", "vector  = 4\nwidth = 1", "fast.toml:14: found 'width' in [default]"},
      {"bytes = \"rows * 4\"", "bytes = \"stride * 4\"",
       "found the run-time value 'stride', which is known only at a launch, in 'bytes'"},
      {"{vector * 2}", "{vectr * 2}", "fast.toml:17: found the unknown name 'vectr' (did you mean 'vector'?)"},
      {"shared  = \"threads * 4\"", "shared  = \"rows * 4\"",
       "found the axis 'rows', which varies within a bucket, in 'shared'"},
      {"mode == \"plain\"", "mode == \"plane\"", "found the word 'plane' (did you mean 'plain'?)"},
      {"cluster = [2]", "cluster = [2]\nprogrammatic = 1",
       "found the number 1 as 'programmatic', expected true, false or an expression"},
      {"cluster = [2]", "cluster = [2]\nprogrammatic = \"rows > 64\"",
       "found the axis 'rows', which varies within a bucket, in 'programmatic'"},
      {"cluster = [2]", "cluster = [2, 1, 1, 1]", "found 4 entries in the cluster, expected 1 to 3"},
      {"type = \"i32\" }", "type = \"f32\" }", "found 'f32' as the type of an expression"},
      {"box = [16, \"64\"]", "box = [16]", "found 1 entries in 'box', expected 2, one for each dimension of 'x'"},
      {"swizzle = 128", "swizzle = 48", "found 48 as 'swizzle', expected 0, 32, 64 or 128 bytes"},
      {"tma = \"x\",", "tma = \"x\", shape = [1, 2, 3, 4, 5, 6],",
       "found 6 entries in 'shape' of a TMA argument, expected 1 to 5"},
      {"tma = \"x\",", "tma = \"x\", shape = [\"rows\", 8, \"cols / 8\"],",
       "found a view of rank 3 without 'strides' over 'x', which has rank 2"},
      {"tma = \"x\",", "tma = \"x\", strides = [\"stride\", 8, 1],",
       "found 3 entries in 'strides', expected 2, one for each"},
      {"tma = \"x\",", "tma = \"x\", strides = [\"stride\", 2],",
       "found 2 as the innermost stride of a TMA argument, expected 1"},
      {"tma = \"x\",", "tma = \"x\", shape = [\"rows\", 0],",
       "found 0 in 'shape' of a TMA argument, expected 1 to 4294967296"},
      {"tma = \"x\",", "tma = \"x\", strides = [68719476737, 1],",
       "found 68719476737 in 'strides' of a TMA argument, expected 1 to 68719476736"},
      {"box = [16,", "box = [257,", "found 257 in 'box' of a TMA argument, expected 1 to 256"},
      {"tma = \"x\",", "tma = \"x\", shape = [\"factor\", 8],", "the run-time value 'factor', which is no integer,"},
      {"{ tma = \"x\",", "{ report = \"colls\" }, { tma = \"x\",",
       "found 'colls' as the axis, or tensor of integers, of a report argument (did you mean 'cols'?)"},
      {"tma = \"x\"", "tma = \"rows\"", "found 'rows' as the tensor or workspace of a TMA argument"},
      {"{ tma = \"x\",", "{ pack = [] }, { tma = \"x\",", "found an empty 'pack', expected one member or more"},
      {"{ tma = \"x\",", "{ pack = [{ pack = [\"x\"] }] }, { tma = \"x\",",
       "found such an argument in 'pack', expected tensors, views, workspaces, axes"},
      {"swizzle = 128 }]", "swizzle = 128 }]\n[pass.model]\nread_byte = 1",
       "fast.toml:25: found the unknown key 'read_byte' in [pass.model] (did you mean 'read_bytes'?)"},
      {"swizzle = 128 }]", "swizzle = 128 }]\n[pass.model]\nunit = \"mna\"",
       "fast.toml:25: found 'mna' as 'unit' (did you mean 'mma'?), expected 'instruction', 'fma', 'mma' or 'wgmma'"},
      {"swizzle = 128 }]", "swizzle = 128 }]\n[pass.model]\noperations = \"rows * factor\"",
       "fast.toml:25: found the run-time value 'factor', which is no integer, in 'operations'"},
  };
  for (const Change& mistake : mistakes) {
    testing::Folder folder = testing::scale_folder();
    folder.implementation = testing::replaced(folder.implementation, mistake.from, mistake.to);
    check_says(testing::refusal_of(folder), mistake.message);
    check_alone(folder);
  }
}

TEST_CASE("a limit of the manifest language is said where it is passed") {
  testing::Folder folder = testing::scale_folder();
  std::string parameters = "vector  = [2, 4, 8]";
  std::string chosen = "[default]";
  for (char name = 'a'; name < 'i'; ++name) {
    parameters += std::string("\n") + name + " = [1, 2, 3, 4, 5, 6, 7, 8]";
    chosen += std::string("\n") + name + " = 1";
  }
  folder.implementation = testing::replaced(folder.implementation, "vector  = [2, 4, 8]", parameters);
  folder.implementation = testing::replaced(folder.implementation, "[default]", chosen);
  check_says(
      testing::refusal_of(folder),
      "found a search space of more than a million configs by parameters that neither [constraints] nor [search] names");

  folder = testing::scale_folder();
  std::string arguments = "args    = [";
  for (int i = 0; i < 64; ++i) arguments += "\"x\", ";
  folder.implementation = testing::replaced(folder.implementation, "args    = [", arguments);
  check_says(testing::refusal_of(folder), "fast.toml:23: found 71 arguments, expected at most 64");

  // Each count at its limit is read, and refused past it.
  struct Counted {
    std::string_view section;
    std::string_view entry;  // after a name
    int more;                // names that reach the limit
    std::string_view message;
  };
  for (const Counted& each :
       {Counted{"[axes]", R"( = { bucket = "exact", max = 8 })", 10, "found 13 axes, expected at most 12"},
        Counted{"[choices]", R"( = ["a", "b"])", 14, "found 17 types and choices, expected at most 16"},
        Counted{"[runtime]", R"( = "i64")", 30, "found 33 run-time values, expected at most 32"},
        Counted{"[tensors]", R"( = { shape = ["rows"], dtype = "f32" })", 22,
                "found 25 tensors, expected at most 24"}}) {
    CAPTURE(each.message);
    folder = testing::scale_folder();
    std::string entries(each.section);
    for (int i = 0; i < each.more; ++i) entries += fmt::format("\nmore_{}{}", i, each.entry);
    const std::string original = folder.op;
    folder.op = testing::replaced(original, each.section, entries);
    CHECK(testing::refusal_of(folder) == "accepted");
    folder.op = testing::replaced(original, each.section, fmt::format("{}\none_more{}", entries, each.entry));
    check_says(testing::refusal_of(folder), each.message);
  }

  folder = testing::scale_folder();
  std::string maps = "args    = [";
  for (int i = 0; i < 8; ++i) maps += R"({ tma = "x", box = [16, "64"] }, )";
  folder.implementation = testing::replaced(folder.implementation, "args    = [", maps);
  check_says(testing::refusal_of(folder), "fast.toml:23: found 9 TMA arguments, expected at most 8");
}

TEST_CASE("a folder without op.toml, implementation or a plain name is refused") {
  const testing::Folder folder = testing::scale_folder();
  CHECK_THROWS_WITH_AS(parse_op("scale", "/ops/scale", {}), doctest::Contains("/ops/scale/op.toml:1: found no op.toml"),
                       Error);
  auto files = folder.files();
  CHECK_THROWS_WITH_AS(parse_op("a b", "/ops/a b", files), doctest::Contains("found a folder named 'a b'"), Error);
  files.erase(files.begin() + 1);
  CHECK_THROWS_WITH_AS(parse_op("scale", "/ops/scale", files),
                       doctest::Contains("found no implementation beside op.toml"), Error);
}

TEST_CASE("a manifest with a piece missing or repeated is read or refused, and nothing else happens") {
  CHECK(rc::check([] {
    testing::Folder folder = testing::scale_folder();
    std::string& text = *rc::gen::arbitrary<bool>() ? folder.op : folder.implementation;
    const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
    const auto length = *rc::gen::inRange<std::size_t>(1, 20);
    const std::string piece = text.substr(at, length);
    *rc::gen::arbitrary<bool>() ? text.erase(at, length) : text.insert(at, piece);
    std::vector<Mistake> mistakes;
    (void)parse_op("scale", "/ops/scale", folder.files(), mistakes);
    try {
      (void)folder.parse();
      RC_ASSERT(mistakes.empty());
    } catch (const Error& error) {
      RC_ASSERT(error.kind() == ErrorKind::bad_manifest);
      RC_ASSERT(std::string(error.what()).find(".toml:") != std::string::npos);
      RC_ASSERT(!mistakes.empty());
    }
  }));
}

TEST_CASE("all mistakes of a folder are collected in one reading, those of each line that can be read") {
  testing::Folder folder = testing::scale_folder();
  const auto in_op = [&](std::string_view from, std::string_view to) {
    folder.op = testing::replaced(folder.op, from, to);
  };
  const auto in_fast = [&](std::string_view from, std::string_view to) {
    folder.implementation = testing::replaced(folder.implementation, from, to);
  };
  in_op("revision = 3", "revision = 0");
  in_op("max = 4096", "max = \"many\"");
  in_op("[\"bf16\", \"f32\"]", "[\"bf16\", \"float\", \"f32\"]");
  in_op("factor = \"f32\"", "factor = \"f33\"");
  in_op("min = \"cols\"", "min = \"colls\"");
  in_op("strides = [\"stride\", \"1\"], dtype = \"dtype\"", "strides = [\"1\"], dtype = \"dtyp\", fil = \"ones\"");
  in_op("\"x\", \"y\", \"rows\", \"cols\"", "\"z\", \"y\", \"row\", \"cols\"");
  in_op("flops = \"rows", "flops = \"rws");
  in_fast("[128, 256, 2048]", "[128, 256, 256]");
  in_fast("threads <= 1024\", \"cols", "thread <= 1024\", \"col");
  in_fast("vector  = 4", "vector  = 3");
  in_fast("bytes = \"rows * 4\"", "byte = \"rows * 4\"");
  in_fast("{vector * 2}", "{vectr * 2}");
  in_fast("threads * 4", "threds * 4");
  in_fast("box = [16, \"64\"]", "box = [16]");
  std::vector<Mistake> mistakes;
  (void)parse_op("scale", "/ops/scale", folder.files(), mistakes);
  const std::vector<std::string_view> wanted = {
      "op.toml:3: found the number 0 as 'revision'",
      "op.toml:5: found 'many' as 'max'",
      "op.toml:12: found 'f33' as a type of scalars",
      "op.toml:8: found 'float' as an element type",
      "op.toml:13: in the minimum of 'stride': found the unknown name 'colls'",
      "op.toml:15: found the unknown key 'fil' in tensor 'x'",
      "op.toml:15: found 1 strides of 'x'",
      "op.toml:15: found 'dtyp' as the dtype of 'x'",
      "op.toml:25: found the unknown argument 'z'",
      "op.toml:25: found the unknown argument 'row'",
      "op.toml:28: in 'flops': found the unknown name 'rws'",
      "fast.toml:5: found 256 twice in parameter 'threads'",
      "fast.toml:13: found vector = 3 in [default]",
      "fast.toml:8: in a constraint: found the unknown name 'thread'",
      "fast.toml:8: in a constraint: found the unknown name 'col'",
      "fast.toml:15: found the unknown key 'byte' in workspace 'partial'",
      "fast.toml:17: found the unknown name 'vectr'",
      "fast.toml:21: in 'shared': found the unknown name 'threds'",
      "fast.toml:23: found 1 entries in 'box'"};
  REQUIRE(mistakes.size() == wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) check_says(testing::text_of(mistakes[i]), wanted[i]);
}
