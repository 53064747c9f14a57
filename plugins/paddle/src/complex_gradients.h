// Gradients of real tensors from complex arithmetic (eig, matmul of real and complex, kron …).
//
// Such a gradient comes out complex, and Paddle's autograd takes its real part with a function of
// its own, not a kernel. That function knows the CPU's place and GPUs' and refuses any other.
#pragma once

namespace softipu {

// Makes that function work for tensors of the device. Where Paddle's library isn't loaded, as in
// C++ inference, or is linked in another way, nothing changes: Paddle's own error stays.
void TakeRealPartsOnDevice();

}  // namespace softipu
