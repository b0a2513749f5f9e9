#pragma once

namespace rpeg {

/// Goes before an mpirun command: Open MPI refuses root and more ranks than cores unless told
/// otherwise. Ends with a space.
inline constexpr const char* kMpiEnvironment =
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
    "OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 "
    "OMPI_MCA_hwloc_base_binding_policy=none ";

}  // namespace rpeg
