#pragma once

namespace rpeg::apps {

/// Whether the command line asks to fold what a run observed into a hw.yaml rather than for
/// measuring this machine.
bool is_fold_requested(int argc, const char* const* argv);

/// rpeg-calibrate --observed observed.yaml --hw hw.yaml --output new.yaml: multiplies the factors
/// of a run into the `observed` block of hw.yaml. Needs no MPI.
void fold_and_write(int argc, const char* const* argv);

}  // namespace rpeg::apps
