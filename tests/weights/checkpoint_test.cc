// Model directories: one file, shards, what people have in place of them, and every way an index
// can lie.
#include "minisgl/weights/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "minisgl/weights/model_config.h"
#include "slow.h"
#include "test_files.h"

namespace minisgl {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexName = "model.safetensors.index.json";

// A file that holds one byte tensor for each name.
std::string Shard(const std::vector<std::string>& names) {
  std::string header;
  for (size_t i = 0; i < names.size(); ++i) {
    header += fmt::format("{}{}", i == 0 ? "" : ",",
                          EntryText(names[i], "U8", "[1]", fmt::format("[{},{}]", i, i + 1)));
  }
  return FileBytes("{" + header + "}", std::string(names.size(), 'd'));
}

// A directory whose index is `weight_map` (JSON text), beside shard-1 (a, b) and shard-2 (c).
void WriteSharded(const TempDir& dir, const std::string& weight_map) {
  dir.Write("shard-1.safetensors", Shard({"a", "b"}));
  dir.Write("shard-2.safetensors", Shard({"c"}));
  dir.Write(kIndexName, R"({"metadata":{"total_size":3},"weight_map":)" + weight_map + "}");
}

constexpr const char* kGoodMap =
    R"({"a":"shard-1.safetensors","b":"shard-1.safetensors","c":"shard-2.safetensors"})";

Status OpenStatus(const std::string& model_dir) {
  const auto checkpoint = Checkpoint::Open(model_dir);
  return checkpoint.status();
}

TEST(CheckpointTest, OpensTheDemoModel) {
  const auto opened = Checkpoint::Open(MINISGL_SOURCE_DIR "/tests/models/wren");
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const Checkpoint& checkpoint = **opened;
  const std::vector<std::string> names = checkpoint.Names();
  EXPECT_EQ(names.size(), 6u * 9 + 2);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  const auto embedding = checkpoint.Get("model.embed_tokens.weight");
  ASSERT_TRUE(embedding.ok());
  EXPECT_EQ(embedding->shape, (std::vector<int64_t>{2048, 256}));
  EXPECT_EQ(embedding->dtype, DType::kBF16);
  EXPECT_TRUE(checkpoint.Has("model.norm.weight"));
  EXPECT_FALSE(checkpoint.Has("lm_head.weight"));
  uint64_t bytes = 0;
  for (const std::string& name : names) bytes += checkpoint.Get(name)->num_bytes();
  EXPECT_EQ(checkpoint.total_bytes(), bytes);
}

TEST(CheckpointTest, NamesTheFilesThatHoldItsTensors) {
  const auto sharded = Checkpoint::Open(MINISGL_SOURCE_DIR "/tests/golden/models/f16_sharded");
  ASSERT_TRUE(sharded.ok()) << sharded.status().message();
  const std::vector<const MappedFile*> files = (*sharded)->Files();
  ASSERT_EQ(files.size(), 3u);
  EXPECT_TRUE(files[0]->path().ends_with("model-00001-of-00003.safetensors"));
  for (const MappedFile* file : files) {
    EXPECT_EQ(file->stamp(), StampOf(file->path()));
    EXPECT_EQ(file->stamp().num_bytes, file->bytes().size());
  }
  EXPECT_TRUE(Checkpoint::FromViews({}, nullptr, "memory")->Files().empty());
}

TEST(CheckpointTest, EachTensorsBytesAreOfItsLayerOrOfNone) {
  const auto opened = Checkpoint::Open(MINISGL_SOURCE_DIR "/tests/models/wren");
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  uint64_t sum = 0;
  for (int32_t layer = -1; layer < 6; ++layer) {
    const std::vector<std::span<const std::byte>> parts = (*opened)->BytesOfLayer(layer);
    EXPECT_TRUE(std::is_sorted(parts.begin(), parts.end(), [](const auto& a, const auto& b) {
      return std::less<>()(a.data(), b.data());
    }));
    for (const auto& part : parts) sum += part.size();
  }
  EXPECT_EQ(sum, (*opened)->total_bytes());
  const auto parts = (*opened)->BytesOfLayer(3);
  EXPECT_EQ(parts.size(), 9u);
  const auto down = (*opened)->Get("model.layers.3.mlp.down_proj.weight");
  ASSERT_TRUE(down.ok());
  EXPECT_EQ(std::count_if(parts.begin(), parts.end(),
                          [&](const auto& part) {
                            return part.data() == down->data && part.size() == down->num_bytes();
                          }),
            1);
  EXPECT_TRUE((*opened)->BytesOfLayer(6).empty());
}

TEST(CheckpointTest, OpensAShardedModel) {
  const auto opened = Checkpoint::Open(MINISGL_SOURCE_DIR "/tests/golden/models/f16_sharded");
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const Checkpoint& checkpoint = **opened;
  EXPECT_EQ(checkpoint.Names().size(), 2u * 9 + 3);
  EXPECT_TRUE(checkpoint.FileOf("lm_head.weight").ends_with("model-00001-of-00003.safetensors"));
  EXPECT_TRUE(checkpoint.FileOf("model.norm.weight").ends_with("model-00003-of-00003.safetensors"));
  EXPECT_EQ(checkpoint.FileOf("model.nothing"), "");
  EXPECT_EQ(checkpoint.Get("lm_head.weight")->dtype, DType::kF16);
}

TEST(CheckpointTest, ReadsValuesAtOddAddresses) {
  const float values[2] = {3.25f, -1e-20f};
  std::string data = "x";
  data.append(reinterpret_cast<const char*>(values), sizeof values);
  TempDir dir;
  dir.Write("model.safetensors", FileBytes("{" + EntryText("pad", "U8", "[1]", "[0,1]") + "," +
                                               EntryText("t", "F32", "[2]", "[1,9]") + "}",
                                           data));
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const auto view = (*checkpoint)->Get("t");
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->At(0), 3.25f);
  EXPECT_EQ(view->At(1), -1e-20f);
}

