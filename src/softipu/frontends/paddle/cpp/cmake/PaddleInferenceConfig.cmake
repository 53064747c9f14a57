# find_package(PaddleInference REQUIRED PATHS <prefix>) defines the target PaddleInference::paddle_inference.
get_filename_component(_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET PaddleInference::paddle_inference)
  add_library(PaddleInference::paddle_inference SHARED IMPORTED)
  set_target_properties(PaddleInference::paddle_inference PROPERTIES
    IMPORTED_LOCATION "${_prefix}/paddle/lib/libpaddle_inference.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_prefix}/paddle/include")
endif()

set(PADDLE_INFERENCE_INCLUDE_DIRS "${_prefix}/paddle/include")
set(PADDLE_INFERENCE_LIBRARIES PaddleInference::paddle_inference)
foreach(_part gflags glog)
  if(EXISTS "${_prefix}/third_party/install/${_part}/include")
    list(APPEND PADDLE_INFERENCE_INCLUDE_DIRS "${_prefix}/third_party/install/${_part}/include")
  endif()
endforeach()
unset(_prefix)
