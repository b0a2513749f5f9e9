#pragma once

/// Times of GPU kernels and collectives that somebody measured elsewhere and published as CSV, the
/// input of profile_fit.h. Layout: docs/calibration.md, "Fitting published measurements".

#include <filesystem>
#include <string>
#include <vector>

#include "rpeg/spec/model_spec.h"

namespace rpeg {

/// One transformer layer, forward, over `tokens` rows on one of `tp` GPUs.
struct LayerPoint {
  int tp = 1;
  double tokens = 0.0;
  double gemm_s = 0.0;      ///< the four matrix products: QKV, output, gate and up, down
  double non_gemm_s = 0.0;  ///< norms, residual sums, rotary embedding, gate; no attention
};

/// All points of one model, named after its file.
struct LayerMeasurements {
  std::string name;
  ModelSpec model;  ///< widths and heads; the number of layers is not known and 1
  std::vector<LayerPoint> points;
};

/// One collective, or one message.
struct MessagePoint {
  int ranks = 2;
  int ranks_per_node = 2;
  double bytes = 0.0;  ///< of the buffer of one rank
  double seconds = 0.0;
  bool is_in_one_node() const { return ranks_per_node == ranks; }
};

struct KernelMeasurements {
  std::vector<LayerMeasurements> models;  ///< by name
  std::vector<MessagePoint> all_reduce;
  std::vector<MessagePoint> send_recv;
  std::vector<std::filesystem::path> files;  ///< what was read
};

/// Reads `<gpu>_<model>.csv` for every model, `<gpu>_dgx_all_reduce.csv` and
/// `<gpu>_dgx_send_recv.csv` of a folder. Throws kUsage for a missing folder, file or column, and
/// for what is no positive number, with file and line.
KernelMeasurements load_kernel_measurements(const std::filesystem::path& folder,
                                            const std::string& gpu);

}  // namespace rpeg
