// Plain loops compiled once per instruction set; the right one is chosen when the library loads.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define SOFTIPU_VECTORISED \
  __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define SOFTIPU_VECTORISED
#endif
