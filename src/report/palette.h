#pragma once

#include <array>
#include <cstddef>

namespace rpeg::report {

struct Colour {
  double red = 0.0;
  double green = 0.0;
  double blue = 0.0;
};

/// The colour of a vertex, the same in every plot (Okabe and Ito's palette, lightened so that black
/// text stays legible on it).
inline Colour vertex_colour(std::size_t vertex) {
  constexpr std::array<Colour, 7> kColours{{{0.55, 0.80, 0.95},
                                            {0.98, 0.78, 0.40},
                                            {0.50, 0.83, 0.70},
                                            {0.97, 0.93, 0.55},
                                            {0.88, 0.67, 0.82},
                                            {0.93, 0.60, 0.45},
                                            {0.60, 0.70, 0.90}}};
  return kColours[vertex % kColours.size()];
}

}  // namespace rpeg::report
