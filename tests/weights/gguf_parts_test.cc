// Models in several GGUF files: found from any part, and refused unless all parts fit together.
#include "minisgl/gguf/gguf_parts.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "gguf_builder.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"
#include "minisgl/weights/weights_key.h"
#include "test_files.h"

namespace minisgl {
namespace {

namespace fs = std::filesystem;

// A llama in three files, the first without tensors, as the converter can write it.
class GgufPartsTest : public testing::Test {
 protected:
  GgufPartsTest() {
    const GgufBuilder whole = GgufBuilder::Llama();
    parts_[0].values = whole.values;
    for (const auto& [name, tensor] : whole.tensors) {
      parts_[name < "blk.0.ffn" ? 1 : 2].tensors[name] = tensor;
    }
    for (uint32_t i = 0; i < 3; ++i) {
      parts_[i].Int("split.no", i);
      parts_[i].Int("split.count", 3);
      parts_[i].Int("split.tensors.count", 11);
    }
  }

  std::string PathOf(int part) const {
    return dir_.File("m-0000" + std::to_string(part + 1) + "-of-00003.gguf");
  }
  void Write() const {
    for (int i = 0; i < 3; ++i) {
      dir_.Write(fs::path(PathOf(i)).filename(), parts_[i].Write());
    }
  }
  void ExpectFails(const std::string& words) const {
    const Status status = Checkpoint::Open(PathOf(0)).status();
    ExpectError(status, StatusCode::kBadInput, words);
  }
  // The parts, changed by `change`, are refused with `words`; then they are as before.
  void ExpectFails(const std::function<void(GgufBuilder*)>& change, const std::string& words) {
    const GgufBuilder before[3] = {parts_[0], parts_[1], parts_[2]};
    change(parts_);
    Write();
    ExpectFails(words);
    for (int i = 0; i < 3; ++i) parts_[i] = before[i];
  }

