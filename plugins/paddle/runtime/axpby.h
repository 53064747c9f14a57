// y = alpha * x + beta * y, with which Paddle adds gradients up.
#pragma once

#include <cstddef>

#include "paddle/phi/backends/device_ext.h"

namespace softipu {

// False if there is no such arithmetic for the type.
bool Axpby(C_DataType type, size_t count, float alpha, const void* x, float beta, void* y);

}  // namespace softipu
