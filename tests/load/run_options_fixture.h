// A test that parses the options of `run`.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "batch/run_options.h"

namespace minisgl::load {

class RunOptionsTest : public ::testing::Test {
 protected:
  // The error of parsing `arguments`; "" if they are right.
  std::string Parse(const std::vector<std::string>& arguments) {
    OptionTable app("test", "");
    options_ = batch::RunOptions();
    batch::AddRunOptions(&app, &options_);
    return app.Parse(arguments).status().message();
  }
  batch::RunOptions options_;
};

}  // namespace minisgl::load
