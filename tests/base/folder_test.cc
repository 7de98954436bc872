// NamesIn: what a folder holds, in order.
#include "minisgl/base/folder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace minisgl {
namespace {

namespace fs = std::filesystem;

TEST(FolderTest, NamesAreSortedAndNothingElseIsThere) {
  std::string path = (fs::temp_directory_path() / "minisgl-folder-XXXXXX").string();
  ASSERT_NE(mkdtemp(path.data()), nullptr);
  for (const char* name : {"b", "a.json", ".hidden"}) std::ofstream(path + "/" + name) << name;
  fs::create_directory(path + "/c");
  EXPECT_EQ(NamesIn(path), (std::vector<std::string>{".hidden", "a.json", "b", "c"}));
  fs::remove_all(path);
  EXPECT_TRUE(NamesIn(path).empty());
}

}  // namespace
}  // namespace minisgl