TEST(CheckpointTest, GetNamesTheTensorItCannotGive) {
  TempDir dir;
  dir.Write("model.safetensors", Shard({"a"}));
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok());
  ExpectError((*checkpoint)->Get("a").status(), StatusCode::kBadInput, "\"a\" has dtype U8");
  ExpectError((*checkpoint)->Get("b").status(), StatusCode::kBadInput, "no tensor \"b\"");
  ExpectError((*checkpoint)->Get("b").status(), StatusCode::kBadInput, "model.safetensors");
}

TEST(CheckpointTest, OneFileOfAnotherNameWillDo) {
  TempDir dir;
  dir.Write("tiny-f16.safetensors", Shard({"a"}));
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_TRUE((*checkpoint)->Has("a"));
}

TEST(CheckpointTest, TheSingleFileGoesBeforeTheIndex) {
  TempDir dir;
  WriteSharded(dir, kGoodMap);
  dir.Write("model.safetensors", Shard({"whole"}));
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ((*checkpoint)->Names(), std::vector<std::string>{"whole"});
}

TEST(CheckpointTest, SymbolicLinksAreFollowed) {
  TempDir blobs, dir;
  blobs.Write("0123", Shard({"a"}));
  fs::create_symlink(blobs.File("0123"), dir.File("model.safetensors"));
  EXPECT_TRUE(OpenStatus(dir.path()).ok());
  TempDir dangling;
  fs::create_symlink(blobs.File("missing"), dangling.File("model.safetensors"));
  ExpectError(OpenStatus(dangling.path()), StatusCode::kNoInput,
              "model.safetensors: is a symbolic link to");
}

TEST(CheckpointTest, DanglingLinksAreSaidWhateverElseIsThere) {
  TempDir index;
  index.Write("model.safetensors", Shard({"a"}));
  fs::create_symlink("../blobs/0123", index.File(kIndexName));
  ExpectError(OpenStatus(index.path()), StatusCode::kNoInput,
              "index.json: is a symbolic link to ../blobs/0123, which is not there");
  TempDir shard;
  WriteSharded(shard, kGoodMap);
  fs::remove(shard.File("shard-2.safetensors"));
  fs::create_symlink("../blobs/0123", shard.File("shard-2.safetensors"));
  ExpectError(OpenStatus(shard.path()), StatusCode::kBadInput,
              "shard-2.safetensors: is a symbolic link to");
  TempDir config;
  fs::create_symlink("../blobs/0123", config.File("config.json"));
  ExpectError(LoadModelConfig(config.path()).status(), StatusCode::kNoInput,
              "config.json: is a symbolic link to");
  fs::create_symlink("../blobs/0123", config.File("generation_config.json"));
  ExpectError(LoadGenerationConfig(config.path(), 100).status(), StatusCode::kNoInput,
              "generation_config.json: is a symbolic link to");
}

