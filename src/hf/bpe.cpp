#include "hf/bpe.h"

#include <fmt/format.h>

#include <queue>
#include <tuple>
#include <utility>

#include "hf/utf8.h"

namespace rpeg {
namespace {

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32) |
         static_cast<std::uint32_t>(right);
}

void refuse_what_is_not_supported(const JsonPart& model) {
  const std::string type = model.text_or("type", "BPE");  // GPT-2's file, older than `type`
  if (type != "BPE") {
    model.at("type").fail(fmt::format("model {} is not supported; only BPE is", type));
  }
  if (model.has("dropout") && model.at("dropout").json() != 0) {
    model.at("dropout").fail("BPE dropout is not supported: it makes ids random");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.text_or(key, "").empty()) {
      model.at(key).fail("is not supported");
    }
  }
}

TokenIds load_vocab(const JsonPart& part) {
  if (!part.json().is_object() || part.json().empty()) {
    part.fail("an object of token: id was expected");
  }
  TokenIds vocab;
  vocab.reserve(part.json().size());
  for (const auto& item : part.json().items()) {
    vocab.emplace(item.key(), part.at(item.key()).token_id());
  }
  return vocab;
}

/// The two halves of a merge, written "a b" or ["a", "b"].
std::pair<std::string, std::string> merge_halves(const JsonPart& merge) {
  if (merge.json().is_array()) {
    const auto halves = merge.elements();
    if (halves.size() != 2) {
      merge.fail("a merge has two halves");
    }
    return {halves[0].text(), halves[1].text()};
  }
  const std::string line = merge.text();
  const std::size_t space = line.find(' ');
  if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
    merge.fail(fmt::format("'{}' is not two tokens with a space between them", line));
  }
  return {line.substr(0, space), line.substr(space + 1)};
}

void load_merges(const JsonPart& part, Bpe& bpe) {
  const auto id_of = [&bpe](const JsonPart& merge, const std::string& token) {
    const auto found = bpe.vocab.find(token);
    if (found == bpe.vocab.end()) {
      merge.fail(fmt::format("token '{}' is not in the vocabulary", token));
    }
    return found->second;
  };
  std::int32_t rank = 0;
  for (const JsonPart& merge : part.elements()) {
    const auto [left, right] = merge_halves(merge);
    const std::int32_t left_id = id_of(merge, left);
    const std::int32_t right_id = id_of(merge, right);
    // A pair that is listed twice has its last rank, as in the reference implementation.
    bpe.merges[pair_key(left_id, right_id)] = {rank, id_of(merge, left + right)};
    ++rank;
  }
}

void load_byte_fallback(const JsonPart& model, Bpe& bpe) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    const auto found = bpe.vocab.find(fmt::format("<0x{:02X}>", byte));
    if (found != bpe.vocab.end()) {
      bpe.byte_ids.push_back(found->second);
    }
  }
  if (!bpe.byte_ids.empty() && bpe.byte_ids.size() != 256) {
    model.at("vocab").fail(
        fmt::format("byte_fallback needs the 256 tokens <0x00> to <0xFF>, of which {} are there",
                    bpe.byte_ids.size()));
  }
}

/// The ids of a word's characters, before any merge.
std::vector<std::int32_t> character_ids(const Bpe& bpe, std::string_view word) {
  std::vector<std::int32_t> ids;
  ids.reserve(word.size());
  bool after_unknown = false;
  for (std::size_t at = 0; at < word.size();) {
    const std::string_view character = word.substr(at, character_length(word, at));
    at += character.size();
    const auto found = bpe.vocab.find(character);
    const bool unknown = found == bpe.vocab.end() && bpe.byte_ids.empty();
    if (found != bpe.vocab.end()) {
      ids.push_back(found->second);
    } else if (!unknown) {
      for (const char byte : character) {
        ids.push_back(bpe.byte_ids[static_cast<unsigned char>(byte)]);
      }
    } else if (bpe.unknown_id >= 0 && !(after_unknown && bpe.fuse_unknown)) {
      ids.push_back(bpe.unknown_id);
    }
    after_unknown = unknown;
  }
  return ids;
}

