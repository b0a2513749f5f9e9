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

# oneDNN: matrix products of the CPU kernels, with Eigen where it is absent. Its own package file asks
# for OpenCL's headers; its C header and library need none.
set(RPEG_WITH_ONEDNN AUTO CACHE STRING "Matrix products by oneDNN: AUTO (where found), ON or OFF")
set_property(CACHE RPEG_WITH_ONEDNN PROPERTY STRINGS AUTO ON OFF)
set(RPEG_ONEDNN_FOUND FALSE)
if(RPEG_WITH_MPI AND NOT RPEG_WITH_ONEDNN STREQUAL "OFF")
  find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.h)
  find_library(DNNL_LIBRARY dnnl)
  find_package(OpenMP COMPONENTS CXX)
  if(DNNL_INCLUDE_DIR AND DNNL_LIBRARY AND OpenMP_CXX_FOUND)
    set(RPEG_ONEDNN_FOUND TRUE)
    add_library(rpeg_onednn INTERFACE)
    target_include_directories(rpeg_onednn SYSTEM INTERFACE ${DNNL_INCLUDE_DIR})
    # OpenMP's library alone, for the number of threads: its compiler flag would make Eigen parallel.
    target_link_libraries(rpeg_onednn INTERFACE ${DNNL_LIBRARY} ${OpenMP_CXX_LIBRARIES})
  elseif(RPEG_WITH_ONEDNN STREQUAL "ON")
    message(FATAL_ERROR "RPEG_WITH_ONEDNN=ON, but oneDNN (Debian: libdnnl-dev) or OpenMP was not found")
  endif()
endif()
message(STATUS "Matrix products: oneDNN ${RPEG_ONEDNN_FOUND} (RPEG_WITH_ONEDNN=${RPEG_WITH_ONEDNN})")