// The leftover of a download, in place of a shard or beside a missing one.
TEST(CheckpointTest, SaysWhatADownloadLeft) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n";
  TempDir sharded;
  WriteSharded(sharded, kGoodMap);
  sharded.Write("model.safetensors.index.json", pointer);
  ExpectError(OpenStatus(sharded.path()), StatusCode::kBadInput,
              "model.safetensors.index.json: is a git-lfs pointer; run git lfs pull");
  WriteSharded(sharded, kGoodMap);
  sharded.Write("shard-2.safetensors", pointer);
  ExpectError(OpenStatus(sharded.path()), StatusCode::kBadInput,
              "shard-2.safetensors: is a git-lfs pointer; run git lfs pull");
  TempDir repo;
  for (const char* folder : {"blobs", "snapshots/0a1b", "local/.cache/huggingface/download"}) {
    fs::create_directories(repo.File(folder));
  }
  for (const char* dir : {"snapshots/0a1b", "snapshots/0a1b/", "local"}) {
    ExpectError(OpenStatus(repo.File(dir)), StatusCode::kNoInput, "has no model.safetensors; give");
  }
  repo.Write("blobs/4d7a.incomplete", "");
  repo.Write("local/.cache/huggingface/download/8c.incomplete", "");
  for (const char* dir : {"snapshots/0a1b", "snapshots/0a1b/"}) {
    ExpectError(OpenStatus(repo.File(dir)), StatusCode::kBadInput,
                "blobs/4d7a.incomplete); download it again");
  }
  ExpectError(OpenStatus(repo.File("local")), StatusCode::kBadInput,
              "has no model.safetensors, and its download is incomplete (found ");
}

TEST(CheckpointTest, SaysWhatADirectoryWithoutSafetensorsHolds) {
  struct Case {
    std::vector<const char*> files;
    StatusCode code;
    const char* part;
  };
  const std::vector<Case> cases = {
      {{}, StatusCode::kNoInput, "has no model.safetensors"},
      {{"README.md"}, StatusCode::kNoInput, "has no model.safetensors"},
      {{"pytorch_model.bin"}, StatusCode::kBadInput, "found pytorch_model.bin"},
      {{"pytorch_model-00001-of-00002.bin"}, StatusCode::kBadInput, "safetensors are needed"},
      {{"llama-q4_0.gguf", "README.md"}, StatusCode::kBadInput, "found llama-q4_0.gguf"},
      {{"consolidated.00.pth"}, StatusCode::kBadInput, "consolidated.00.pth"},
      {{"a.safetensors", "b.safetensors"}, StatusCode::kBadInput, "2 safetensors files"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.part);
    TempDir dir;
    for (const char* file : c.files) dir.Write(file, "x");
    ExpectError(OpenStatus(dir.path()), c.code, c.part);
  }
}

TEST(CheckpointTest, RefusesWhatIsNoDirectory) {
  TempDir dir;
  ExpectError(OpenStatus(dir.File("nowhere")), StatusCode::kNoInput, "nowhere");
  dir.Write("model.gguf", "GGUF");
  ExpectError(OpenStatus(dir.File("model.gguf")), StatusCode::kBadInput, "model.gguf: byte 4");
  dir.Write("model.safetensors", Shard({"a"}));
  ExpectError(OpenStatus(dir.File("model.safetensors")), StatusCode::kBadInput, "not a directory");
}

TEST(CheckpointTest, RefusesADirectoryOrPipeInPlaceOfTheFile) {
  TempDir dir;
  fs::create_directory(dir.File("model.safetensors"));
  ExpectError(OpenStatus(dir.path()), StatusCode::kNoInput, "not a regular file");
}