/// A word as a linked list of symbols that shrinks as neighbours merge, the most urgent pair first.
class MergeList {
 public:
  MergeList(const Bpe& bpe, std::vector<std::int32_t> ids) : bpe_(bpe), ids_(std::move(ids)) {
    const auto size = static_cast<std::int32_t>(ids_.size());
    for (std::int32_t i = 0; i < size; ++i) {
      links_.push_back({i - 1, i + 1 < size ? i + 1 : -1});
    }
    for (std::int32_t i = 0; i < size; ++i) {
      push_pair(i);
    }
  }

  void merge_all() {
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      const Bpe::Merge* merge = is_alive(top.at) ? merge_at(top.at) : nullptr;
      // What was queued may be out of date. As in the reference implementation, it still counts
      // when today's pair would become the same token, whatever today's rank.
      if (merge != nullptr && merge->id == top.id) {
        merge_with_next(top.at, top.id);
      }
    }
  }

  void append_to(std::vector<std::int32_t>& out) const {
    for (std::int32_t at = ids_.empty() ? -1 : 0; at >= 0; at = link(at).next) {
      out.push_back(ids_[static_cast<std::size_t>(at)]);
    }
  }

 private:
  struct Link {
    std::int32_t previous = -1;
    std::int32_t next = -1;
  };
  struct Candidate {
    std::int32_t rank = 0;
    std::int32_t at = 0;
    std::int32_t id = 0;
    bool operator>(const Candidate& other) const {
      return std::tie(rank, at) > std::tie(other.rank, other.at);
    }
  };

  const Link& link(std::int32_t at) const { return links_[static_cast<std::size_t>(at)]; }
  Link& link(std::int32_t at) { return links_[static_cast<std::size_t>(at)]; }
  std::int32_t& id(std::int32_t at) { return ids_[static_cast<std::size_t>(at)]; }
  bool is_alive(std::int32_t at) { return id(at) >= 0; }

  /// How the symbol at `at` and its right neighbour merge; nullptr when they do not.
  const Bpe::Merge* merge_at(std::int32_t at) {
    if (at < 0 || link(at).next < 0) {
      return nullptr;
    }
    const auto found = bpe_.merges.find(pair_key(id(at), id(link(at).next)));
    return found == bpe_.merges.end() ? nullptr : &found->second;
  }

  void push_pair(std::int32_t at) {
    if (const Bpe::Merge* merge = merge_at(at)) {
      queue_.push({merge->rank, at, merge->id});
    }
  }

  void merge_with_next(std::int32_t at, std::int32_t merged_id) {
    const std::int32_t gone = link(at).next;
    id(at) = merged_id;
    id(gone) = -1;
    link(at).next = link(gone).next;
    if (link(at).next >= 0) {
      link(link(at).next).previous = at;
    }
    push_pair(link(at).previous);
    push_pair(at);
  }

  const Bpe& bpe_;
  std::vector<std::int32_t> ids_;
  std::vector<Link> links_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue_;
};

}  // namespace

Bpe load_bpe(const JsonPart& model) {
  refuse_what_is_not_supported(model);
  Bpe bpe;
  bpe.vocab = load_vocab(model.at("vocab"));
  load_merges(model.at("merges"), bpe);
  bpe.fuse_unknown = model.boolean_or("fuse_unk", false);
  bpe.ignore_merges = model.boolean_or("ignore_merges", false);
  if (model.boolean_or("byte_fallback", false)) {
    load_byte_fallback(model, bpe);
  }
  if (model.has("unk_token")) {
    const JsonPart unknown = model.at("unk_token");
    const auto found = bpe.vocab.find(unknown.text());
    if (found == bpe.vocab.end()) {
      unknown.fail(fmt::format("token '{}' is not in the vocabulary", unknown.text()));
    }
    bpe.unknown_id = found->second;
  }
  return bpe;
}

void encode_word(const Bpe& bpe, std::string_view word, std::vector<std::int32_t>& ids) {
  if (bpe.ignore_merges) {
    const auto found = bpe.vocab.find(word);
    if (found != bpe.vocab.end()) {
      ids.push_back(found->second);
      return;
    }
  }
  std::vector<std::int32_t> characters = character_ids(bpe, word);
  if (bpe.merges.empty() || characters.size() < 2) {
    ids.insert(ids.end(), characters.begin(), characters.end());
    return;
  }
  MergeList list(bpe, std::move(characters));
  list.merge_all();
  list.append_to(ids);
}

}  // namespace rpeg
