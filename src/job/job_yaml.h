#pragma once

#include <string_view>

namespace rpeg {

/// Start of run.yaml up to the digest of the content that follows.
inline constexpr std::string_view kJobHeader = "schema: rpeg-run/1\nunits: si\ndigest: \"";

}  // namespace rpeg
