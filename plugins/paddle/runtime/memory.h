// Device memory is host memory here. An allocation that the host cannot keep is refused at once:
// the kernel would grant it and kill the process later.
#pragma once

#include <cstddef>
#include <cstdint>

namespace softipu {

// Null if there is not enough memory; Paddle then frees what it cached and tries again.
void* AllocateMemory(size_t size);
void FreeMemory(void* memory);

// Bytes that the host (or the container) can still give.
uint64_t AvailableMemory();

}  // namespace softipu
