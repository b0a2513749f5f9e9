#include "rpeg/spec/lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"

namespace rpeg {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMostTokens = 100'000'000;

[[noreturn]] void fail(const std::string& where, const std::string& found) {
  throw Error(ErrorKind::kUsage,
              fmt::format("expected a response length: a whole number from 1 to {}, or an object "
                          "with `tokens` (a list), `response_length` or `length`; found {}",
                          kMostTokens,
                          found),
              where);
}

std::int64_t parse_length(const std::string& line, const std::string& where) {
  const std::string shown = line.substr(0, 60);
  const Json json = Json::parse(line, nullptr, false);
  if (json.is_discarded()) fail(where, shown);
  Json length = json;
  if (json.is_object()) {
    length = nullptr;
    for (const char* key : {"response_length", "length", "tokens"}) {
      if (!json.contains(key)) continue;
      length = json[key].is_array() ? Json(json[key].size()) : json[key];
      break;
    }
  }
  if (!length.is_number_integer()) fail(where, shown);
  const bool is_large = length.is_number_unsigned() &&
                        length.get<std::uint64_t>() > static_cast<std::uint64_t>(kMostTokens);
  if (is_large || length.get<std::int64_t>() < 1) fail(where, shown);
  return length.get<std::int64_t>();
}

}  // namespace

std::vector<std::int64_t> load_response_lengths(const std::filesystem::path& path) {
  std::vector<std::int64_t> lengths;
  std::istringstream in(read_file(path));
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    lengths.push_back(parse_length(line, fmt::format("{}:{}", path.string(), number)));
  }
  if (lengths.empty()) {
    throw Error(ErrorKind::kUsage, "there are no response lengths in it", path.string());
  }
  return lengths;
}

std::vector<LengthQuantile> length_quantiles(std::vector<std::int64_t> lengths,
                                             std::int64_t generation_length) {
  check(!lengths.empty(), "spec: a distribution of no lengths");
  std::sort(lengths.begin(), lengths.end());
  if (lengths.back() > generation_length) {
    throw Error(ErrorKind::kUsage,
                fmt::format("a response has {} tokens, more than workload.generation_length = {}; "
                            "raise that key",
                            lengths.back(),
                            generation_length));
  }
  constexpr double kMany = 0.02;     // share of responses that makes a step of the distribution
  constexpr double kNothing = 1e-9;  // share beyond the longest response: the last point is fixed
  const auto count = static_cast<double>(lengths.size());
  const auto share_up_to = [&](std::int64_t tokens) {
    const auto end = std::upper_bound(lengths.begin(), lengths.end(), tokens);
    return static_cast<double>(end - lengths.begin()) / count;
  };
  std::vector<LengthQuantile> points;
  const auto add = [&](double share, std::int64_t tokens) {
    const LengthQuantile before = points.empty() ? LengthQuantile{} : points.back();
    const auto at = static_cast<double>(tokens);
    const double probability = std::min(share, 1.0 - kNothing);
    if (tokens >= generation_length || at <= before.tokens) return;
    if (probability > before.probability) points.push_back({probability, at});
  };
  for (const int percent : {10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 100}) {
    const std::size_t rank = (lengths.size() * static_cast<std::size_t>(percent) + 99) / 100;
    const std::int64_t tokens = lengths[rank - 1];
    if (share_up_to(tokens) - share_up_to(tokens - 1) > kMany) {
      add(share_up_to(tokens - 1), tokens - 1);
    }
    add(share_up_to(tokens), tokens);
  }
  points.push_back({1.0, static_cast<double>(generation_length)});
  return points;
}

}  // namespace rpeg
