// The arithmetic of collective operations.
#pragma once

#include <cstddef>

#include "paddle/phi/backends/device_ext.h"

namespace softipu {

// Bytes of one number; 0 for types that collectives do not have.
size_t SizeOf(C_DataType type);

// to = to OP from, for SUM, MAX, MIN and PRODUCT; AVG adds up, and Divide makes the mean of it.
void Combine(C_DataType type, C_CCLReduceOp op, size_t count, const void* from, void* to);
void Divide(C_DataType type, size_t count, size_t by, void* numbers);

}  // namespace softipu
