#include "rpeg/hf/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "hf/added_tokens.h"
#include "hf/bpe.h"
#include "hf/decoder.h"
#include "hf/json_part.h"
#include "hf/normalizer.h"
#include "hf/pre_tokenizer.h"
#include "hf/utf8.h"
#include "rpeg/base/error.h"

namespace rpeg {
namespace {

/// Tokens that the post-processor puts around a text.
struct Template {
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> after;
};

void append_special_token(const JsonPart& processor,
                          const JsonPart& item,
                          std::vector<std::int32_t>& out) {
  const std::string name = item.at("SpecialToken").at("id").text();
  for (const JsonPart& id : processor.at("special_tokens").at(name).at("ids").elements()) {
    out.push_back(id.token_id());
  }
}

Template load_template(const JsonPart& processor) {
  Template result;
  bool after_text = false;
  const JsonPart single = processor.at("single");
  for (const JsonPart& item : single.elements()) {
    if (item.has("SpecialToken")) {
      append_special_token(processor, item, after_text ? result.after : result.before);
      continue;
    }
    if (after_text || item.at("Sequence").at("id").text() != "A") {
      item.fail("only one sequence, A, was expected");
    }
    after_text = true;
  }
  if (!after_text) {
    single.fail("the text itself, sequence A, is missing");
  }
  return result;
}

/// Reads the part `post_processor`: what it adds to a single text.
Template load_post_processor(const JsonPart& part) {
  Template result;
  for (const JsonPart& step : sequence_members(part, "processors")) {
    const std::string type = step.at("type").text();
    if (type == "TemplateProcessing") {
      const Template outer = load_template(step);
      result.before.insert(result.before.begin(), outer.before.begin(), outer.before.end());
      result.after.insert(result.after.end(), outer.after.begin(), outer.after.end());
    } else if (type != "ByteLevel") {  // which only moves offsets
      step.fail(fmt::format(
          "post-processor {} is not supported; TemplateProcessing, ByteLevel and Sequence are",
          type));
    }
  }
  return result;
}

/// `part` itself where the key is there, else a null value: both mean "none".
JsonPart optional_part(const JsonPart& root, std::string_view key) {
  static const nlohmann::json kNull;
  return root.has(key) ? root.at(key) : JsonPart(kNull, "");
}

}  // namespace

struct Tokenizer::Impl {
  Bpe bpe;
  std::vector<AddedToken> added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Template around;
  Decoder decoder;
  std::optional<AddedTokenFinder> raw_finder;
  std::optional<AddedTokenFinder> normalized_finder;
  std::unordered_map<std::int32_t, std::string> spelling;  ///< of each id
  TokenIds ids;                                            ///< of each spelling
  std::unordered_set<std::int32_t> special;

