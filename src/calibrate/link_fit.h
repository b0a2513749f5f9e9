#pragma once

#include "rpeg/calibrate/profile_fit.h"

namespace rpeg {

/// Sets the links of all tiers from the messages measured, marks in `estimated` what they do not
/// tell and adds the rows of the report. Throws kUsage without messages inside a node.
void fit_links(const KernelMeasurements& data, const ProfileFitOptions& options, ProfileFit* fit);

}  // namespace rpeg
