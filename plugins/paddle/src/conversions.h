// Arrays of half-precision numbers to float32 and back, rounded to nearest even.
#pragma once

#include <cstdint>

#include "paddle/phi/common/data_type.h"

namespace softipu {

// `type` is FLOAT16 or BFLOAT16.
void ToFloat(phi::DataType type, const void* from, float* to, int64_t count);
void FromFloat(phi::DataType type, const float* from, void* to, int64_t count);

}  // namespace softipu
