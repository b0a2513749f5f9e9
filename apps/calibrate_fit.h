#pragma once

namespace rpeg::apps {

/// Whether the command line asks for a fit to files rather than for measuring this machine.
bool is_fit_requested(int argc, const char* const* argv);

/// rpeg-calibrate --fit-profile DIR: fits hw.yaml to measurements of others and reports the errors.
/// Needs neither MPI nor the machine that the file describes.
void fit_and_write(int argc, const char* const* argv);

}  // namespace rpeg::apps
