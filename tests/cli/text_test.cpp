// Units, tables and progress: what a person reads.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "cli/exit_code.hpp"
#include "cli/output.hpp"
#include "cli/random_values.hpp"
#include "cli/table.hpp"
#include "cli/tune_progress.hpp"
#include "cli/units.hpp"

using namespace kiln;
using namespace kiln::cli;

TEST_CASE("times carry four digits and the unit that suits them") {
  CHECK(format_time(0) == "0 ns");
  CHECK(format_time(850) == "850 ns");
  CHECK(format_time(1234.5) == "1.234 us");
  CHECK(format_time(12345) == "12.35 us");
  CHECK(format_time(999.6e3) == "1.000 ms");
  CHECK(format_time(2.5e9) == "2.500 s");
  CHECK(format_time(std::numeric_limits<double>::infinity()) == "-");
}

TEST_CASE("amounts and rates carry their units") {
  CHECK(format_bytes(512) == "512 B");
  CHECK(format_bytes(1500) == "1.5 kB");
  CHECK(format_bytes(141'000'000'000) == "141 GB");
  CHECK(format_bandwidth(3.412e12) == "3412 GB/s");
  CHECK(format_bandwidth(0) == "-");
  CHECK(format_throughput(612.13e12) == "612.1 TFLOP/s");
  CHECK(format_throughput(35.21e9) == "35.2 GFLOP/s");
  CHECK(format_count(10000) == "10,000");
  CHECK(format_count(999) == "999");
  CHECK(format_count(-1234567) == "-1,234,567");
  CHECK(counted(1, "launch") == "1 launch");
  CHECK(counted(2, "launch") == "2 launches");
  CHECK(counted(0, "record") == "0 records");
  CHECK(verb(1, "is", "are") == "is");
  CHECK(verb(0, "is", "are") == "are");
  CHECK(format_ratio(1.2345) == "1.23x");
  CHECK(format_cuda(12040) == "CUDA 12.4");
  CHECK(format_wait(8) == "8 s");
  CHECK(format_wait(185) == "3 min 05 s");
  CHECK(format_wait(7800) == "2 h 10 min");
}

TEST_CASE("a table lines its columns up and ends no line with spaces") {
  Table table({"op", "> time"});
  table.row({"rms_norm", "1.2 us"});
  table.row({"gemm", "190.0 us"});
  table.row({"softmax"});
  CHECK(table.text(2) == "  op            time\n  rms_norm    1.2 us\n  gemm      190.0 us\n  softmax\n");
}

TEST_CASE("a table's widest columns go on in further lines where a terminal holds no row") {
  Table table({"op", "config", "> time"});
  table.row({"rms_norm", "block_row threads=1024 vector_bytes=8 pdl=1", "1.2 us"});
  table.row({"gemm", "aligned=1,swap=1,pingpong=0,cluster_m=2", "190.0 us"});
  CHECK(table.text(0, 40) ==
        "op        config                    time\n"
        "rms_norm  block_row               1.2 us\n"
        "          threads=1024\n"
        "          vector_bytes=8 pdl=1\n"
        "gemm      aligned=1,swap=1,     190.0 us\n"
        "          pingpong=0,\n"
        "          cluster_m=2\n");
  for (const std::size_t width : {1, 20, 40, 60, 200}) {
    std::string words = table.text(0, width);
    CHECK(words.find("cluster_m=2") != std::string::npos);  // nothing is lost, however narrow
  }
  CHECK(table.text(0, 0).find("block_row threads=1024 vector_bytes=8 pdl=1") != std::string::npos);
}

TEST_CASE("a table that must be narrower cuts no word while a column of words can give way") {
  Table table({"op", "axes", "what"});
  table.row(
      {"attention_backward", "batch, queries, keys", "gradients of queries, keys and values from those of the result"});
  const std::string text = table.text(0, 60);
  CHECK_MESSAGE(text.find("attention_backward  batch,") != std::string::npos, text);
  for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    CHECK(end - at <= 60);
}

TEST_CASE("a table whose words do not fit side by side has one below another, with their headings") {
  Table table({"candidate", "> rows=64", "> rows=128", ""});
  table.row({"block_row threads=256", "1.234 us", "2.345 us", "serves"});
  table.row({"bulk", "", "2.5 us"});
  CHECK(table.text(2, 24) ==
        "  block_row threads=256\n"
        "      rows=64 1.234 us,\n"
        "      rows=128 2.345 us,\n"
        "      serves\n"
        "  bulk\n"
        "      rows=128 2.5 us\n");
}

TEST_CASE("columns get as many columns as their words need before a wide column gets more") {
  Table table({"tensor", "shape", "strides", "what"});
  table.row({"score_bias", "[batch, heads, queries, keys]", "[bias_batch_stride, bias_head_stride, bias_row_stride, 1]",
             "when bias == \"tensor\""});
  const std::string text = table.text(0, 60);
  CHECK_MESSAGE(text.find("bias_batch_stride,") != std::string::npos, text);
  CHECK(text.find("score_bias ") != std::string::npos);
  CHECK(text.find("\"tensor\"") != std::string::npos);
}

TEST_CASE("a paragraph is joined and wrapped; lists, indented lines and what follows a short sentence begin anew") {
  const std::string text =
      "A product of two matrices, and all that a network does to it, of\nwhich this line goes on:\n"
      "  z = scale * x w\nSums are f32 whatever the types are, and they are rounded once, at\nthe end.\n"
      "Another paragraph.\n\n- one item of a list that is long\n- two\n";
  CHECK(reflowed(text, 0) == text);
  CHECK(reflowed(text, 40) ==
        "A product of two matrices, and all that\na network does to it, of which this line\ngoes on:\n"
        "  z = scale * x w\n"
        "Sums are f32 whatever the types are, and\nthey are rounded once, at the end.\n"
        "Another paragraph.\n\n- one item of a list that is long\n- two\n");
  CHECK(reflowed("- an item that is long, of a list\n", 20) == "- an item that is\n  long, of a list\n");
}

TEST_CASE("text is cut at spaces, else behind commas, else anywhere, and loses nothing") {
  CHECK(wrapped("one two three", 7) == std::vector<std::string>{"one two", "three"});
  CHECK(wrapped("one,two,three", 8) == std::vector<std::string>{"one,two,", "three"});
  CHECK(wrapped("abcdefgh", 3) == std::vector<std::string>{"abc", "def", "gh"});
  CHECK(wrapped("", 3) == std::vector<std::string>{""});
  CHECK(wrapped("short", 0) == std::vector<std::string>{"short"});
}

TEST_CASE("help goes on below its second column, and lines that fit stay") {
  const std::string line = "  --base FILE    A shipped file of records; a bare name may be that of an installed one\n";
  CHECK(wrapped_help("Options:\n" + line, 60) ==
        "Options:\n"
        "  --base FILE    A shipped file of records; a bare name may\n"
        "                 be that of an installed one\n");
  CHECK(wrapped_help(line, 0) == line);
}

TEST_CASE(
    "a paragraph of help that was written for wider lines is wrapped as one; what follows a long example is below it") {
  CHECK(wrapped_help("It checks the structure and the indexes of the file, each row's digest and its values, and\n"
                     "the seal. It writes nothing.\nExamples:\n",
                     60) ==
        "It checks the structure and the indexes of the file, each\n"
        "row's digest and its values, and the seal. It writes\n"
        "nothing.\nExamples:\n");
  CHECK(wrapped_help("  kiln cache verify h200.kiln --require-signature     in CI, before each release\n", 60) ==
        "  kiln cache verify h200.kiln --require-signature\n      in CI, before each release\n");
}

TEST_CASE("a bar is empty at the beginning and full at the end") {
  CHECK(bar(0, 10, 5) == "[-----]");
  CHECK(bar(5, 10, 4) == "[##--]");
  CHECK(bar(10, 10, 5) == "[#####]");
  CHECK(bar(0, 0, 3) == "[---]");
  CHECK(bar(12, 10, 3) == "[###]");
}

TEST_CASE("progress tells the rate, the time left, the best and the default") {
  TuneEvent event;
  event.op = "twice";
  event.bucket = "rows=4";
  event.done = 10;
  event.total = 40;
  event.best_ns = 12350;
  event.baseline_ns = 14020;
  CHECK(progress_text(event, 5) ==
        "twice rows=4  [#####---------------] 10/40  2.0/s  15 s left  best 12.35 us, default 14.02 us");
  event.done = 0;
  event.best_ns = event.baseline_ns = 0;
  CHECK(progress_text(event, 0) == "twice rows=4  [--------------------] 0/40");
}

TEST_CASE("each kind of failure has the exit status that the help promises") {
  CHECK(exit_code_of(ErrorKind::bad_input) == 2);
  CHECK(exit_code_of(ErrorKind::bad_manifest) == 2);
  CHECK(exit_code_of(ErrorKind::no_driver) == 3);
  CHECK(exit_code_of(ErrorKind::no_nvrtc) == 3);
  CHECK(exit_code_of(ErrorKind::no_cublaslt) == 3);
  CHECK(exit_code_of(ErrorKind::no_nccl) == 3);
  CHECK(exit_code_of(ErrorKind::no_permission) == 4);
  CHECK(exit_code_of(ErrorKind::bad_file) == 4);
  CHECK(exit_code_of(ErrorKind::compile_failed) == 5);
  CHECK(exit_code_of(ErrorKind::not_tuned) == 1);
  CHECK(exit_code_of(ErrorKind::interrupted) == 130);
}

TEST_CASE("random values are finite, neither zero nor large, and of both signs") {
  const auto bytes = random_values(manifest::DType::bf16, 1000, 1);
  REQUIRE(bytes.size() == 2000);
  int negative = 0;
  for (std::size_t i = 0; i < bytes.size(); i += 2) {
    const auto bits = static_cast<unsigned>(bytes[i]) | static_cast<unsigned>(bytes[i + 1]) << 8;
    const float value = std::bit_cast<float>(bits << 16);
    CHECK(std::abs(value) >= 1.0F / 16);
    CHECK(std::abs(value) < 1.0F);
    negative += value < 0 ? 1 : 0;
  }
  CHECK(negative > 400);
  CHECK(negative < 600);
}
