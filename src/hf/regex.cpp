#include "rpeg/hf/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <optional>
#include <string>

#include "rpeg/base/error.h"

namespace rpeg {
namespace {

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
using MatchData = std::unique_ptr<pcre2_match_data, MatchDataDeleter>;

MatchData new_match_data(const pcre2_code* code) {
  return MatchData(pcre2_match_data_create_from_pattern(code, nullptr));
}

/// The first match at or after `start`. The text has been found to be UTF-8 when `checked`.
std::optional<TextSpan> find_from(const pcre2_code* code,
                                  pcre2_match_data* data,
                                  std::string_view text,
                                  std::size_t start,
                                  bool checked) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const std::uint32_t options = checked ? PCRE2_NO_UTF_CHECK : 0;
  const int status = pcre2_match(code, subject, text.size(), start, options, data, nullptr);
  if (status == PCRE2_ERROR_NOMATCH) {
    return std::nullopt;
  }
  if (status < 0) {
    throw Error(ErrorKind::kRuntime,
                fmt::format("matching a regular expression failed: {}", pcre2_message(status)));
  }
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(data);
  return TextSpan{offsets[0], offsets[1]};
}

bool is_continuation_byte(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

std::size_t next_character(std::string_view text, std::size_t at) {
  ++at;
  while (at < text.size() && is_continuation_byte(text[at])) {
    ++at;
  }
  return at;
}

}  // namespace

struct Regex::Impl {
  std::unique_ptr<pcre2_code, CodeDeleter> code;
};

Regex::Regex(std::string_view pattern) : impl_(std::make_unique<Impl>()) {
  int status = 0;
  PCRE2_SIZE position = 0;
  impl_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()),
                                  pattern.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C,
                                  &status,
                                  &position,
                                  nullptr));
  if (impl_->code == nullptr) {
    throw Error(ErrorKind::kUsage,
                fmt::format("regular expression '{}' does not compile: {} at offset {}",
                            pattern,
                            pcre2_message(status),
                            position));
  }
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

bool Regex::matches(std::string_view text) const {
  const MatchData data = new_match_data(impl_->code.get());
  return find_from(impl_->code.get(), data.get(), text, 0, false).has_value();
}

std::vector<TextSpan> Regex::find_all(std::string_view text) const {
  const MatchData data = new_match_data(impl_->code.get());
  std::vector<TextSpan> result;
  std::size_t at = 0;
  bool checked = false;
  while (at <= text.size()) {
    const auto match = find_from(impl_->code.get(), data.get(), text, at, checked);
    if (!match) {
      break;
    }
    checked = true;
    result.push_back(*match);
    at = match->end > match->begin ? match->end : next_character(text, match->end);
  }
  return result;
}

}  // namespace rpeg
