#include <fmt/format.h>

#include <algorithm>

#include "rpeg/calibrate/profile_fit.h"

namespace rpeg {
namespace {

std::string table(const std::vector<FitRow>& rows) {
  std::size_t what = 4;
  std::size_t model = 5;
  for (const FitRow& row : rows) {
    what = std::max(what, row.what.size());
    model = std::max(model, row.model.size());
  }
  std::string text =
      fmt::format("| {:<{}} | {:<{}} | group   | points | mean error | 95 % below |\n",
                  "part",
                  what,
                  "model",
                  model);
  text += fmt::format(
      "| {:-<{}} | {:-<{}} | ------- | -----: | ---------: | ---------: |\n", "", what, "", model);
  for (const FitRow& row : rows) {
    text += fmt::format("| {:<{}} | {:<{}} | {:<7} | {:>6} | {:>8.1f} % | {:>8.1f} % |\n",
                        row.what,
                        what,
                        row.model.empty() ? "all" : row.model,
                        model,
                        row.group.empty() ? "all" : row.group,
                        row.error.points,
                        100.0 * row.error.mean,
                        100.0 * row.error.p95);
  }
  return text;
}

}  // namespace

std::string fit_report(const ProfileFit& fit) {
  std::string text = "Errors are |fit - measured| / measured.\n\n" + table(fit.rows);
  if (!fit.left_out.empty()) {
    text += "\nEach model against a fit to the others:\n\n" + table(fit.left_out);
  }
  text +=
      "\nWere the other kernels of a layer the same seconds for every model "
      "(non_gemm_form: per_layer):\n\n" +
      table(fit.one_constant);
  return text;
}

}  // namespace rpeg
