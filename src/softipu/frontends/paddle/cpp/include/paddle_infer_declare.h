// What every header here needs: marks what the library exports.
//
// Paddle's own library, which this one loads, has classes of the same names. The inline namespace
// softipu_api in the headers keeps the linker from mixing them up; programs don't see it.
#pragma once

#define PD_INFER_DECL __attribute__((visibility("default")))
