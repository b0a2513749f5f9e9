#pragma once

#include "rpeg/comm/comm.h"

namespace rpeg::test {

/// The claims that every implementation of Comm must meet; each is entered by all ranks of `comm`.
/// Failures are reported through GoogleTest.
void expect_predictable_sums(Comm& comm);
void expect_sums_in_rank_order(Comm& comm);
void expect_messages_in_order(Comm& comm);
/// reduce_scatter_sum and all_gather_chunks together are all_reduce_sum bit for bit.
void expect_all_reduce_in_two_halves(Comm& comm);
void expect_broadcast_from_every_root(Comm& comm);
/// ready() tells what is here; expect() changes neither order nor content.
void expect_announced_messages(Comm& comm);
void expect_uneven_all_gather(Comm& comm);
void expect_permuted_subgroups(Comm& comm);
void expect_barrier_waits_for_all(Comm& comm);
/// Leaves a barrier half entered: the last claim to make about a group.
void expect_timeout_text(Comm& comm);

}  // namespace rpeg::test
