// Names of models, the hub's lists of files, and which files are chosen.
#include "hub/repository_files.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace minisgl::hub {
namespace {

const std::string kCommit = "0123456789abcdef0123456789abcdef01234567";
const std::string kHash(40, 'a');

std::vector<RepositoryFile> Files(const std::vector<std::string>& names) {
  std::vector<RepositoryFile> files;
  for (const std::string& name : names) files.push_back({name, kHash, 1});
  return files;
}

// The names that are chosen, with a space between two; or the error's message.
std::string Chosen(const std::vector<std::string>& names,
                   const std::vector<std::string>& patterns = {}) {
  const auto chosen = ChooseFiles(Files(names), patterns);
  if (!chosen.ok()) return chosen.status().message();
  std::string text;
  for (const RepositoryFile& file : *chosen) text += (text.empty() ? "" : " ") + file.name;
  return text;
}

TEST(RepositoryNameTest, ARevisionFollowsTheName) {
  Result<RepositoryName> name = ParseRepositoryName("Qwen/Qwen3-0.6B");
  ASSERT_TRUE(name.ok());
  EXPECT_EQ(name->Path(), "Qwen/Qwen3-0.6B");
  EXPECT_EQ(name->Folder(), "models--Qwen--Qwen3-0.6B");
  EXPECT_EQ(name->revision, "main");
  name = ParseRepositoryName("a/b@refs/pr/3");
  ASSERT_TRUE(name.ok());
  EXPECT_EQ(name->name, "b");
  EXPECT_EQ(name->revision, "refs/pr/3");
}

TEST(RepositoryNameTest, NamesThatCouldBePathsAreRefused) {
  for (const char* text : {"",        "a",        "/",          "a/",      "/b",     "a/b/c",
                           "../b",    "a/..",     ".",          "a/.",     "a--b/c", "a/b--c",
                           "a/b@",    "a/b@..",   "a/b@x/../y", "a/b@/x",  "a/b@x/", "a/b@.git",
                           "a/b@x y", "a/b@x\ny", "a/b@x%2e",   "a/b@x?y", "a b/c",  "a\\b/c"}) {
    const Result<RepositoryName> name = ParseRepositoryName(text);
    ASSERT_FALSE(name.ok()) << text;
    EXPECT_EQ(name.status().code(), StatusCode::kUsage);
  }
}

TEST(RepositoryListTest, FilesOfGitLfsHaveTheirSha256) {
  const std::string sha256(64, 'b');
  const auto list = ParseRepositoryList(R"({"sha": ")" + kCommit + R"(", "siblings": [
        {"rfilename": "config.json", "size": 7, "blobId": ")" +
                                        kHash + R"("},
        {"rfilename": "model.safetensors", "size": 130, "blobId": ")" +
                                        kHash + R"(", "lfs": {"sha256": ")" + sha256 +
                                        R"(", "size": 9000000000, "pointerSize": 130}},
        {"rfilename": "without"}]})");
  ASSERT_TRUE(list.ok()) << list.status().message();
  EXPECT_EQ(list->commit, kCommit);
  ASSERT_EQ(list->files.size(), 3u);
  EXPECT_EQ(list->files[0].hash, kHash);
  EXPECT_EQ(list->files[0].num_bytes, 7u);
  EXPECT_EQ(list->files[1].hash, sha256);
  EXPECT_EQ(list->files[1].num_bytes, 9'000'000'000u);
  EXPECT_EQ(list->files[2].hash, "");
}

TEST(RepositoryListTest, EachFaultIsNamed) {
  const auto message = [](const std::string& siblings) {
    const auto list =
        ParseRepositoryList(R"({"sha": ")" + kCommit + R"(", "siblings": )" + siblings + "}");
    EXPECT_EQ(list.status().code(), StatusCode::kBadInput);
    return list.status().message();
  };
  EXPECT_NE(message("{}").find("siblings is not an array"), std::string::npos);
  EXPECT_NE(message("[7]").find("siblings[0]: has no string rfilename"), std::string::npos);
  EXPECT_NE(message(R"([{"rfilename": "a"}, {"rfilename": "a"}])").find("twice"),
            std::string::npos);
  EXPECT_NE(message(R"([{"rfilename": "a", "size": 1, "blobId": "../x"}])").find("no hash"),
            std::string::npos);
  for (const char* size : {"-1", "1.5", "18446744073709551615", "\"1\"", "1e3"}) {
    const std::string text =
        message(R"([{"rfilename": "a", "blobId": ")" + kHash + R"(", "size": )" + size + "}]");
    EXPECT_NE(text.find("size is no number of bytes"), std::string::npos) << text;
  }
  EXPECT_FALSE(ParseRepositoryList(R"({"sha": "main", "siblings": []})").ok());
  EXPECT_FALSE(ParseRepositoryList("").ok());
}

