// See adapter_changes.h.
#include "weights/adapter_changes.h"

#include <bit>

#include "minisgl/base/sha256.h"

namespace minisgl::weights {
namespace {

void AddNumber(uint64_t number, Sha256* hash) {
  hash->Add({reinterpret_cast<const char*>(&number), sizeof(number)});
}

}  // namespace

std::vector<const TensorView*> TensorsOf(const AdapterChange& change) {
  return {&change.a,    &change.b,      &change.b_bias,    &change.magnitude,
          &change.bias, &change.weight, &change.token_rows};
}

ContentHash HashOfChanges(const std::vector<AdapterChange>& changes) {
  Sha256 hash;
  hash.Add("minisgl adapter 1\n");
  for (const AdapterChange& change : changes) {
    AddNumber(change.module.size(), &hash);
    hash.Add(change.module);
    AddNumber(static_cast<uint64_t>(change.rank), &hash);
    AddNumber(static_cast<uint64_t>(change.rank_of_expert), &hash);
    AddNumber(std::bit_cast<uint64_t>(change.scale), &hash);
    AddNumber(change.is_embedding ? 1 : 0, &hash);
    AddNumber(change.tokens.size(), &hash);
    for (const TokenId id : change.tokens) AddNumber(static_cast<uint64_t>(id), &hash);
    for (const TensorView* tensor : TensorsOf(change)) {
      AddNumber(tensor->data == nullptr ? 0 : tensor->shape.size(), &hash);
      if (tensor->data == nullptr) continue;
      AddNumber(static_cast<uint64_t>(tensor->dtype), &hash);
      for (const int64_t size : tensor->shape) AddNumber(static_cast<uint64_t>(size), &hash);
      hash.Add({reinterpret_cast<const char*>(tensor->data), tensor->num_bytes()});
    }
  }
  const Sha256::Digest digest = hash.Finish();
  ContentHash content{};
  for (size_t i = 0; i < 16; ++i) content[i / 8] |= uint64_t{digest[i]} << (8 * (i % 8));
  return content;
}

uint64_t BytesOfChanges(const std::vector<AdapterChange>& changes) {
  uint64_t bytes = 0;
  for (const AdapterChange& change : changes) {
    for (const TensorView* tensor : TensorsOf(change)) {
      if (tensor->data != nullptr) bytes += tensor->num_bytes();
    }
  }
  return bytes;
}

}  // namespace minisgl::weights
