// Projector files: what their metadata say, the names of their tensors, and one error for a file
// that no tower reads.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "gguf_builder.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/projector.h"
#include "test_files.h"

namespace minisgl {
namespace {

// SmolVLM's kind, of one layer of width 32 in patches of 4 x 4, for a text of width 32.
GgufBuilder SmallProjector() {
  GgufBuilder file;
  file.Text("general.architecture", "clip");
  file.Text("clip.projector_type", "idefics3");
  const std::pair<const char*, uint32_t> numbers[] = {
      {"block_count", 1},     {"embedding_length", 32},  {"feed_forward_length", 64},
      {"image_size", 16},     {"patch_size", 4},         {"attention.head_count", 2},
      {"projection_dim", 32}, {"preproc_image_size", 48}};
  for (const auto& [key, value] : numbers) file.Int(std::string("clip.vision.") + key, value);
  file.Float("clip.vision.attention.layer_norm_epsilon", 1e-6f);
  file.Floats("clip.vision.image_mean", {0.48145466f, 0.4578275f, 0.40821073f});
  file.Floats("clip.vision.image_std", {0.5, 0.5, 0.5});
  file.tensors = {{"mm.model.fc.weight", {{32, 128}}},
                  {"v.patch_embd.weight", {{32, 3, 4, 4}}},
                  {"v.patch_embd.bias", {{32}}},
                  {"v.position_embd.weight", {{16, 32}}}};
  for (const char* norm : {"v.blk.0.ln1", "v.blk.0.ln2", "v.post_ln"}) {
    for (const char* end : {".weight", ".bias"}) file.tensors[norm + std::string(end)] = {{32}};
  }
  for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_out", "ffn_up", "ffn_down"}) {
    const std::string stem = "v.blk.0." + std::string(name);
    const uint64_t rows = stem.ends_with("up") ? 64 : 32,
                   columns = stem.ends_with("down") ? 64 : 32;
    file.tensors[stem + ".weight"] = {{rows, columns}};
    file.tensors[stem + ".bias"] = {{rows}};
  }
  return file;
}

class GgufProjectorTest : public testing::Test {
 protected:
  GgufProjectorTest() { dir_.Write("text.gguf", GgufBuilder::Llama().Write()); }

  Result<Projector> Load() {
    dir_.Write("mmproj.gguf", file_.Write());
    return LoadProjector(dir_.File("mmproj.gguf"), dir_.File("text.gguf"));
  }
  void ExpectFails(const std::function<void(GgufBuilder*)>& change, StatusCode code,
                   const std::string& part) {
    SCOPED_TRACE(part);
    const GgufBuilder whole = file_;
    change(&file_);
    Status status = Load().status();
    if (status.ok()) status = Checkpoint::Open(dir_.File("mmproj.gguf")).status();
    EXPECT_EQ(status.code(), code);
    EXPECT_NE(status.message().find("mmproj.gguf: "), std::string::npos) << status.message();
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    file_ = whole;
  }

