// NamesIn: the names in a folder, in order.
#include "minisgl/base/folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "temporary_folder.h"

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

// A half downloaded snapshot has links to missing files.
TEST(FolderTest, ALinkToNothingIsListedAndSaid) {
  std::string path = (fs::temp_directory_path() / "minisgl-folder-XXXXXX").string();
  ASSERT_NE(mkdtemp(path.data()), nullptr);
  std::ofstream(path + "/file") << "text";
  fs::create_symlink("file", path + "/link");
  fs::create_symlink("../blobs/0123", path + "/dangling");
  for (const char* name : {"/file", "/link", ""}) {
    EXPECT_TRUE(IsListed(path + name)) << name;
    EXPECT_TRUE(CheckLink(path + name).ok()) << name;
  }
  EXPECT_TRUE(IsListed(path + "/dangling"));
  const Status status = CheckLink(path + "/dangling");
  EXPECT_EQ(status.code(), StatusCode::kNoInput);
  EXPECT_NE(status.message().find("symbolic link to ../blobs/0123, which is not there"),
            std::string::npos)
      << status.message();
  EXPECT_FALSE(IsListed(path + "/nothing"));
  EXPECT_FALSE(IsListed(path + "/file/below"));
  EXPECT_TRUE(CheckLink(path + "/nothing").ok());
  fs::remove_all(path);
}

TEST(FolderTest, AnOpenFolderIsListedAgainAndAgain) {
  const TemporaryFolder folder;
  folder.Write("b", "");
  folder.Write("a", "");
  const int fd = open(folder.Path(".").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(NamesIn(fd), (std::vector<std::string>{"a", "b"}));
  close(fd);
  EXPECT_TRUE(NamesIn(fd).empty());
}

}  // namespace
}  // namespace minisgl
