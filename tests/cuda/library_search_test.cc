// Where a library is searched, in a temporary folder that stands for the root.
#include "library_search.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "temporary_folder.h"

namespace minisgl::cuda {
namespace {

using Names = std::vector<std::string>;

const std::string kSonames[] = {"libx.so.13", "libx.so.12"};

class LibrarySearchTest : public ::testing::Test {
 protected:
  // Makes an empty file and the folders above it; returns its path.
  std::string Put(const std::string& name) {
    std::filesystem::create_directories(std::filesystem::path(folder_.Path(name)).parent_path());
    return folder_.Write(name, "");
  }
  // The names after the bare ones.
  Names Found(SearchPlaces places) {
    places.root = folder_.Path("root");
    const LibraryNames found = FindLibrary(places, kSonames);
    EXPECT_GE(found.names.size(), 2u);
    EXPECT_EQ(found.names[0], kSonames[0]);
    EXPECT_EQ(found.names[1], kSonames[1]);
    return {found.names.begin() + 2, found.names.end()};
  }

  TemporaryFolder folder_;
};

TEST_F(LibrarySearchTest, WithoutFilesOnlyTheLoadersFoldersAreLeft) {
  EXPECT_EQ(Found({}), Names());
}

TEST_F(LibrarySearchTest, FindsToolkits) {
  const std::string new_lib = Put("root/usr/local/cuda-13.1/lib64/libx.so.13");
  const std::string older_lib = Put("root/usr/local/cuda-13.0/lib64/libx.so.13");
  const std::string old_lib = Put("root/usr/local/cuda-12.4/targets/x86_64-linux/lib/libx.so.12");
  const std::string opt_lib = Put("root/opt/cuda/lib64/libx.so.13");
  Put("root/usr/local/cuda-13.1/lib64/libx.so.14");
  Put("root/usr/local/cuda-13.1/lib64/stubs/libx.so.13");
  EXPECT_EQ(Found({}), (Names{new_lib, older_lib, opt_lib, old_lib}));
}

TEST_F(LibrarySearchTest, AToolkitThatIsNamedComesFirst) {
  const std::string usual = Put("root/usr/local/cuda/lib64/libx.so.13");
  const std::string home = Put("home/lib64/libx.so.13"), path = Put("path/lib/libx.so.13");
  EXPECT_EQ(Found({.cuda_home = folder_.Path("home"), .cuda_path = folder_.Path("path")}),
            (Names{home, path, usual}));
}

TEST_F(LibrarySearchTest, FindsPackagesOfPython) {
  const std::string venv = Put("venv/lib/python3.12/site-packages/nvidia/cu13/lib/libx.so.13");
  const std::string conda = Put("conda/lib/python3.11/site-packages/nvidia/cublas/lib/libx.so.13");
  const std::string conda_lib = Put("conda/lib/libx.so.13");
  const std::string first = Put("a/lib/python3.12/site-packages/nvidia/cublas/lib/libx.so.12");
  const std::string second = Put("b/lib/python3.11/dist-packages/nvidia/cu13/lib/libx.so.13");
  Put("c/lib/python3.11/site-packages/nvidia/cu13/lib/libx.so.13");  // c is not in PATH
  EXPECT_EQ(Found({.virtual_env = folder_.Path("venv"),
                   .conda_prefix = folder_.Path("conda"),
                   .path = folder_.Path("a/bin") + ":" + folder_.Path("c") +
                           "::" + folder_.Path("b/bin/") + ":" + folder_.Path("venv/bin")}),
            (Names{conda_lib, venv, conda, second, first}));
}

TEST_F(LibrarySearchTest, AFileOfSeveralNamesIsTriedOnce) {
  const std::string file = Put("root/usr/local/cuda-13.0/targets/x/lib/libx.so.13.0.1");
  std::filesystem::create_symlink(
      "libx.so.13.0.1", folder_.Path("root/usr/local/cuda-13.0/targets/x/lib/libx.so.13"));
  std::filesystem::create_symlink("targets/x/lib", folder_.Path("root/usr/local/cuda-13.0/lib64"));
  std::filesystem::create_symlink("cuda-13.0", folder_.Path("root/usr/local/cuda"));
  // Dangling links are no files.
  std::filesystem::create_symlink("nowhere", folder_.Path("root/usr/local/cuda-13.0/lib"));
  EXPECT_EQ(Found({}), Names{folder_.Path("root/usr/local/cuda/lib64/libx.so.13")});
}

TEST_F(LibrarySearchTest, NamesAreNotWildcards) {
  const std::string odd = Put("odd[1]*/lib64/libx.so.13");
  Put("odd1x/lib64/libx.so.13");
  EXPECT_EQ(Found({.cuda_home = folder_.Path("odd[1]*")}), Names{odd});
}

TEST_F(LibrarySearchTest, RelativeFoldersAreLeftOut) {
  const LibraryNames found = FindLibrary({.root = folder_.Path("root"),
                                          .cuda_home = "here",
                                          .virtual_env = ".",
                                          .path = "bin:./bin:."},
                                         kSonames);
  EXPECT_EQ(found.folders.find("here"), std::string::npos) << found.folders;
  EXPECT_EQ(found.folders.find("python"), std::string::npos) << found.folders;
}

TEST_F(LibrarySearchTest, SaysWhereItSearched) {
  const LibraryNames found = FindLibrary(
      {.root = "/r", .cuda_home = "/h", .virtual_env = "/v", .path = "/v/bin:/p/bin"}, kSonames);
  for (const char* const part :
       {"/h/{lib64,lib,targets/*/lib}", "/r/usr/local/cuda-*/{lib64,lib,targets/*/lib}",
        "/v/lib/python*/{site,dist}-packages/nvidia/*/lib", "/p/lib/python*/"}) {
    EXPECT_NE(found.folders.find(part), std::string::npos) << part << " in " << found.folders;
  }
  const std::string venv = "/v/lib/python*/";  // once, although it is in PATH too
  EXPECT_EQ(found.folders.find(venv), found.folders.rfind(venv)) << found.folders;
}

TEST(UsableMajorsTest, NoLibraryIsNewerThanTheDriver) {
  EXPECT_EQ(UsableMajors(13000, 13), (std::vector<int>{13, 12}));
  EXPECT_EQ(UsableMajors(13020, 12), (std::vector<int>{12, 13}));
  EXPECT_EQ(UsableMajors(12040, 12), (std::vector<int>{12}));
  EXPECT_EQ(UsableMajors(12040, 13), (std::vector<int>{12}));
  EXPECT_EQ(UsableMajors(14000, 14), (std::vector<int>{14, 13, 12}));
  EXPECT_EQ(UsableMajors(11080, 12), std::vector<int>());
}

}  // namespace
}  // namespace minisgl::cuda