TEST(ShardIndexTest, AGoodIndexOpensAllShards) {
  TempDir dir;
  WriteSharded(dir, kGoodMap);
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ((*checkpoint)->Names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ((*checkpoint)->total_bytes(), 3u);
}

TEST(ShardIndexTest, ShardNamesStayInTheDirectory) {
  TempDir outer;
  outer.Write("outside.safetensors", Shard({"c"}));
  const std::string model_dir = outer.File("model");
  for (const std::string& shard :
       {std::string("../outside.safetensors"), outer.File("outside.safetensors"),
        std::string("./../outside.safetensors"), std::string("./"),
        std::string("sub/shard-2.safetensors"), std::string("shard-2.safetensors/"),
        std::string(".."), std::string("."), std::string(""), std::string("/dev/zero"),
        std::string(R"(shard-2.safetensors\u0000.x)")}) {
    SCOPED_TRACE(shard);
    fs::remove_all(model_dir);
    fs::create_directories(model_dir + "/sub");
    std::ofstream(model_dir + "/shard-1.safetensors") << Shard({"a", "b"});
    std::ofstream(model_dir + "/shard-2.safetensors") << Shard({"c"});
    std::ofstream(model_dir + "/sub/shard-2.safetensors") << Shard({"c"});
    std::ofstream(model_dir + "/" + kIndexName) << fmt::format(
        R"({{"weight_map":{{"a":"shard-1.safetensors","b":"shard-1.safetensors","c":"{}"}}}})",
        shard);
    ExpectError(OpenStatus(model_dir), StatusCode::kBadInput, "tensor \"c\"");
    ExpectError(OpenStatus(model_dir), StatusCode::kBadInput, "same directory");
  }
}

TEST(ShardIndexTest, RefusesAnIndexThatDoesNotMatchItsShards) {
  struct Case {
    const char* name;
    const char* weight_map;
    const char* part;
  };
  const std::vector<Case> cases = {
      {"no shard is there", R"({"a":"shard-3.safetensors","b":"shard-4.safetensors"})",
       "shard-4.safetensors: cannot be opened"},
      {"number for a shard", R"({"a":1})", "tensor \"a\": found 1"},
      {"null for a shard", R"({"a":null})", "tensor \"a\": found null"},
      {"empty map", "{}", "weight_map"},
      {"map is an array", "[]", "weight_map"},
      {"map is null", "null", "weight_map"},
      {"same tensor twice", R"({"a":"shard-1.safetensors","a":"shard-2.safetensors"})",
       "duplicate key"},
      {"unclosed", R"({"a":"shard-1.safetensors")", "not valid JSON"},
      {"too deep", "[[[[[[[[[[]]]]]]]]]]", "deep"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    TempDir dir;
    WriteSharded(dir, c.weight_map);
    ExpectError(OpenStatus(dir.path()), StatusCode::kBadInput, c.part);
  }
}

// The index says which files are shards; the shards say what they hold.
TEST(ShardIndexTest, AnIndexThatDiffersFromItsShardsOpens) {
  for (const char* weight_map :
       {R"({"a":"shard-1.safetensors","c":"shard-2.safetensors"})",
        R"({"a":"shard-1.safetensors","b":"shard-2.safetensors","c":"shard-2.safetensors"})",
        R"({"a":"./shard-1.safetensors","b":"././shard-1.safetensors","c":"shard-2.safetensors"})",
        R"({"a":"shard-1.safetensors","c":"shard-2.safetensors","mtp.d":"shard-2.safetensors"})",
        R"({"a":"shard-1.safetensors","c":"shard-2.safetensors","mtp.d":"shard-3.safetensors"})"}) {
    SCOPED_TRACE(weight_map);
    TempDir dir;
    WriteSharded(dir, weight_map);
    const auto checkpoint = Checkpoint::Open(dir.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EXPECT_EQ((*checkpoint)->Names(), (std::vector<std::string>{"a", "b", "c"}));
    EXPECT_EQ((*checkpoint)->total_bytes(), 3u);
    for (const char* name : {"a", "b", "c"}) EXPECT_TRUE((*checkpoint)->GetStored(name).ok());
  }
}

TEST(ShardIndexTest, WhatTheIndexNamesAndNoShardHoldsIsMissedWhenItIsNeeded) {
  TempDir dir;
  WriteSharded(dir, R"({"a":"shard-1.safetensors","c":"shard-2.safetensors",
                        "d":"shard-2.safetensors","e":"shard-3.safetensors"})");
  const auto opened = Checkpoint::Open(dir.path());
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const Checkpoint& checkpoint = **opened;
  EXPECT_EQ(checkpoint.Absent(), (std::vector<std::string>{"d", "e"}));
  // Such a tensor is never one that the model does without.
  for (const char* name : {"d", "e"}) {
    EXPECT_TRUE(checkpoint.Has(name) && !checkpoint.Holds(name)) << name;
  }
  EXPECT_FALSE(checkpoint.Has("f"));
  ExpectError(checkpoint.GetStored("d").status(), StatusCode::kBadInput,
              "index.json: tensor \"d\" is in no file (" + dir.File("shard-2.safetensors"));
  ExpectError(checkpoint.Get("e").status(), StatusCode::kBadInput,
              "shard-3.safetensors: is missing, but model.safetensors.index.json names it for "
              "tensor \"e\"; download it again");
}

TEST(ShardIndexTest, OfATensorInTwoShardsTheIndexNamesOne) {
  TempDir dir;
  WriteSharded(dir, kGoodMap);
  dir.Write("shard-2.safetensors", Shard({"b", "c"}));
  for (const char* shard : {"shard-1.safetensors", "shard-2.safetensors"}) {
    dir.Write(kIndexName, fmt::format(R"({{"weight_map":{{"a":"shard-1.safetensors","b":"{}",
                                          "c":"shard-2.safetensors"}}}})",
                                      shard));
    const auto checkpoint = Checkpoint::Open(dir.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EXPECT_EQ((*checkpoint)->FileOf("b"), dir.File(shard));
    EXPECT_EQ((*checkpoint)->total_bytes(), 3u);
  }
  dir.Write(kIndexName, R"({"weight_map":{"a":"shard-1.safetensors","c":"shard-2.safetensors"}})");
  ExpectError(OpenStatus(dir.path()), StatusCode::kBadInput, "\"b\" is in two files");
}

