// Formats and parses quantities: three or four digits and a unit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kiln::cli {

std::string format_time(double ns);                              // "850 ns", "12.35 us", "1.203 ms", "2.81 s"
std::string format_bytes(std::int64_t bytes);                    // "512 B", "1.5 kB", "141 GB": powers of 1000
std::string format_bandwidth(double bytes_per_second);           // "3412 GB/s"; "-" for 0
std::string format_throughput(double flops_per_second);          // "612.1 TFLOP/s", "35.2 GFLOP/s"; "-" for 0
std::string format_count(std::int64_t count);                    // "10,000"
std::string counted(std::int64_t count, std::string_view what);  // "1 record", "10,000 records"
/// Returns the form of a verb after a count: "is" for 1, else "are".
std::string_view verb(std::int64_t count, std::string_view one, std::string_view more);
std::string format_cuda(int version);     // "CUDA 13.0" of 13000, as the driver counts
std::string format_ratio(double ratio);   // "1.24x"
std::string format_wait(double seconds);  // "8 s", "3 min 05 s", "2 h 10 min"

/// Parses "500MB", "1.5 GB", "64MiB" or "4096B" (kB is 1000 bytes, kiB is 1024). Throws Error(bad_input) that begins
/// with `what`.
std::int64_t parse_bytes(std::string_view text, std::string_view what);
/// Parses "90d", "12h", "30min", "45s" or "2w". Throws Error(bad_input) that begins with `what`.
std::int64_t parse_seconds(std::string_view text, std::string_view what);

}  // namespace kiln::cli
