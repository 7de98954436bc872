// The dense matrix products of a model's shape, one at a time: which they are, what they must move
// and compute, and their times on a device.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/bench_device.h"
#include "bench/bench_limits.h"
#include "minisgl/base/status.h"
#include "minisgl/tensor/weight_format.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::bench {

struct ProductShape {
  std::string name;  // "qkv", "attention output", "gate and up", "down", "head"
  int64_t num_out = 0, num_in = 0;
  bool is_head = false;  // its outputs are logits, in f32

  bool operator==(const ProductShape&) const = default;
};
// The different products of the layers' attention and dense feed-forward parts, and the head. What
// latent attention, states and experts multiply with is not among them.
std::vector<ProductShape> ProductsOf(const ModelConfig& config);

// Bytes of the weights in `format`, and of the inputs and outputs of `num_tokens` tokens.
double ProductBytes(const ProductShape& product, int64_t num_tokens, const WeightFormat& format,
                    DType activations);
double ProductFlops(const ProductShape& product, int64_t num_tokens);
// The seconds that moving these bytes takes, or these operations, whichever is more.
double ProductLimit(const ProductShape& product, int64_t num_tokens, const WeightFormat& format,
                    DType activations, const Ceilings& rates);
// Matrices that launches rotate over, so that `cold_bytes` pass before one is read again.
int ProductCopies(const ProductShape& product, const WeightFormat& format, uint64_t cold_bytes);

// Times products of random weights and inputs. The device has been reserved for the largest of
// `tokens`.
struct ProductTimer {
  WeightFormat format;      // kStored: codes of FP8, as a checkpoint has them
  bool fp8_blocks = false;  // with scales of blocks, not of outputs
  uint64_t cold_bytes = 0;
  int repeat = 1;
  uint64_t seed = 0;

  // Returns the seconds of one product for each of `tokens`; none if its matrices do not fit.
  Result<std::vector<double>> Time(const ProductShape& product, std::span<const int32_t> tokens,
                                   BenchDevice* device) const;

 private:
  Result<std::vector<Matrix>> Pack(const ProductShape& product, int copies, Ops* ops) const;
};

}  // namespace minisgl::bench
