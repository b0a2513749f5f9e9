#include "hf/decoder.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <utility>

#include "hf/byte_level.h"
#include "hf/utf8.h"

namespace rpeg {
namespace {

using Tokens = std::vector<std::string>;

constexpr std::string_view kReplacement = "\uFFFD";

/// The byte that "<0x41>" stands for.
std::optional<char> fallback_byte(std::string_view token) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') {
    return std::nullopt;
  }
  const auto digit = [&](char c) {
    return kDigits.find(c >= 'a' && c <= 'f' ? static_cast<char>(c - 'a' + 'A') : c);
  };
  const std::size_t high = digit(token[3]);
  const std::size_t low = digit(token[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) {
    return std::nullopt;
  }
  return static_cast<char>(high * 16 + low);
}

Tokens decode_byte_fallback(const Tokens& tokens) {
  Tokens result;
  std::string bytes;
  const auto flush = [&] {
    if (is_valid_utf8(bytes)) {
      result.push_back(bytes);
    } else {
      result.insert(result.end(), bytes.size(), std::string(kReplacement));
    }
    bytes.clear();
  };
  for (const std::string& token : tokens) {
    if (const auto byte = fallback_byte(token)) {
      bytes.push_back(*byte);
      continue;
    }
    if (!bytes.empty()) {
      flush();
    }
    result.push_back(token);
  }
  if (!bytes.empty()) {
    flush();
  }
  return result;
}

std::string strip(const StripDecode& step, std::string_view token) {
  for (std::size_t i = 0; i < step.start && token.starts_with(step.content); ++i) {
    token.remove_prefix(step.content.size());
  }
  for (std::size_t i = 0; i < step.stop && token.ends_with(step.content); ++i) {
    token.remove_suffix(step.content.size());
  }
  return std::string(token);
}

std::string join(const Tokens& tokens, std::string_view separator) {
  std::string result;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    result.append(i == 0 ? "" : separator).append(tokens[i]);
  }
  return result;
}

struct ApplyStep {
  Tokens tokens;

  Tokens operator()(const ReplaceStep& step) {
    for (std::string& token : tokens) {
      token = replace_all(step.pattern, token, step.content);
    }
    return std::move(tokens);
  }
  Tokens operator()(const ByteFallbackDecode&) { return decode_byte_fallback(tokens); }
  Tokens operator()(const FuseDecode&) { return {join(tokens, "")}; }
  Tokens operator()(const StripDecode& step) {
    for (std::string& token : tokens) {
      token = strip(step, token);
    }
    return std::move(tokens);
  }
  Tokens operator()(const ByteLevelDecode&) {
    std::string bytes;
    for (const std::string& token : tokens) {
      bytes += characters_to_bytes(token).value_or(token);  // added tokens are plain text
    }
    return {to_valid_utf8(bytes)};
  }
  Tokens operator()(const MetaspaceDecode& step) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const bool drop = i == 0 && step.drop_first;
      tokens[i] = replace_all(Pattern(step.replacement), tokens[i], drop ? "" : " ");
    }
    return std::move(tokens);
  }
};

StripDecode load_strip(const JsonPart& part) {
  const auto count = [&part](const char* key) {
    const std::int64_t value = part.at(key).integer();
    if (value < 0) {
      part.at(key).fail("is negative");
    }
    return static_cast<std::size_t>(value);
  };
  StripDecode result{part.at("content").text(), count("start"), count("stop")};
  if (result.content.empty()) {
    part.at("content").fail("one character was expected");
  }
  return result;
}

}  // namespace

Decoder load_decoder(const JsonPart& part) {
  Decoder result;
  if (part.json().is_null()) {
    result.separator = std::string(1, ' ');
  }
  for (const JsonPart& step : sequence_members(part, "decoders")) {
    const std::string type = step.at("type").text();
    if (type == "Replace") {
      result.steps.emplace_back(
          ReplaceStep{load_pattern(step.at("pattern")), step.at("content").text()});
    } else if (type == "ByteFallback") {
      result.steps.emplace_back(ByteFallbackDecode{});
    } else if (type == "Fuse") {
      result.steps.emplace_back(FuseDecode{});
    } else if (type == "Strip") {
      result.steps.emplace_back(load_strip(step));
    } else if (type == "ByteLevel") {
      result.steps.emplace_back(ByteLevelDecode{});
    } else if (type == "Metaspace") {
      result.steps.emplace_back(
          MetaspaceDecode{step.at("replacement").text(),
                          load_prepend_scheme(step) != MetaspaceStep::Prepend::kNever});
    } else {
      step.fail(
          fmt::format("decoder {} is not supported; Replace, ByteFallback, Fuse, Strip, "
                      "ByteLevel, Metaspace and Sequence are",
                      type));
    }
  }
  return result;
}

std::string decode_tokens(const Decoder& decoder, std::vector<std::string> tokens) {
  for (const auto& step : decoder.steps) {
    tokens = std::visit(ApplyStep{std::move(tokens)}, step);
  }
  return join(tokens, decoder.separator);
}

}  // namespace rpeg