TEST(ChooseFilesTest, AModelNeedsItsTextsAndItsWeightsOnce) {
  EXPECT_EQ(
      Chosen({".gitattributes", "README.md", "config.json", "model.safetensors",
              "model.fp16.safetensors", "consolidated.safetensors", "model.safetensors.index.json",
              "pytorch_model.bin", "merges.txt", "flax_model.msgpack.index.json", "onnx/model.onnx",
              "sub/config.json", "tokenizer.model", "chat_template.jinja", "modeling_x.py"}),
      "config.json merges.txt tokenizer.model chat_template.jinja model.safetensors");
  // The modules of a model of vectors stand in folders of their own.
  EXPECT_EQ(Chosen({"config.json", "model.safetensors", "modules.json", "1_Pooling/config.json",
                    "2_Dense/model.safetensors", "2_Dense/pytorch_model.bin", "onnx/config.json",
                    "_x/config.json", "1/config.json", "1_a/b/config.json"}),
            "config.json modules.json 1_Pooling/config.json 2_Dense/model.safetensors "
            "model.safetensors");
  EXPECT_EQ(Chosen({"a.safetensors", "config.json", "b.safetensors"}),
            "config.json a.safetensors b.safetensors");
  EXPECT_NE(Chosen({"config.json", "model.gguf"}).find("no safetensors"), std::string::npos);
}

TEST(ChooseFilesTest, AnAdapterNeedsTwoFiles) {
  const std::vector<std::string> files = {"README.md", "adapter_config.json",
                                          "adapter_model.safetensors", "optimizer.safetensors",
                                          "tokenizer.json"};
  EXPECT_EQ(Chosen(files), "adapter_config.json adapter_model.safetensors");
  // Beside a model it is not what is wanted.
  auto both = files;
  both.insert(both.end(), {"config.json", "model.safetensors"});
  EXPECT_EQ(Chosen(both), "adapter_config.json tokenizer.json config.json model.safetensors");
}

TEST(ChooseFilesTest, PatternsChooseAnyFiles) {
  const std::vector<std::string> names = {"config.json", "a-Q4_K_M.gguf", "sub/a-Q8_0.gguf"};
  EXPECT_EQ(Chosen(names, {"*.gguf"}), "a-Q4_K_M.gguf sub/a-Q8_0.gguf");
  EXPECT_EQ(Chosen(names, {"*Q4*", "config.json"}), "config.json a-Q4_K_M.gguf");
  EXPECT_NE(Chosen(names, {"*.bin"}).find("no file matches"), std::string::npos);
}

// A bad name matters only if the file is chosen: repositories have files of any names.
TEST(ChooseFilesTest, HostileNamesAreRefusedIfTheyAreChosen) {
  for (const std::string name :
       {"../config.json", "/config.json", "a/../b.json", "a//b.json", "./b.json", "b.json/",
        "a\nb.json", "a\x1b[1mb.json", "a\\b.json", "\xff.json", "\u202e.json", ""}) {
    EXPECT_EQ(CheckFileName(name).code(), StatusCode::kBadInput) << name;
    EXPECT_NE(Chosen({"model.safetensors", name}, {"*"}).find("is not accepted"), std::string::npos)
        << name;
  }
  EXPECT_EQ(Chosen({"model.safetensors", "../config.json"}), "model.safetensors");
  EXPECT_TRUE(CheckFileName("tok\u00e9n izer..json").ok());
}

TEST(KeepShardsTest, OnlyShardsOfTheIndexStay) {
  std::vector<RepositoryFile> files =
      Files({"config.json", "model-1.safetensors", "consolidated.safetensors"});
  weights::ShardIndex index;
  index.shards = {"model-1.safetensors"};
  ASSERT_TRUE(KeepShards(index, &files).ok());
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[1].name, "model-1.safetensors");
  index.shards.insert("model-2.safetensors");
  EXPECT_EQ(KeepShards(index, &files).code(), StatusCode::kBadInput);
}

}  // namespace
}  // namespace minisgl::hub
