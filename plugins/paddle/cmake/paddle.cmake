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

# ON_INFER: accepted since other backends of PaddleCustomDevice have it. Nothing is linked in place
# of the wheel's libraries: the C++ inference library that softipu makes runs the wheel, and the
# runtime would refuse one with Paddle's classes in it, which does not tell which Paddle it is.
if(ON_INFER)
  message(STATUS "ON_INFER: C++ inference uses the wheel's libraries, and this plugin as it is")
endif()
if(PADDLE_INFERENCE_LIB_DIR)
  message(WARNING "PADDLE_INFERENCE_LIB_DIR has no effect: no inference library is linked")
endif()
