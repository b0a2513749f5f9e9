#pragma once

#include <string>
#include <string_view>

namespace rpeg {

/// Unicode normalisation form C of valid UTF-8 (Unicode standard annex 15), with the tables of
/// Unicode 9, which the reference tokenizers use.
std::string to_nfc(std::string_view text);

}  // namespace rpeg
