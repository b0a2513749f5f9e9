#pragma once

#include "runtime/context.h"

namespace rpeg {

/// Writes the trained models as Hugging Face directories below runtime.save_dir, if the job names
/// it: `actor` and `critic`; of a trunk that both share the actor with its language head and the
/// critic with its scalar head. Entered by all ranks: those of the first replica of a trained copy
/// send their shards to its leader, which puts the whole model together and writes it.
void save_models(const RankContext& context);

}  // namespace rpeg
