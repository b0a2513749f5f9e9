#pragma once

#include <string>

namespace rpeg {

/// All four print three significant digits with an SI prefix: "440 TFLOP/s", "220 GB/s", "78 us",
/// "103 GB". They are for people: files keep plain SI numbers.
std::string format_flop_rate(double flop_per_s);
std::string format_bandwidth(double bytes_per_s);
std::string format_seconds(double seconds);
std::string format_bytes(double bytes);

/// Prints a double with the fewest digits that read back to the same value ("0.05", "1e-08").
std::string format_exact(double value);

}  // namespace rpeg
