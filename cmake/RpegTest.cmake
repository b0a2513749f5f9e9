# rpeg_unit_test(<module> <sources...>): one binary rpeg_unit_<module>, one ctest entry per TEST, label "unit".
include(GoogleTest)
add_custom_target(rpeg_unit_tests)
function(rpeg_unit_test module)
  if(NOT ARGN)
    return()
  endif()
  set(target rpeg_unit_${module})
  add_executable(${target} ${ARGN})
  rpeg_configure_target(${target})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${target} PRIVATE rpeg fmt::fmt Eigen3::Eigen nlohmann_json::nlohmann_json
                        GTest::gmock GTest::gtest_main)
  target_compile_definitions(${target} PRIVATE RPEG_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                             RPEG_BINARY_DIR="${CMAKE_BINARY_DIR}")
  add_dependencies(rpeg_unit_tests ${target})
  gtest_discover_tests(${target} TEST_PREFIX "${module}." DISCOVERY_TIMEOUT 60
                       PROPERTIES LABELS unit TIMEOUT 240
                       ENVIRONMENT "LSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/support/lsan.supp:print_suppressions=0")
endfunction()

# rpeg_slow_test(<module> <sources...>): one binary rpeg_slow_<module>, one test with the label "slow".
function(rpeg_slow_test module)
  set(target rpeg_slow_${module})
  add_executable(${target} ${ARGN})
  rpeg_configure_target(${target})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${target} PRIVATE rpeg fmt::fmt GTest::gmock GTest::gtest_main)
  add_test(NAME slow.${module} COMMAND ${target})
  set_tests_properties(slow.${module} PROPERTIES LABELS slow TIMEOUT 3600)
endfunction()
