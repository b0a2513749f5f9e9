#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rpeg {

/// A template taken apart: literal text and names of fields, in order.
struct TemplatePart {
  std::string text;  ///< the literal, or the name of the field
  bool is_field = false;
};

/// Parses "{field}" templates; "{{" and "}}" stand for braces. Throws kUsage, showing the place,
/// for a brace without its partner and for an empty name.
std::vector<TemplatePart> parse_template(std::string_view text);

}  // namespace rpeg
