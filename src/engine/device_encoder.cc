// See device_encoder.h.
#include "engine/device_encoder.h"

#include <algorithm>
#include <utility>

#include "minisgl/base/checked_math.h"

namespace minisgl::engine {
namespace {

// Floats of one sum over ranks: 256 MB.
constexpr int64_t kSharedAtOnce = int64_t{1} << 26;

// So many that a picture's embeddings begin at a multiple of 16 bytes, as products write them.
constexpr int64_t kRowsOfPlace = 4;

int64_t PlacesFor(int64_t num_embeddings) {
  return num_embeddings / kRowsOfPlace + (num_embeddings % kRowsOfPlace != 0);
}

}  // namespace

Result<std::unique_ptr<DeviceEncoder>> DeviceEncoder::Make(Tower* tower, int64_t width,
                                                           int64_t num_embeddings,
                                                           int32_t num_ranks, DeviceOps* ops) {
  const int64_t places = PlacesFor(num_embeddings);
  std::unique_ptr<DeviceEncoder> encoder(new DeviceEncoder(tower, width, places, num_ranks, ops));
  MINISGL_ASSIGN_OR_RETURN(
      encoder->rows_,
      DeviceArray<float>::Make(ops, {static_cast<uint64_t>(places), uint64_t{kRowsOfPlace},
                                     static_cast<uint64_t>(width)}));
  MINISGL_ASSIGN_OR_RETURN(encoder->zeros_,
                           DeviceArray<float>::Make(ops, {static_cast<uint64_t>(width)}));
  return encoder;
}

std::optional<uint64_t> DeviceEncoder::CountBytes(int64_t width, int64_t num_embeddings) {
  const auto places = static_cast<uint64_t>(PlacesFor(num_embeddings));
  const auto rows = CheckedAdd(places * kRowsOfPlace, uint64_t{1});  // below 2^63 + 5
  const auto floats = rows ? CheckedMul(*rows, static_cast<uint64_t>(width)) : std::nullopt;
  return floats ? CheckedMul(*floats, sizeof(float)) : std::nullopt;
}

// A tower may take memory for a picture that is larger than most, so any picture counts.
bool DeviceEncoder::TakesMemory(const PlanExtras& extras) const {
  return !extras.encoded.empty() ||
         std::any_of(extras.dropped.begin(), extras.dropped.end(), [&](EmbeddingSource source) {
           const auto found = inputs_.find(source);
           return found != inputs_.end() && found->second.place < 0;
         });
}

// Places of the array may be written again at once, because all that reads them is queued before.
void DeviceEncoder::Drop(EmbeddingSource source) {
  const auto found = inputs_.find(source);
  if (found == inputs_.end()) return;
  if (found->second.place >= 0) {
    pool_.Return(found->second.place);
  } else {
    static_cast<void>(ops_->Synchronize());  // steps in flight may read it; status() keeps a fault
  }
  inputs_.erase(found);
}

Result<DeviceEncoder::Input> DeviceEncoder::TakeInput(int64_t num_embeddings) {
  Input input;
  input.place = pool_.Take(PlacesFor(num_embeddings));
  if (input.place >= 0) {
    input.data = rows_.data() + input.place * kRowsOfPlace * width_;
    return input;
  }
  MINISGL_ASSIGN_OR_RETURN(
      input.own, DeviceArray<float>::Make(
                     ops_, {static_cast<uint64_t>(num_embeddings), static_cast<uint64_t>(width_)}));
  input.data = input.own.data();
  return input;
}

Status DeviceEncoder::Apply(const PlanExtras& extras) {
  for (const EmbeddingSource source : extras.dropped) Drop(source);
  for (const EncoderRun& run : extras.encoded) {
    if (run.content == nullptr) {
      return MakeStatus(StatusCode::kInternal, "input {} has nothing to encode", run.source);
    }
    Drop(run.source);
    MINISGL_ASSIGN_OR_RETURN(Input input, TakeInput(run.num_embeddings));
    float* const data = input.data;
    inputs_.emplace(run.source, std::move(input));
    if (tower_ != nullptr) {
      MINISGL_RETURN_IF_ERROR(tower_->Encode(*run.content, data));
      continue;
    }
    ops_->PlaceRows({.x = zeros_.data(),
                     .x_stride = 0,
                     .out = data,
                     .out_stride = width_,
                     .num_rows = run.num_embeddings,
                     .width = width_});
  }
  return Status();
}

void DeviceEncoder::Forget(const PlanExtras& extras) {
  for (const EncoderRun& run : extras.encoded) Drop(run.source);
}

void DeviceEncoder::Share(const PlanExtras& extras) {
  if (num_ranks_ == 1) return;
  for (const EncoderRun& run : extras.encoded) {
    float* const data = inputs_.at(run.source).data;
    const int64_t count = run.num_embeddings * width_;
    for (int64_t first = 0; first < count; first += kSharedAtOnce) {
      ops_->AllReduce({.x = data + first, .count = std::min(kSharedAtOnce, count - first)});
    }
  }
}

Status DeviceEncoder::Place(const PlanExtras& extras, std::vector<PlacedEmbeddings>* placed) const {
  placed->clear();
  for (const ReplacedEmbeddings& run : extras.embeddings) {
    const auto found = inputs_.find(run.source);
    if (found == inputs_.end()) {
      return MakeStatus(StatusCode::kInternal, "input {} was not encoded", run.source);
    }
    placed->push_back({.token = static_cast<int32_t>(run.token),
                       .count = run.count,
                       .embeddings = found->second.data + run.first * width_,
                       .width = width_});
  }
  return Status();
}

}  // namespace minisgl::engine
