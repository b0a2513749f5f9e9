#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rpeg {

/// Returns the candidate with the least edit distance to `word` if it is close enough to be a
/// likely slip of the pen (distance at most a third of the word, at least 1), else "".
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// Returns the program's version, e.g. "0.1.0".
std::string version();

}  // namespace rpeg
