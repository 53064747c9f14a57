# The Paddle to build against: PADDLE_DIR if given, else that of the Python environment.
# Sets PADDLE_VERSION, PADDLE_COMMIT, PADDLE_INCLUDE, PADDLE_LIBS_DIR and PADDLE_LIBRARIES.
find_package(Python3 REQUIRED COMPONENTS Interpreter)

function(softipu_locate what result)
  execute_process(
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_SOURCE_DIR}/tools/locate.py" ${what} ${ARGN}
    OUTPUT_VARIABLE found ERROR_VARIABLE problem RESULT_VARIABLE status
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_STRIP_TRAILING_WHITESPACE)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${problem}")
  endif()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

softipu_locate(paddle PADDLE_FOUND ${PADDLE_DIR})
list(GET PADDLE_FOUND 0 PADDLE_PACKAGE)
list(GET PADDLE_FOUND 1 PADDLE_VERSION)
list(GET PADDLE_FOUND 2 PADDLE_COMMIT)
message(STATUS "Paddle ${PADDLE_VERSION} in ${PADDLE_PACKAGE}")

set(PADDLE_INCLUDE "${PADDLE_PACKAGE}/include")
set(PADDLE_LIBS_DIR "${PADDLE_PACKAGE}/libs")
set(PADDLE_LIBRARIES "")
foreach(name phi phi_core common)
  list(APPEND PADDLE_LIBRARIES "${PADDLE_LIBS_DIR}/lib${name}.so")
endforeach()

# ON_INFER: a C++ inference library that has Paddle's classes in it takes their place. The one that
# softipu makes has none: it runs the wheel, and so uses the plugin that is built without ON_INFER.
if(ON_INFER AND PADDLE_INFERENCE_LIB_DIR)
  find_library(PADDLE_INFERENCE_LIBRARY paddle_inference
    PATHS "${PADDLE_INFERENCE_LIB_DIR}" NO_DEFAULT_PATH REQUIRED)
  execute_process(
    COMMAND ${CMAKE_NM} -D --defined-only "${PADDLE_INFERENCE_LIBRARY}"
    COMMAND grep -q -m1 "3phi13KernelFactory8Instance"
    RESULT_VARIABLE lacks_phi)
  if(lacks_phi EQUAL 0)
    set(PADDLE_LIBRARIES "${PADDLE_INFERENCE_LIBRARY}")
    message(STATUS "Inference library: ${PADDLE_INFERENCE_LIBRARY}")
  else()
    message(STATUS "${PADDLE_INFERENCE_LIBRARY} runs the wheel: linking the wheel's libraries")
  endif()
elseif(ON_INFER)
  message(STATUS "ON_INFER without PADDLE_INFERENCE_LIB_DIR: inference uses the wheel's libraries")
endif()
