#include "mpi_main.h"

#include <gtest/gtest.h>

#include <memory>

#include "rpeg/base/error.h"
#include "rpeg/comm/mpi.h"

namespace rpeg::test {
namespace {

std::unique_ptr<Comm> world_comm;

}  // namespace

Comm& world() {
  check(world_comm != nullptr, "the world exists while tests run");
  return *world_comm;
}

}  // namespace rpeg::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  rpeg::MpiSession session;
  // Small pieces: the tests' messages exercise those that MPI cannot carry in one call.
  rpeg::test::world_comm = session.world(100'000);
  rpeg::test::world_comm->set_timeout(20.0);
  const int failed = RUN_ALL_TESTS();
  if (failed != 0) {
    session.abort(failed);  // other ranks may wait for this one
  }
  rpeg::test::world_comm.reset();
  return 0;
}
