// Marks the running case as one that may take more processor time than a case's budget
// (`run.sh --budget`), and says why.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace minisgl {

inline void MarkSlow(const std::string& reason) { testing::Test::RecordProperty("slow", reason); }

}  // namespace minisgl
