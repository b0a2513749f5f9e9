#pragma once

#include "rpeg/job/job.h"

namespace rpeg {

/// Checks the files that the job reads against the plan: config.json shapes, safetensors headers,
/// tokenizer and prompts. Takes over the numbers of config.json that only execution needs into
/// `inputs.models`, and fills `input_digests`. Throws kUsage listing every fault.
void verify_inputs(Job* job);

}  // namespace rpeg
