// `minisgl cache ls`, `verify` and `clear`.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "minisgl/base/json.h"
#include "minisgl/store/kv_block_store.h"
#include "program/program.h"

namespace minisgl::cli {
namespace {

namespace fs = std::filesystem;

class CacheProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ProgramBinary().empty()) GTEST_SKIP() << "MINISGL_BINARY names no program";
    const auto store = OpenKvBlockFolder({.folder = Folder(),
                                          .max_bytes = 1 << 20,
                                          .identity = "wren",
                                          .model_name = "wren",
                                          .block_bytes = 1536});
    ASSERT_TRUE(store.ok()) << store.status().message();
    const std::vector<TokenId> tokens(3 * kKvBlockTokens, 7);
    const std::vector<KvBlockKey> keys = (*store)->Keys(tokens);
    const std::vector<std::byte> data(1536, std::byte{1});
    for (size_t i = 1; i <= keys.size(); ++i) {
      ASSERT_TRUE((*store)->Write(KvBlockPath(keys).first(i),
                                  std::span(tokens).first(kKvBlockTokens), data));
    }
  }
  std::string Folder() const { return folder_.Path("cache"); }
  ProgramResult Cache(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "cache");
    arguments.push_back(Folder());
    return RunProgram(arguments);
  }
  Json CacheJson(const std::string& command) const {
    const ProgramResult result = Cache({command, "--json"});
    EXPECT_EQ(result.err, "");
    Result<Json> json = ParseJson(result.out);
    EXPECT_TRUE(json.ok()) << result.out;
    return json.ok() ? std::move(json).value() : Json();
  }
  std::string FirstBlock() const {
    for (const auto& entry : fs::recursive_directory_iterator(Folder())) {
      if (entry.path().extension() == ".kv") return entry.path().string();
    }
    return "";
  }

  TemporaryFolder folder_;
};

TEST_F(CacheProgramTest, LsShowsModels) {
  const ProgramResult result = Cache({"ls"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_NE(result.out.find("wren            3         0           192     6.0 KiB  20"),
            std::string::npos)
      << result.out;
  const Json json = CacheJson("ls");
  ASSERT_EQ(json.Find("models")->as_array().size(), 1u);
  const Json& model = json.Find("models")->as_array()[0];
  EXPECT_EQ(*model.Find("model"), Json("wren"));
  EXPECT_EQ(*model.Find("blocks"), Json(3));
  EXPECT_EQ(*model.Find("tokens"), Json(192));
  EXPECT_EQ(*model.Find("bytes"), Json(3 * 2048));
  EXPECT_EQ(model.Find("last_use")->as_string().size(), std::string("2026-11-26T01:40:00Z").size());
  EXPECT_EQ(*json.Find("bytes"), Json(3 * 2048));
  EXPECT_EQ(*json.Find("states"), Json(0));
}

TEST_F(CacheProgramTest, StatesAreNamedWhereThereAreAny) {
  {
    const auto store = OpenKvBlockFolder({.folder = Folder(),
                                          .max_bytes = 1 << 20,
                                          .identity = "wren",
                                          .model_name = "wren",
                                          .block_bytes = 1536,
                                          .state_bytes = 512});
    ASSERT_TRUE(store.ok()) << store.status().message();
    const std::vector<TokenId> tokens(kKvBlockTokens, 7);
    ASSERT_TRUE((*store)->WriteState((*store)->Keys(tokens), tokens,
                                     std::vector<std::byte>(512, std::byte{1})));
  }
  EXPECT_NE(Cache({"ls"}).out.find("wren            3         1           192"), std::string::npos);
  EXPECT_EQ(*CacheJson("ls").Find("states"), Json(1));
  EXPECT_EQ(*CacheJson("verify").Find("states"), Json(1));
  EXPECT_EQ(Cache({"verify"}).out, "3 blocks, 1 state, 7.0 KiB: all good\n");
  EXPECT_EQ(Cache({"clear"}).out, "3 blocks, 1 state, 7.0 KiB: removed\n");
}

TEST_F(CacheProgramTest, VerifyNamesDamagedBlocks) {
  ProgramResult result = Cache({"verify"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "3 blocks, 6.0 KiB: all good\n");
  const std::string damaged = FirstBlock();
  ASSERT_EQ(truncate(damaged.c_str(), 1000), 0);
  result = Cache({"verify"});
  EXPECT_EQ(result.exit_code, 65) << result.err;
  EXPECT_EQ(result.out, damaged + ": is cut off, or too long\n3 blocks, 5.0 KiB: 1 damaged\n");
  EXPECT_EQ(CacheJson("verify").Find("damaged")->as_array().size(), 1u);
  result = Cache({"verify", "--delete"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_FALSE(fs::exists(damaged));
  result = Cache({"verify"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "2 blocks, 4.0 KiB: all good\n");
}

TEST_F(CacheProgramTest, ClearRemovesBlocks) {
  folder_.Write("cache/notes.txt", "mine");
  ProgramResult result = Cache({"clear"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "3 blocks, 6.0 KiB: removed\n" + Folder() +
                            "/notes.txt: left, because it is not a file of the cache\n");
  EXPECT_EQ(FirstBlock(), "");
  fs::remove(Folder() + "/notes.txt");
  result = Cache({"ls"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "the cache is empty\n");
  EXPECT_EQ(*CacheJson("clear").Find("blocks"), Json(0));
}

TEST_F(CacheProgramTest, WhatIsNoCacheIsRefused) {
  fs::remove_all(Folder());
  EXPECT_EQ(Cache({"ls"}).exit_code, 66);
  fs::create_directory(Folder());
  fs::permissions(Folder(), fs::perms::owner_all);
  folder_.Write("cache/notes.txt", "mine");
  const ProgramResult result = Cache({"clear"});
  EXPECT_EQ(result.exit_code, 65);
  EXPECT_EQ(result.err, "minisgl: " + Folder() +
                            ": is not a prefix cache (found notes.txt in it); nothing was done\n");
  EXPECT_EQ(RunProgram({"cache"}).exit_code, 64);
  EXPECT_EQ(RunProgram({"cache", "ls"}).exit_code, 64);
  EXPECT_EQ(RunProgram({"cache", "ls", "--delete", Folder()}).exit_code, 64);
}

}  // namespace
}  // namespace minisgl::cli