  GgufBuilder parts_[3];
  TempDir dir_;
};

TEST_F(GgufPartsTest, EveryPartOpensTheWholeModel) {
  Write();
  for (int i = 0; i < 3; ++i) {
    const auto checkpoint = Checkpoint::Open(PathOf(i));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EXPECT_EQ((*checkpoint)->Names().size(), 11u);
    EXPECT_EQ((*checkpoint)->Files().size(), 3u);
    EXPECT_EQ((*checkpoint)->FileOf("model.layers.0.self_attn.q_proj.weight"), PathOf(1));
    EXPECT_EQ((*checkpoint)->FileOf("model.norm.weight"), PathOf(2));
    const auto config = LoadModelConfig(PathOf(i));
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->vocab_size, 20);
  }
}

TEST_F(GgufPartsTest, NamesTellThoseOfTheOtherParts) {
  using Paths = std::vector<std::string>;
  EXPECT_EQ(
      GgufPartPaths("d/a-00002-of-00003.gguf"),
      (Paths{"d/a-00001-of-00003.gguf", "d/a-00002-of-00003.gguf", "d/a-00003-of-00003.gguf"}));
  EXPECT_EQ(GgufPartPaths("-00001-of-00001.GGUF"), (Paths{"-00001-of-00001.GGUF"}));
  for (const char* whole :
       {"", "a.gguf", "a-00000-of-00003.gguf", "a-00004-of-00003.gguf", "a-1-of-3.gguf",
        "a-00001-of-0000x.gguf", "a-+0001-of-00003.gguf", "a_00001-of-00003.gguf",
        "a-00001-of-00003.bin", "00001-of-00003.gguf", "a-00001-of-00000.gguf"}) {
    EXPECT_EQ(GgufPartPaths(whole), Paths{whole});
  }
}

TEST_F(GgufPartsTest, APartThatIsMissingIsNamed) {
  Write();
  fs::remove(PathOf(2));
  ExpectFails("m-00003-of-00003.gguf: is missing: the model has 3 parts, and all are needed");
}

TEST_F(GgufPartsTest, APartInThePlaceOfAnotherIsRefused) {
  Write();
  fs::copy_file(PathOf(1), PathOf(2), fs::copy_options::overwrite_existing);
  ExpectFails(
      "m-00003-of-00003.gguf: key \"split.no\": 2 is needed, as the name of the file says "
      "(found 1)");
}

TEST_F(GgufPartsTest, APartWithoutANumberInItsNameIsRefused) {
  Write();
  fs::rename(PathOf(1), dir_.File("second.gguf"));
  ExpectError(Checkpoint::Open(dir_.File("second.gguf")).status(), StatusCode::kBadInput,
              "second.gguf: is part 2 of 3 of a model, and its name does not say so; want one that "
              "ends in -00002-of-00003.gguf");
}

TEST_F(GgufPartsTest, CountsThatLieAreRefused) {
  ExpectFails([](auto* parts) { parts[0].Int("split.count", 2); },
              "m-00001-of-00003.gguf: key \"split.count\": 3 is needed, as the name of the file "
              "says (found 2)");
  ExpectFails([](auto* parts) { parts[2].Int("split.count", 4'000'000'000); },
              "(found 4000000000)");
  ExpectFails([](auto* parts) { parts[1].values.erase("split.count"); },
              "m-00002-of-00003.gguf: key \"split.count\": 3 is needed");
  ExpectFails([](auto* parts) { parts[0].Int("split.count", 0); }, "(found 0)");
  ExpectFails([](auto* parts) { parts[0].Text("split.count", "3"); }, "(found no integer)");
  ExpectFails([](auto* parts) { parts[1].Int("split.tensors.count", 12); },
              "m-00002-of-00003.gguf: key \"split.tensors.count\"");
  for (const uint32_t count : {10, 12}) {
    ExpectFails(
        [&](auto* parts) {
          for (int i = 0; i < 3; ++i) parts[i].Int("split.tensors.count", count);
        },
        "11 is needed, the tensors that all parts have (found " + std::to_string(count) + ")");
  }
  ExpectFails([](auto* parts) { parts[0].values.erase("split.tensors.count"); }, "(found nothing)");
}

TEST_F(GgufPartsTest, APartOfAnotherModelIsRefused) {
  ExpectFails([](auto* parts) { parts[1].Text("general.architecture", "qwen2"); },
              "key \"general.architecture\" is not as in");
  ExpectFails(
      [](auto* parts) {
        parts[1].tensors["blk.0.attn_q.weight"].shape = {64, 32};
      },
      "tensor \"blk.0.attn_q.weight\" of part 2: its shape does not fit");
  ExpectFails(
      [](auto* parts) {
        parts[2].tensors["blk.0.extra"] = {{32}};
        for (int i = 0; i < 3; ++i) parts[i].Int("split.tensors.count", 12);
      },
      "unknown tensor \"blk.0.extra\" of part 3");
  ExpectFails(
      [](auto* parts) {
        parts[2].tensors["blk.0.attn_q.weight"] = {{32, 32}};
        for (int i = 0; i < 3; ++i) parts[i].Int("split.tensors.count", 12);
      },
      "m-00003-of-00003.gguf: tensor \"blk.0.attn_q.weight\" is in");
  Write();
  dir_.Write("m-00002-of-00003.gguf", "<html>");
  ExpectFails("m-00002-of-00003.gguf: is no GGUF file");
}

// Packed weights are kept for all bytes of a model.
TEST_F(GgufPartsTest, AnyByteOfAnyPartMakesAnotherModel) {
  Write();
  const auto cache = TrustedFolder::Open(dir_.File("cache"));
  ASSERT_TRUE(cache.ok()) << cache.status().message();
  const auto hash = [&] { return HashWeights(**Checkpoint::Open(PathOf(0)), *cache, 1); };
  const std::string before = hash();
  std::string bytes = parts_[2].Write();
  bytes.back() = 1;
  dir_.Write("m-00003-of-00003.gguf", bytes);
  EXPECT_NE(hash(), before);
}

}  // namespace
}  // namespace minisgl
