// Environment variables, read by the rules of softipu.settings: an empty one counts as unset, and a
// wrong value is an error that names the variable.
#pragma once

#include <optional>
#include <string>

namespace softipu {

// The text of a variable, or nothing if it is unset or empty.
std::optional<std::string> Setting(const char* name);

// 1, true, yes, on or their opposites.
bool FlagSetting(const char* name, bool otherwise);

// A number of seconds above 0.
double SecondsSetting(const char* name, double otherwise);

// A path with `~` and `~user` resolved, made absolute.
std::optional<std::string> PathSetting(const char* name);

// The user's home directory; nothing if neither HOME nor the system knows it.
std::optional<std::string> UserHome();

}  // namespace softipu