  explicit Impl(const JsonPart& root);
  void index_tokens(const JsonPart& root);
  void encode_text(std::string_view text, bool at_start, std::vector<std::int32_t>& out) const;
};

Tokenizer::Impl::Impl(const JsonPart& root)
    : bpe(load_bpe(root.at("model"))),
      normalizer(load_normalizer(optional_part(root, "normalizer"))),
      pre_tokenizer(load_pre_tokenizer(optional_part(root, "pre_tokenizer"))),
      around(load_post_processor(optional_part(root, "post_processor"))),
      decoder(load_decoder(optional_part(root, "decoder"))) {
  if (root.has("added_tokens")) {
    added = load_added_tokens(root.at("added_tokens"));
  }
  index_tokens(root);
  raw_finder.emplace(added, false, normalizer);
  normalized_finder.emplace(added, true, normalizer);
}

/// Fills `spelling`, `ids` and `special`; two spellings of one id, or two ids of one spelling, are
/// an error.
void Tokenizer::Impl::index_tokens(const JsonPart& root) {
  const auto add = [&](const std::string& token, std::int32_t id, const char* part) {
    const auto by_text = ids.emplace(token, id).first;
    const auto by_id = spelling.emplace(id, token).first;
    if (by_text->second != id || by_id->second != token) {
      root.at(part).fail(fmt::format("token '{}' has id {}, but '{}' has id {} already",
                                     token,
                                     id,
                                     by_text->second != id ? token : by_id->second,
                                     by_text->second != id ? by_text->second : id));
    }
  };
  for (const auto& [token, id] : std::map(bpe.vocab.begin(), bpe.vocab.end())) {
    add(token, id, "model");
  }
  for (const AddedToken& token : added) {
    add(token.content, token.id, "added_tokens");
    if (token.special) {
      special.insert(token.id);
    }
  }
  for (const auto& list : {around.before, around.after}) {
    for (const std::int32_t id : list) {
      if (!spelling.contains(id)) {
        root.at("post_processor").fail(fmt::format("id {} is not in the vocabulary", id));
      }
    }
  }
}

/// Encodes what lies between two added tokens that are looked for before normalisation.
void Tokenizer::Impl::encode_text(std::string_view text,
                                  bool at_start,
                                  std::vector<std::int32_t>& out) const {
  const std::string normalized = normalize(normalizer, text);
  for (const TextPart& part : normalized_finder->split(normalized)) {
    if (part.id >= 0) {
      out.push_back(part.id);
      continue;
    }
    Word stretch{normalized.substr(part.span.begin, part.span.end - part.span.begin),
                 at_start && part.span.begin == 0};
    for (const Word& word : pre_tokenize(pre_tokenizer, std::move(stretch))) {
      encode_word(bpe, word.text, out);
    }
  }
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  std::error_code ignored;
  const bool is_directory = std::filesystem::is_directory(path, ignored);
  const std::filesystem::path file = is_directory ? path / "tokenizer.json" : path;
  const nlohmann::json document = parse_json_file(file);
  return Tokenizer(std::make_unique<Impl>(JsonPart(document, file.string())));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  const std::string valid = to_valid_utf8(text);
  std::vector<std::int32_t> ids;
  if (add_special_tokens) {
    ids = impl_->around.before;
  }
  for (const TextPart& part : impl_->raw_finder->split(valid)) {
    if (part.id >= 0) {
      ids.push_back(part.id);
    } else {
      impl_->encode_text(
          std::string_view(valid).substr(part.span.begin, part.span.end - part.span.begin),
          part.span.begin == 0,
          ids);
    }
  }
  if (add_special_tokens) {
    ids.insert(ids.end(), impl_->around.after.begin(), impl_->around.after.end());
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  for (const std::int32_t id : ids) {
    const auto found = impl_->spelling.find(id);
    const bool skip = skip_special_tokens && impl_->special.contains(id);
    if (found != impl_->spelling.end() && !skip) {
      tokens.push_back(found->second);
    }
  }
  return decode_tokens(impl_->decoder, std::move(tokens));
}

std::int64_t Tokenizer::vocab_size() const {
  std::int64_t largest = -1;
  for (const auto& entry : impl_->spelling) {
    largest = std::max<std::int64_t>(largest, entry.first);
  }
  return largest + 1;
}

std::int32_t Tokenizer::token_id(std::string_view token) const {
  const auto found = impl_->ids.find(token);
  return found == impl_->ids.end() ? -1 : found->second;
}

std::vector<std::int32_t> load_stop_tokens(const std::filesystem::path& directory) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::filesystem::path file = directory / name;
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) {
      continue;
    }
    const nlohmann::json document = parse_json_file(file);
    const JsonPart root(document, file.string());
    if (!document.is_object()) {
      root.fail("an object was expected");
    }
    if (!root.has("eos_token_id")) {
      continue;
    }
    const JsonPart stop = root.at("eos_token_id");
    std::vector<std::int32_t> result;
    if (stop.json().is_array()) {
      for (const JsonPart& id : stop.elements()) {
        result.push_back(id.token_id());
      }
    } else {
      result.push_back(stop.token_id());
    }
    return result;
  }
  return {};
}

}  // namespace rpeg
