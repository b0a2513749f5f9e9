#pragma once

/// What the writer and the reader of trace files agree on besides the fields of the records.

#include <string_view>

namespace rpeg {

inline constexpr std::string_view kTracePrefix = "rank_";
inline constexpr std::string_view kTraceSuffix = ".jsonl";
inline constexpr std::string_view kTraceFormat = "rpeg-trace/1";
/// A line ends with this, 16 hexadecimal digits and `"}`.
inline constexpr std::string_view kSumField = ",\"sum\":\"";
inline constexpr std::size_t kSumDigits = 16;

}  // namespace rpeg
