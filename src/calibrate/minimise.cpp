#include "calibrate/minimise.h"

#include <algorithm>
#include <cmath>

namespace rpeg {
namespace {

constexpr int kMostRestarts = 10;
constexpr int kStepsPerDimension = 80;
// Spread of the simplex's values that ends a descent: relative, and for minima at 0 absolute.
constexpr double kFlat = 1e-9;
constexpr double kNothing = 1e-8;

struct Corner {
  std::vector<double> at;
  double value = 0.0;
};

/// from + factor · (to − from)
std::vector<double> along(const std::vector<double>& from,
                          const std::vector<double>& to,
                          double factor) {
  std::vector<double> result(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    result[i] = from[i] + factor * (to[i] - from[i]);
  }
  return result;
}

std::vector<double> centre_of_all_but_last(const std::vector<Corner>& simplex) {
  std::vector<double> centre(simplex.front().at.size(), 0.0);
  const auto count = static_cast<double>(simplex.size() - 1);
  for (std::size_t corner = 0; corner + 1 < simplex.size(); ++corner) {
    for (std::size_t i = 0; i < centre.size(); ++i) {
      centre[i] += simplex[corner].at[i] / count;
    }
  }
  return centre;
}

void sort(std::vector<Corner>& simplex) {
  std::stable_sort(simplex.begin(), simplex.end(), [](const Corner& a, const Corner& b) {
    return a.value < b.value;
  });
}

/// Replaces the worst corner, or shrinks towards the best.
void step(const Objective& objective, std::vector<Corner>& simplex) {
  const std::vector<double> centre = centre_of_all_but_last(simplex);
  Corner& worst = simplex.back();
  const auto corner = [&](double factor) {
    std::vector<double> at = along(centre, worst.at, factor);
    const double value = objective(at);
    return Corner{std::move(at), value};
  };
  const Corner reflected = corner(-1.0);
  if (reflected.value < simplex.front().value) {
    const Corner expanded = corner(-2.0);
    worst = expanded.value < reflected.value ? expanded : reflected;
  } else if (reflected.value < simplex[simplex.size() - 2].value) {
    worst = reflected;
  } else {
    const Corner contracted = corner(reflected.value < worst.value ? -0.5 : 0.5);
    if (contracted.value < std::min(reflected.value, worst.value)) {
      worst = contracted;
    } else {
      for (std::size_t i = 1; i < simplex.size(); ++i) {
        simplex[i].at = along(simplex.front().at, simplex[i].at, 0.5);
        simplex[i].value = objective(simplex[i].at);
      }
    }
  }
  sort(simplex);
}

Corner descend(const Objective& objective, const std::vector<double>& start, double edge) {
  std::vector<Corner> simplex(start.size() + 1, Corner{start, 0.0});
  for (std::size_t i = 0; i < start.size(); ++i) {
    simplex[i + 1].at[i] += edge;
  }
  for (Corner& corner : simplex) {
    corner.value = objective(corner.at);
  }
  sort(simplex);
  for (std::size_t i = 0; i < kStepsPerDimension * start.size(); ++i) {
    if (simplex.back().value - simplex.front().value <=
        kFlat * std::abs(simplex.front().value) + kNothing) {
      break;
    }
    step(objective, simplex);
  }
  return simplex.front();
}

}  // namespace

std::vector<double> minimise(const Objective& objective, std::vector<double> start, double edge) {
  Corner best{start, objective(start)};
  for (int restart = 0; restart < kMostRestarts; ++restart) {
    // Alternate the direction of the edges: a simplex that has collapsed opens up elsewhere.
    const Corner next = descend(objective, best.at, restart % 2 == 0 ? edge : -0.5 * edge);
    const double gain = best.value - next.value;
    const bool is_last = restart > 0 && gain <= 1e-6 * std::abs(best.value) + kNothing;
    if (next.value < best.value) {
      best = next;
    }
    if (is_last) {
      break;
    }
  }
  return best.at;
}

}  // namespace rpeg
