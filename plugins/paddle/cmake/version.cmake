# PLUGIN_VERSION (0.1.0) and PLUGIN_VERSION_NUMBER (100), from the one place that has it.
file(STRINGS "${CMAKE_SOURCE_DIR}/VERSION" PLUGIN_VERSION LIMIT_COUNT 1)
string(REPLACE "." ";" parts "${PLUGIN_VERSION}")
list(GET parts 0 major)
list(GET parts 1 minor)
list(GET parts 2 patch)
math(EXPR PLUGIN_VERSION_NUMBER "${major} * 10000 + ${minor} * 100 + ${patch}")
