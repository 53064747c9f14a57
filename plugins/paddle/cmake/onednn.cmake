# oneDNN: the library inside Paddle's wheel, with headers from elsewhere, as the wheel has none. And
# libffi, with which kernels are called. Wheels for aarch64 have no oneDNN: Paddle's kernels serve.
find_path(FFI_INCLUDE ffi.h REQUIRED)
find_library(FFI_LIBRARY ffi REQUIRED)

set(ONEDNN_LIBRARY "")
file(GLOB onednn_found "${PADDLE_LIBS_DIR}/libdnnl.so*")
if(onednn_found AND NOT DEFINED SOFTIPU_ONEDNN OR SOFTIPU_ONEDNN)
  list(GET onednn_found 0 ONEDNN_LIBRARY)
  if(NOT ONEDNN_INCLUDE)
    softipu_locate(onednn ONEDNN_INCLUDE "${CMAKE_BINARY_DIR}")
  endif()
  add_compile_definitions(SOFTIPU_WITH_ONEDNN)
  message(STATUS "oneDNN: ${ONEDNN_LIBRARY}, headers in ${ONEDNN_INCLUDE}")
else()
  set(ONEDNN_INCLUDE "")
  message(STATUS "oneDNN: not used; Paddle's own CPU kernels do all the work")
endif()