TEST(ShardIndexTest, RefusesMoreValuesThanThereAreTensors) {
  MarkSlow("an index of very many values");
  TempDir dir;
  std::string index = R"({"metadata": [[])";
  for (int i = 0; i < 1'200'000; ++i) index += ",[]";
  dir.Write(kIndexName, index + R"(], "weight_map": {}})");
  ExpectError(OpenStatus(dir.path()), StatusCode::kBadInput, "more than 1100000 values");
}

TEST(ShardIndexTest, RefusesAnIndexWithoutAMap) {
  for (const char* text : {"", "{}", "[]", "3", "{\"weight_map\""}) {
    SCOPED_TRACE(text);
    TempDir dir;
    dir.Write(kIndexName, text);
    ExpectError(OpenStatus(dir.path()), StatusCode::kBadInput, kIndexName);
  }
}

TEST(CheckpointTest, EveryCutOfARealFileIsRefused) {
  const std::string source =
      MINISGL_SOURCE_DIR "/tests/golden/models/separate_head/model.safetensors";
  const auto size = fs::file_size(source);
  TempDir dir;
  const std::string copy = dir.File("model.safetensors");
  fs::copy_file(source, copy);
  ASSERT_TRUE(OpenStatus(dir.path()).ok());
  std::mt19937_64 rng(1);
  std::vector<uint64_t> lengths;
  for (int i = 0; i < 200; ++i) lengths.push_back(rng() % size);
  std::sort(lengths.rbegin(), lengths.rend());  // one file, shorter and shorter
  for (uint64_t length : lengths) {
    SCOPED_TRACE(fmt::format("cut to {} bytes", length));
    fs::resize_file(copy, length);
    ExpectError(OpenStatus(dir.path()), StatusCode::kBadInput, "model.safetensors");
  }
}

}  // namespace
}  // namespace minisgl
