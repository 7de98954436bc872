// Adapters in GGUF files: keys, pairs and types that are read, and what is refused by name.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "gguf_builder.h"
#include "minisgl/weights/adapter.h"
#include "temporary_folder.h"

namespace minisgl {
namespace {

GgufBuilder SoundAdapter() {
  GgufBuilder file;
  file.Text("general.architecture", "llama");
  file.Text("general.type", "adapter");
  file.Text("adapter.type", "lora");
  file.Float("adapter.lora.alpha", 6);
  file.tensors = {{"blk.0.attn_q.weight.lora_a", {{4, 32}}},
                  {"blk.0.attn_q.weight.lora_b", {{32, 4}}},
                  {"token_embd.weight.lora_a", {{20, 3}}},
                  {"token_embd.weight.lora_b", {{32, 3}}}};
  return file;
}

class GgufAdapterTest : public testing::Test {
 protected:
  Result<std::shared_ptr<const Adapter>> Load(const GgufBuilder& file) {
    return LoadAdapter(folder_.Write("one.gguf", file.Write()));
  }
  void ExpectRefused(const GgufBuilder& file, const std::string& what) {
    const auto adapter = Load(file);
    ASSERT_FALSE(adapter.ok()) << what;
    EXPECT_EQ(adapter.status().code(), StatusCode::kBadInput);
    EXPECT_NE(adapter.status().message().find(what), std::string::npos)
        << adapter.status().message();
    EXPECT_NE(adapter.status().message().find("one.gguf"), std::string::npos);
  }
  const TemporaryFolder folder_;
};

TEST_F(GgufAdapterTest, PairsAreChanges) {
  const auto adapter = Load(SoundAdapter());
  ASSERT_TRUE(adapter.ok()) << adapter.status().message();
  EXPECT_EQ((*adapter)->gguf_architecture, "llama");
  ASSERT_EQ((*adapter)->changes.size(), 2u);
  const AdapterChange& query = (*adapter)->changes[0];
  EXPECT_EQ(query.module, "blk.0.attn_q");
  EXPECT_EQ(query.rank, 4);
  EXPECT_EQ(query.scale, 1.5);
  const AdapterChange& table = (*adapter)->changes[1];
  EXPECT_TRUE(table.is_embedding);
  EXPECT_EQ(table.a.shape, (std::vector<int64_t>{3, 20}));  // turned
  EXPECT_EQ(table.scale, 2);
}

// As llama.cpp has it.
TEST_F(GgufAdapterTest, AnAlphaOfZeroIsAScaleOfOne) {
  GgufBuilder file = SoundAdapter();
  file.Float("adapter.lora.alpha", 0);
  EXPECT_EQ((*Load(file))->changes[0].scale, 1);
  file.values.erase("adapter.lora.alpha");
  EXPECT_EQ((*Load(file))->changes[0].scale, 1);
}

TEST_F(GgufAdapterTest, OthersAreRefusedByName) {
  GgufBuilder file = SoundAdapter();
  file.Text("general.type", "model");
  ExpectRefused(file, "key \"general.type\": found \"model\"");
  file = SoundAdapter();
  file.Text("adapter.type", "ia3");
  ExpectRefused(file, "key \"adapter.type\": found \"ia3\"");
  file = SoundAdapter();
  file.Text("general.architecture", "nonsuch");
  ExpectRefused(file, "nonsuch");
  file = SoundAdapter();
  file.Ints("adapter.alora.invocation_tokens", {1, 2});
  ExpectRefused(file, "adapter.alora.invocation_tokens");
  file = SoundAdapter();
  file.Text("adapter.lora.alpha", "six");
  ExpectRefused(file, "adapter.lora.alpha");
  file = SoundAdapter();
  file.tensors["blk.0.attn_norm.weight"] = {{32}};
  ExpectRefused(file, "tensor \"blk.0.attn_norm.weight\"");
  file = SoundAdapter();
  file.tensors["blk.0.attn_q.bias.lora_a"] = {{4, 32}};
  ExpectRefused(file, "tensor \"blk.0.attn_q.bias.lora_a\"");
  file = SoundAdapter();
  file.tensors.erase("blk.0.attn_q.weight.lora_b");
  ExpectRefused(file, "has no \".lora_b\" beside it");
  file = SoundAdapter();
  file.tensors["blk.0.attn_q.weight.lora_a"] = {{32, 4}};
  ExpectRefused(file, "tensor \"blk.0.attn_q.weight.lora_a\" has shape [32, 4]");
  file = SoundAdapter();
  file.tensors["blk.0.attn_q.weight.lora_b"] = {{32}};
  ExpectRefused(file, "ranks do not agree");
  file = SoundAdapter();
  file.tensors.clear();
  ExpectRefused(file, "has no tensor of an adapter");
  file = SoundAdapter();
  std::string nan(4 * 32 * 4, '\0');
  nan[2] = '\xC0';
  nan[3] = '\x7F';
  file.tensors["blk.0.attn_q.weight.lora_a"] = {{4, 32}, 0, nan};
  ExpectRefused(file, "weights must be finite");
}

}  // namespace
}  // namespace minisgl
