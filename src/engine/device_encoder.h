// The embeddings of pictures in the memory of a device: the tower makes them before a step's layers
// run, and they stay until a plan drops them (as EncodedInputs keeps them on the CPU).
//
// They have an array that is taken at the start, for as many embeddings as the scheduler's encoder
// cache has. A picture that finds no room in it (one larger than the cache, or gaps that are too
// short) has memory of its own, which is taken and freed while nothing runs.
//
// The first of several ranks has the tower; the others get what it made, as a sum over all
// ranks to which they add zeros. Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/embedding_pool.h"
#include "minisgl/base/status.h"
#include "minisgl/batch_plan.h"
#include "minisgl/device_array.h"
#include "minisgl/device_ops.h"
#include "minisgl/model/decoder.h"
#include "minisgl/model/tower.h"

namespace minisgl::engine {

class DeviceEncoder {
 public:
  // Takes room for `num_embeddings` of `width` floats. `tower`: null on ranks after the first. It
  // and `ops` outlive the result. kOutOfMemory.
  static Result<std::unique_ptr<DeviceEncoder>> Make(Tower* tower, int64_t width,
                                                     int64_t num_embeddings, int32_t num_ranks,
                                                     DeviceOps* ops);
  // Bytes that Make takes; nullopt if 2^64 or more.
  static std::optional<uint64_t> CountBytes(int64_t width, int64_t num_embeddings);

  // True if Apply may take or free memory.
  bool TakesMemory(const PlanExtras& extras) const;
  // Drops what the plan drops, and encodes what it wants. An input that is there is encoded anew:
  // the step that had it encoded may have failed. After an error of one rank all of them Forget.
  // kOutOfMemory, and the errors of Tower::Encode.
  Status Apply(const PlanExtras& extras);
  // Drops what the plan has encoded.
  void Forget(const PlanExtras& extras);
  // Hands what the first rank has encoded to the others. All ranks call it.
  void Share(const PlanExtras& extras);
  // Sets *placed to the embeddings of the plan's tokens, valid until the next Apply. kInternal: an
  // input was not encoded, because the step that should have done it failed.
  Status Place(const PlanExtras& extras, std::vector<PlacedEmbeddings>* placed) const;

 private:
  struct Input {
    int64_t place = -1;  // the first in the array; -1: in `own`
    DeviceArray<float> own;
    float* data = nullptr;
  };

  DeviceEncoder(Tower* tower, int64_t width, int64_t num_places, int32_t num_ranks, DeviceOps* ops)
      : tower_(tower), width_(width), num_ranks_(num_ranks), ops_(ops), pool_(num_places) {}
  void Drop(EmbeddingSource source);
  Result<Input> TakeInput(int64_t num_embeddings);

  Tower* const tower_;
  const int64_t width_;
  const int32_t num_ranks_;
  DeviceOps* const ops_;
  EmbeddingPool pool_;        // of places for kRowsOfPlace embeddings each
  DeviceArray<float> rows_;   // [places, kRowsOfPlace, width]
  DeviceArray<float> zeros_;  // [width]
  std::unordered_map<EmbeddingSource, Input> inputs_;
};

}  // namespace minisgl::engine