  GgufBuilder file_ = SmallProjector();
  TempDir dir_;
};

TEST_F(GgufProjectorTest, TheMetadataAreTheFilesOfADirectory) {
  const auto projector = Load();
  ASSERT_TRUE(projector.ok()) << projector.status().message();
  EXPECT_EQ(projector->tower.name, "idefics3");
  EXPECT_EQ(projector->tower.num_layers, 1);
  EXPECT_EQ(projector->tower.intermediate_size, 64);
  EXPECT_EQ(projector->tower.tile_side, 4);
  EXPECT_EQ(projector->tower.text_hidden_size, 32);
  EXPECT_EQ(projector->tower.dtype, DType::kF32);
  EXPECT_EQ(projector->tower.norm_eps, 1e-6);
  const Json* const mean = projector->preprocessor.Find("image_mean");
  ASSERT_NE(mean, nullptr);
  // As published, not the f32 nearest to it.
  EXPECT_EQ(mean->Dump(), "[0.48145466, 0.4578275, 0.40821073]");
  EXPECT_EQ(projector->preprocessor.Find("size")->Dump(), R"({"longest_edge": 48})");
  const auto checkpoint = Checkpoint::Open(dir_.File("mmproj.gguf"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_TRUE((*checkpoint)->Holds("vision_model.encoder.layers.0.mlp.fc1.weight"));
  EXPECT_TRUE((*checkpoint)->Holds("connector.modality_projection.proj.weight"));
  EXPECT_EQ((*checkpoint)->Get("vision_model.encoder.layers.0.mlp.fc2.weight")->shape,
            (std::vector<int64_t>{32, 64}));
}

// Older files have the names of the two matrices of a feed-forward part the other way round.
TEST_F(GgufProjectorTest, SwappedNamesAreSeenByTheirShapes) {
  std::swap(file_.tensors["v.blk.0.ffn_up.weight"], file_.tensors["v.blk.0.ffn_down.weight"]);
  std::swap(file_.tensors["v.blk.0.ffn_up.bias"], file_.tensors["v.blk.0.ffn_down.bias"]);
  ASSERT_TRUE(Load().ok());
  const auto checkpoint = Checkpoint::Open(dir_.File("mmproj.gguf"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ((*checkpoint)->Get("vision_model.encoder.layers.0.mlp.fc1.weight")->shape,
            (std::vector<int64_t>{64, 32}));
  EXPECT_EQ((*checkpoint)->Get("vision_model.encoder.layers.0.mlp.fc2.bias")->shape,
            (std::vector<int64_t>{32}));
}

TEST_F(GgufProjectorTest, MatricesMayBeCodes) {
  constexpr uint32_t kQ8_0 = 8;
  file_.tensors["v.blk.0.attn_q.weight"].type = kQ8_0;
  ASSERT_TRUE(Load().ok());
  const auto checkpoint = Checkpoint::Open(dir_.File("mmproj.gguf"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const WeightTensor* const matrix =
      (*checkpoint)->FindMatrix("vision_model.encoder.layers.0.self_attn.q_proj.weight");
  ASSERT_NE(matrix, nullptr);
  EXPECT_EQ(matrix->num_out(), 32);
}

TEST_F(GgufProjectorTest, WhatCannotRunHasOneError) {
  const auto bad = StatusCode::kBadInput, other = StatusCode::kUnavailable;
  ExpectFails([](auto* file) { file->Text("general.architecture", "llama"); }, bad,
              "it is no projector: key \"general.architecture\" is not \"clip\"");
  ExpectFails([](auto* file) { file->Text("clip.projector_type", "ldp"); }, other,
              "no tower for projectors of type \"ldp\" (it has qwen2vl_merger, ");
  ExpectFails([](auto* file) { file->Int("clip.vision.projection_dim", 64); }, bad,
              "the projector is of another model: its embeddings have 64 features, the model's 32");
  ExpectFails([](auto* file) { file->values.erase("clip.vision.block_count"); }, bad,
              "\"clip.vision.block_count\"");
  ExpectFails([](auto* file) { file->Int("clip.vision.patch_size", 0); }, bad,
              "\"clip.vision.patch_size\"");
  ExpectFails([](auto* file) { file->Int("clip.vision.block_count", 0x7fffffff); }, bad,
              "\"clip.vision.block_count\"");
  ExpectFails([](auto* file) { file->Int("clip.vision.attention.head_count", 5); }, bad,
              "num_attention_heads");
  ExpectFails(
      [](auto* file) {
        file->Floats("clip.vision.image_std", {1, 1});
      },
      bad, "\"clip.vision.image_std\": three numbers are needed");
  ExpectFails(
      [](auto* file) {
        file->tensors["v.blk.0.ffn_gate.weight"] = {{64, 32}};
      },
      bad, "tensor \"v.blk.0.ffn_gate.weight\": the tower of idefics3 has no use for it");
  ExpectFails(
      [](auto* file) {
        file->tensors["v.patch_embd.weight"] = {{32, 3, 4, 5}};
      },
      bad, "tensor \"v.patch_embd.weight\": its type or shape is not read there");
}

TEST_F(GgufProjectorTest, ADirectoryHasATowerOfItsOwn) {
  ASSERT_TRUE(Load().ok());
  const Status status = LoadProjector(dir_.File("mmproj.gguf"), dir_.File("")).status();
  EXPECT_EQ(status.code(), StatusCode::kUsage);
}

TEST_F(GgufProjectorTest, AModelIsNoProjector) {
  ASSERT_TRUE(Load().ok());
  EXPECT_TRUE(CheckIsNoProjector(dir_.File("text.gguf")).ok());
  EXPECT_NE(
      CheckIsNoProjector(dir_.File("mmproj.gguf")).message().find("give it with projector beside"),
      std::string::npos);
}

}  // namespace
}  // namespace minisgl
