# Every third-party package of the project; all are in Debian 12+ and Ubuntu 22.04+ (scripts/install_deps.sh).
find_package(Threads REQUIRED)
find_package(yaml-cpp REQUIRED CONFIG)
find_package(CLI11 REQUIRED CONFIG)
find_package(fmt REQUIRED CONFIG)
find_package(spdlog REQUIRED CONFIG)
find_package(Eigen3 3.4 REQUIRED CONFIG NO_MODULE)
find_package(nlohmann_json REQUIRED CONFIG)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(CAIRO REQUIRED IMPORTED_TARGET cairo cairo-pdf)
pkg_check_modules(GVC REQUIRED IMPORTED_TARGET libgvc)
if(RPEG_WITH_MPI)
  find_package(MPI 3.1 REQUIRED COMPONENTS CXX)
  # The C++ bindings of MPI-2 are not used; their headers do not pass our warnings.
  set_property(TARGET MPI::MPI_CXX APPEND PROPERTY INTERFACE_COMPILE_DEFINITIONS
               OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
endif()
