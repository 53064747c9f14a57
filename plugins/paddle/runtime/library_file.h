// A library that is cut short must not be opened: the loader would map what is not there, and the
// process would die of it.
#pragma once

#include <string>

namespace softipu {

// Whether a file is a shared library with all its parts; what kind of code is in it, dlopen tells.
bool IsWholeLibrary(const std::string& path);

}  // namespace softipu
