# The one place where compiler flags are set.
find_program(RPEG_CCACHE ccache)
if(RPEG_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${RPEG_CCACHE})
endif()

function(rpeg_configure_target target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor -Woverloaded-virtual
    -Wcast-qual -Wundef)
  if(RPEG_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(RPEG_NATIVE)
    target_compile_options(${target} PRIVATE -march=native)
    # GCC 12 with AVX-512 copies the constant {1.0, 1.0, 0.0, 0.0} as {1.0, 1.0, 1.0, 1.0}: it takes
    # the trimmed zeros of a 32-byte integer constant for repetitions. This keeps its own moves and
    # loops to 16 bytes, which are not affected; intrinsics (Eigen's) stay as wide as they are.
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|amd64|AMD64")
      target_compile_options(${target} PRIVATE -mprefer-vector-width=128)
    endif()
  endif()
  if(RPEG_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${RPEG_SANITIZE} -fno-omit-frame-pointer
                           -fno-sanitize-recover=all)
    target_link_options(${target} PUBLIC -fsanitize=${RPEG_SANITIZE})
  endif()
endfunction()
