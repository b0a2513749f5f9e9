#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rpeg {

/// A BPE tokenizer read from a Hugging Face `tokenizer.json`: byte-level BPE (GPT-2, Llama 3, Qwen)
/// and SentencePiece-style BPE with byte fallback (Llama 2, Mistral). Immutable once loaded.
class Tokenizer {
 public:
  /// Reads `tokenizer.json` (the file or the directory that holds it). Throws kUsage naming the
  /// file and the part for anything that would make ids differ from the reference implementation.
  /// The parts `truncation` and `padding` are not applied.
  static Tokenizer load(const std::filesystem::path& path);

  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// Token ids of a UTF-8 text (ill-formed bytes count as U+FFFD); with `add_special_tokens` the
  /// post-processor's (BOS) are added. Spellings of added tokens in the text become those tokens.
  std::vector<std::int32_t> encode(std::string_view text, bool add_special_tokens = true) const;
  /// Text of ids, always valid UTF-8; special tokens are left out when `skip_special_tokens`, ids
  /// without a token (models pad their vocabularies) always.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens = true) const;
  /// One more than the largest id.
  std::int64_t vocab_size() const;
  /// The id of a token's exact spelling, or -1.
  std::int32_t token_id(std::string_view token) const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Stop tokens of a model directory: `eos_token_id` (a number or a list) of generation_config.json
/// when present, else of config.json; empty when neither has one.
std::vector<std::int32_t> load_stop_tokens(const std::filesystem::path& directory);

}  // namespace rpeg
