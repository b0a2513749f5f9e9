#include <charconv>
#include <string_view>
#include <vector>

#include "rpeg/base/error.h"
#include "rpeg/search/search.h"

namespace rpeg {
namespace {

[[noreturn]] void fail(const std::string& text, const std::string& why) {
  throw Error(ErrorKind::kUsage,
              "pin `" + text + "`: " + why +
                  "; a pin reads like g_pi=4,1,2 (dp,pp,tp), g_pi=m8, g_pi=r0 n[0-1] g[0-3], or "
                  "several joined by `/`");
}

template <typename T>
T positive(std::string_view part, const std::string& text) {
  T value = 0;
  const char* end = part.data() + part.size();
  const bool digits = !part.empty() && part.front() >= '0' && part.front() <= '9';
  const auto [at, error] = std::from_chars(part.data(), end, value);
  if (!digits || error != std::errc{} || at != end || value < 1) {
    fail(text, "`" + std::string(part) + "` is not a number of at least 1");
  }
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

Parallelism parse_parallelism(std::string_view part, const std::string& text) {
  const std::vector<std::string_view> numbers = split(part, ',');
  if (numbers.size() != 3) fail(text, "expected dp,pp,tp");
  const Parallelism result{positive<int>(numbers[0], text),
                           positive<int>(numbers[1], text),
                           positive<int>(numbers[2], text)};
  constexpr std::int64_t kMostGpus = 1'000'000;
  // Divisions: the product of the three may not fit into their type.
  if (result.dp > kMostGpus / result.pp / result.tp) fail(text, "no cluster is that large");
  return result;
}

template <typename T>
void set_once(std::optional<T>& field, T value, const std::string& text, const char* what) {
  if (field) fail(text, std::string("two values for the ") + what);
  field = std::move(value);
}

}  // namespace

Pin parse_pin(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) fail(text, "expected VERTEX=DECISION");
  Pin pin;
  pin.vertex = text.substr(0, equals);
  for (const std::string_view part : split(std::string_view(text).substr(equals + 1), '/')) {
    if (part.empty()) fail(text, "a decision is empty");
    if (part.front() == 'r') {
      set_once(pin.placement, parse_placement(std::string(part)), text, "block");
    } else if (part.front() == 'm') {
      set_once(
          pin.micro_batches, positive<std::int64_t>(part.substr(1), text), text, "micro-batches");
    } else {
      set_once(pin.parallelism, parse_parallelism(part, text), text, "parallelism");
    }
  }
  return pin;
}

}  // namespace rpeg
