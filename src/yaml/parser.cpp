#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <sstream>
#include <string>
#include <unordered_map>

#include "rpeg/base/error.h"
#include "rpeg/yaml/reader.h"

namespace rpeg {
namespace {

[[noreturn]] void fail(const std::string& file, int line, int column, const std::string& message) {
  throw Error(ErrorKind::kUsage, message, fmt::format("{}:{}:{}", file, line, column));
}

/// Builds the tree of one document from yaml-cpp's events. Containers under construction are kept
/// on a stack, so that nesting costs no recursion here.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const std::string& file) : file_(file) {}

  YamlValue take_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    add(node(YamlValue::Kind::kNull, mark));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    note(mark);
    fail(file_, line_, column_, "aliases (`*name`) are not supported; write the value out");
  }

  void OnScalar(const YAML::Mark& mark,
                const std::string& tag,
                YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(tag);
    YamlValue scalar = node(YamlValue::Kind::kScalar, mark);
    scalar.scalar = value;
    scalar.quoted = tag == "!";
    add(std::move(scalar));
  }

  void OnSequenceStart(const YAML::Mark& mark,
                       const std::string& tag,
                       YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(YamlValue::Kind::kSequence, mark, tag, anchor);
  }
  void OnMapStart(const YAML::Mark& mark,
                  const std::string& tag,
                  YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(YamlValue::Kind::kMap, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

 private:
  struct Container {
    YamlValue value;
    bool has_key = false;
    YamlValue key;
    std::unordered_map<std::string, int> lines;  ///< of the keys so far
  };

  void note(const YAML::Mark& mark) {
    if (!mark.is_null()) {
      line_ = mark.line + 1;
      column_ = mark.column + 1;
    }
  }

  YamlValue node(YamlValue::Kind kind, const YAML::Mark& mark) {
    note(mark);
    YamlValue value;
    value.kind = kind;
    value.line = line_;
    value.column = column_;
    return value;
  }

  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    note(mark);
    if (anchor != 0) {
      fail(file_, line_, column_, "anchors (`&name`) are not supported; write the value out");
    }
  }

  // yaml-cpp reports "?" for plain and "!" for quoted scalars.
  void refuse_tag(const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!") {
      fail(file_, line_, column_, fmt::format("tags (`{}`) are not supported; remove it", tag));
    }
  }

  void open(YamlValue::Kind kind,
            const YAML::Mark& mark,
            const std::string& tag,
            YAML::anchor_t anchor) {
    refuse_anchor(mark, anchor);
    refuse_tag(tag);
    refuse_as_key();
    stack_.push_back({node(kind, mark), false, {}, {}});
  }

  bool key_expected() const {
    return !stack_.empty() && stack_.back().value.kind == YamlValue::Kind::kMap &&
           !stack_.back().has_key;
  }

  void refuse_as_key() {
    if (key_expected()) {
      fail(file_, line_, column_, "a key must be a word, not a map, a sequence or nothing");
    }
  }

  void close() {
    YamlValue done = std::move(stack_.back().value);
    stack_.pop_back();
    add(std::move(done));
  }

  void add(YamlValue value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return;
    }
    Container& parent = stack_.back();
    if (parent.value.kind == YamlValue::Kind::kSequence) {
      parent.value.items.push_back(std::move(value));
    } else if (parent.has_key) {
      value.key_line = parent.key.line;
      value.key_column = parent.key.column;
      parent.value.fields.push_back({std::move(parent.key.scalar), std::move(value)});
      parent.has_key = false;
    } else {
      begin_field(parent, std::move(value));
    }
  }

  void begin_field(Container& parent, YamlValue key) {
    if (key.kind != YamlValue::Kind::kScalar) {
      refuse_as_key();
    }
    const auto [first, is_new] = parent.lines.try_emplace(key.scalar, key.line);
    if (!is_new) {
      fail(file_,
           key.line,
           key.column,
           fmt::format(
               "duplicate key `{}`; it was first given at line {}", key.scalar, first->second));
    }
    parent.key = std::move(key);
    parent.has_key = true;
  }

  const std::string& file_;
  std::vector<Container> stack_;
  YamlValue root_;
  int line_ = 1;
  int column_ = 1;
};

/// Characters that no YAML file may hold, and tabs where they would be read as indentation.
void check_characters(const std::string& text, const std::string& file) {
  int line = 1;
  int column = 1;
  bool indentation = true;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      ++line;
      column = 1;
      indentation = true;
      continue;
    }
    if (c == '\t' && indentation) {
      fail(file, line, column, "a tab in the indentation; indent with spaces");
    }
    if (byte < 0x20 && c != '\t' && c != '\r') {
      fail(file, line, column, fmt::format("a control character (0x{:02x}) in the text", byte));
    }
    indentation = indentation && c == ' ';
    ++column;
  }
}

}  // namespace

const YamlValue* YamlValue::find(std::string_view key) const {
  for (const auto& [name, value] : fields) {
    if (name == key) {
      return &value;
    }
  }
  return nullptr;
}

YamlValue parse_yaml(const std::string& text, const std::string& file) {
  check_characters(text, file);
  std::istringstream stream(text);
  try {
    YAML::Parser parser(stream);
    TreeBuilder first(file);
    parser.HandleNextDocument(first);
    TreeBuilder second(file);
    if (parser.HandleNextDocument(second)) {
      throw Error(ErrorKind::kUsage, "holds more than one YAML document; keep one", file);
    }
    return first.take_root();
  } catch (const YAML::Exception& error) {
    fail(file, error.mark.line + 1, error.mark.column + 1, "not valid YAML: " + error.msg);
  }
}

}  // namespace rpeg
