// See bench_products.h, and the benchmark of products: what the engine chooses for each number of
// tokens, and on a GPU cuBLASLt alone. Weights are cold.
#include "bench/bench_products.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "bench/bench.h"
#include "bench/bench_model.h"
#include "load/model_loader.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/base/system_info.h"
#include "minisgl/device_array.h"
#include "minisgl/tensor/weight_tensor.h"
#include "weights/random_checkpoint.h"

namespace minisgl::bench {
namespace {

constexpr int64_t kGpuWeightsMib = 1024, kCpuWeightsMib = 64;  // much larger than the caches
constexpr int kProductCopiesMax = 256;
constexpr int kGpuProductsMin = 20, kCpuProductsMin = 4;
// Fractions of free memory that the matrices of one product may use.
constexpr double kGpuWeightsShare = 0.6, kCpuWeightsShare = 0.25;

uint64_t MemoryLeft(const BenchDevice& device) {
  const double left =
      device.on_gpu()
          ? kGpuWeightsShare * static_cast<double>(device.device()->MemoryInfo().free_bytes)
          : kCpuWeightsShare * static_cast<double>(AvailableMemoryBytes());
  return static_cast<uint64_t>(left);
}

// Random weights as a checkpoint in FP8 has them, whose inputs may be rounded: codes of e4m3 with a
// scale for each output, or for blocks.
class Fp8Weights {
 public:
  static uint64_t Bytes(const ProductShape& product, bool has_blocks) {
    const auto out = static_cast<uint64_t>(product.num_out);
    const auto in = static_cast<uint64_t>(product.num_in);
    return out * in + NumScales(product, has_blocks) * sizeof(float);
  }
  static Result<Fp8Weights> Make(const ProductShape& product, bool has_blocks, uint64_t seed) {
    Fp8Weights made;
    const auto num_bytes = static_cast<uint64_t>(product.num_out * product.num_in);
    // Halves of numbers of 16 bits. None of them is NaN: the exponent's highest bit is taken out.
    MINISGL_ASSIGN_OR_RETURN(const auto random, weights::MakeRandomMemory((num_bytes + 1) / 2 * 2,
                                                                          DType::kF16, 0, 1, seed));
    made.codes_.resize(num_bytes);
    for (size_t i = 0; i < num_bytes; ++i) made.codes_[i] = random.get()[i] & std::byte{0xBF};
    made.scales_.assign(NumScales(product, has_blocks), kScale);
    const int64_t inputs = has_blocks ? kScaledInputs : product.num_in;
    const int64_t groups = CeilDiv(product.num_in, inputs);
    QuantizedWeights its;
    its.codes.data = made.codes_.data();
    its.codes.other_step = product.num_in;
    its.numbers = E4M3Numbers();
    its.scales = {reinterpret_cast<const std::byte*>(made.scales_.data()), DType::kF32,
                  has_blocks ? kScaledInputs : 1, groups * int64_t{sizeof(float)}, sizeof(float)};
    its.num_groups = groups;
    its.group_inputs = inputs;
    its.e4m3_inputs = has_blocks ? InputRounding::kGroups : InputRounding::kToken;
    made.tensor_ = WeightTensor(product.num_out, product.num_in, its);
    return made;
  }
  const WeightTensor& tensor() const { return tensor_; }

 private:
  static constexpr float kScale = 1.0f / 64;
  static uint64_t NumScales(const ProductShape& product, bool has_blocks) {
    if (!has_blocks) return static_cast<uint64_t>(product.num_out);
    return static_cast<uint64_t>(CeilDiv(product.num_out, kScaledInputs) *
                                 CeilDiv(product.num_in, kScaledInputs));
  }
  std::vector<std::byte> codes_;
  std::vector<float> scales_;
  WeightTensor tensor_;
};

uint64_t BytesOf(const ProductShape& product, const WeightFormat& format) {
  // The scales of blocks are so few that they do not count.
  if (format.quantization == Quantization::kStored) return Fp8Weights::Bytes(product, false);
  return WeightBytes(format, static_cast<uint64_t>(product.num_out),
                     static_cast<uint64_t>(product.num_in))
      .value_or(std::numeric_limits<uint64_t>::max());
}

// What is measured on one device.
struct Way {
  const char* name;
  bool library;  // every product by cuBLASLt
};

}  // namespace

std::vector<ProductShape> ProductsOf(const ModelConfig& config) {
  std::vector<ProductShape> products;
  const auto add = [&](ProductShape product) {
    const bool is_known = std::find(products.begin(), products.end(), product) != products.end();
    if (!is_known && product.num_out > 0 && product.num_in > 0) {
      products.push_back(std::move(product));
    }
  };
  for (int32_t i = 0; i < std::ssize(config.layers); ++i) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    const LayerShape shape = LayerShapeOf(config, i);
    if (HasAttention(layer.mixer) && !shape.values_in_keys) {
      const int64_t kv_heads = layer.kv_layer < 0 ? shape.num_kv_heads : 0;
      add({"qkv",
           shape.num_heads * int64_t{shape.head_dim} +
               kv_heads * (shape.head_dim + shape.value_dim),
           config.hidden_size});
      add({"attention output", config.hidden_size, shape.num_heads * int64_t{shape.value_dim}});
    }
    if (layer.has_feed_forward && !layer.has_experts) {
      add({config.gated ? "gate and up" : "up", (config.gated ? 2 : 1) * shape.intermediate_size,
           config.hidden_size});
      add({"down", config.hidden_size, shape.intermediate_size});
    }
  }
  add({"head", config.vocab_size, config.hidden_size, /*is_head=*/true});
  return products;
}

double ProductBytes(const ProductShape& product, int64_t num_tokens, const WeightFormat& format,
                    DType activations) {
  const size_t out_bytes = DTypeBytes(product.is_head ? DType::kF32 : activations);
  return static_cast<double>(BytesOf(product, format)) +
         static_cast<double>(num_tokens) *
             (static_cast<double>(product.num_in) * static_cast<double>(DTypeBytes(activations)) +
              static_cast<double>(product.num_out) * static_cast<double>(out_bytes));
}

double ProductFlops(const ProductShape& product, int64_t num_tokens) {
  return 2.0 * static_cast<double>(num_tokens) * static_cast<double>(product.num_out) *
         static_cast<double>(product.num_in);
}

double ProductLimit(const ProductShape& product, int64_t num_tokens, const WeightFormat& format,
                    DType activations, const Ceilings& rates) {
  return std::max(ProductBytes(product, num_tokens, format, activations) / rates.bytes_per_s,
                  ProductFlops(product, num_tokens) / rates.flops_per_s);
}

int ProductCopies(const ProductShape& product, const WeightFormat& format, uint64_t cold_bytes) {
  const uint64_t wanted = CeilDiv(cold_bytes, std::max<uint64_t>(BytesOf(product, format), 1));
  return static_cast<int>(std::clamp<uint64_t>(wanted, 1, kProductCopiesMax));
}

Result<std::vector<Matrix>> ProductTimer::Pack(const ProductShape& product, int copies,
                                               Ops* ops) const {
  std::vector<Matrix> matrices;
  // In two parts, since devices share the matrices of one tensor.
  const auto pack = [&](const WeightTensor& tensor) -> Status {
    const int64_t half = tensor.num_out() / 2;
    const WeightTensor parts[] = {tensor.TakeOutputs(0, half),
                                  tensor.TakeOutputs(half, tensor.num_out() - half)};
    const auto all = std::span(parts).subspan(half == 0 ? 1 : 0);
    for (int i = 0; i < copies; ++i) {
      MINISGL_ASSIGN_OR_RETURN(Matrix matrix, ops->PackMatrix(all, format));
      matrices.push_back(std::move(matrix));
    }
    return Status();
  };
  if (format.quantization == Quantization::kStored) {
    MINISGL_ASSIGN_OR_RETURN(const Fp8Weights weights, Fp8Weights::Make(product, fp8_blocks, seed));
    MINISGL_RETURN_IF_ERROR(pack(weights.tensor()));
    return matrices;
  }
  const uint64_t num_bytes =
      static_cast<uint64_t>(product.num_out * product.num_in) * DTypeBytes(format.dtype);
  MINISGL_ASSIGN_OR_RETURN(const auto weights,
                           weights::MakeRandomMemory(num_bytes, format.dtype, 0, 1, seed));
  MINISGL_RETURN_IF_ERROR(
      pack(TensorView{weights.get(), format.dtype, {product.num_out, product.num_in}}));
  return matrices;
}

Result<std::vector<double>> ProductTimer::Time(const ProductShape& product,
                                               std::span<const int32_t> tokens,
                                               BenchDevice* device) const {
  Ops* const ops = device->ops();
  const int copies = ProductCopies(product, format, cold_bytes);
  if (BytesOf(product, format) > MemoryLeft(*device) / static_cast<uint64_t>(copies)) {
    return std::vector<double>();
  }
  const auto num_out = static_cast<uint64_t>(product.num_out);
  const auto num_in = static_cast<uint64_t>(product.num_in);
  const auto most = static_cast<uint64_t>(*std::max_element(tokens.begin(), tokens.end()));
  MINISGL_ASSIGN_OR_RETURN(const std::vector<Matrix> matrices, Pack(product, copies, ops));
  const DType dtype = ops->activation_dtype();
  MINISGL_ASSIGN_OR_RETURN(const ActivationArray x,
                           ActivationArray::Make(ops, dtype, {most, num_in}));
  MINISGL_ASSIGN_OR_RETURN(
      const ActivationArray out,
      ActivationArray::Make(ops, product.is_head ? DType::kF32 : dtype, {most, num_out}));
  const uint64_t x_bytes = most * num_in * DTypeBytes(dtype);
  MINISGL_ASSIGN_OR_RETURN(const auto values,
                           weights::MakeRandomMemory(x_bytes, dtype, 0, kUnitSpread, seed + 1));
  MINISGL_RETURN_IF_ERROR(ops->Upload(x.ptr().data, values.get(), x_bytes));
  std::vector<double> seconds;
  for (const int32_t num_tokens : tokens) {
    const int launches = std::max(copies, device->on_gpu() ? kGpuProductsMin : kCpuProductsMin);
    MINISGL_ASSIGN_OR_RETURN(const double one, device->TimeLaunches(launches, repeat, [&](int i) {
      const Matrix& matrix = matrices[static_cast<size_t>(i % copies)];
      ops->Linear({.x = x.ptr(),
                   .weight = &matrix,
                   .bias = nullptr,
                   .out = out.ptr(),
                   .num_tokens = num_tokens});
    }));
    seconds.push_back(one);
  }
  return seconds;
}

namespace {

// The options with the format that --format names.
load::EngineOptions EngineOf(const BenchOptions& options, const ProductOptions& sizes) {
  load::EngineOptions engine = options.engine;
  switch (sizes.format) {
    case ProductFormat::kModel:
      break;
    case ProductFormat::kBf16:
      engine.dtype = DType::kBF16;
      break;
    case ProductFormat::kF16:
      engine.dtype = DType::kF16;
      break;
    case ProductFormat::kInt8:
      engine.quantize = Quantization::kInt8;
      break;
    case ProductFormat::kInt4:
      engine.quantize = Quantization::kInt4;
      break;
    case ProductFormat::kFp8:
    case ProductFormat::kFp8Blocks:
      break;  // ProductTimer
  }
  return engine;
}

Status ReportWay(const Way& way, const std::vector<ProductShape>& products,
                 std::span<const int32_t> tokens, const ProductTimer& timer, const Ceilings& rates,
                 BenchDevice* device, Json* results, BenchReport* report) {
  const DType dtype = device->ops()->activation_dtype();
  for (const ProductShape& product : products) {
    MINISGL_ASSIGN_OR_RETURN(const std::vector<double> times, timer.Time(product, tokens, device));
    if (times.empty()) {
      report->Line(product.name, "skipped: its weights do not fit");
      continue;
    }
    for (size_t i = 0; i < times.size(); ++i) {
      const double rate = ProductBytes(product, tokens[i], timer.format, dtype) / times[i];
      const double limit = ProductLimit(product, tokens[i], timer.format, dtype, rates);
      Json json;
      json.Set("product", product.name);
      json.Set("num_out", product.num_out);
      json.Set("num_in", product.num_in);
      json.Set("tokens", tokens[i]);
      json.Set("by", way.name);
      json.Set("seconds", times[i]);
      json.Set("bytes_per_s", rate);
      json.Set("flops_per_s", ProductFlops(product, tokens[i]) / times[i]);
      json.Set("share_of_memory", rate / rates.bytes_per_s);
      json.Set("limit_s", limit);
      json.Set("ratio_to_limit", limit / times[i]);
      results->Append(std::move(json));
      report->Line(
          fmt::format("{} x{}", product.name, tokens[i]),
          fmt::format("{:>10} by {}, {:>10}, {} of the memory's rate, {} of the limit",
                      FormatSeconds(times[i]), way.name, FormatBytesPerSecond(rate),
                      FormatPercent(rate / rates.bytes_per_s), FormatPercent(limit / times[i])));
    }
  }
  return Status();
}

}  // namespace

Status BenchProducts(const BenchOptions& options, const ProductOptions& sizes,
                     BenchReport* report) {
  MINISGL_ASSIGN_OR_RETURN(const ModelConfig config, LoadBenchConfig(options));
  const std::vector<ProductShape> products = ProductsOf(config);
  load::EngineOptions engine = EngineOf(options, sizes);
  Json results = Json(Json::Array());
  Ceilings rates;
  for (const Way& way : {Way{"the engine", false}, Way{"cuBLASLt", true}}) {
    engine.library_products = way.library;
    MINISGL_ASSIGN_OR_RETURN(BenchDevice device, BenchDevice::Open(engine, config));
    const bool gpu = device.on_gpu();
    if (way.library && !gpu) {
      report->Line(way.name, "not measured: this is no GPU");
      break;
    }
    std::vector<int32_t> tokens = sizes.tokens;
    if (tokens.empty()) {
      tokens = gpu ? std::vector<int32_t>{1, 8, 16, 64, 256} : std::vector<int32_t>{1, 8, 64};
    }
    DeviceLimits limits = kCeilingLimits;
    limits.max_tokens =
        std::max(limits.max_tokens, *std::max_element(tokens.begin(), tokens.end()));
    MINISGL_RETURN_IF_ERROR(device.Reserve(limits));
    const int64_t cold_mib = sizes.cold_mib.value_or(gpu ? kGpuWeightsMib : kCpuWeightsMib);
    const bool is_fp8 =
        sizes.format == ProductFormat::kFp8 || sizes.format == ProductFormat::kFp8Blocks;
    WeightFormat format = gpu ? WeightFormat(device.ops()->activation_dtype(), engine.quantize)
                              : load::WantedFormat(engine, config.dtype);
    if (is_fp8) format.quantization = Quantization::kStored;
    const ProductTimer timer = {.format = format,
                                .fp8_blocks = sizes.format == ProductFormat::kFp8Blocks,
                                .cold_bytes = static_cast<uint64_t>(cold_mib) * kMiB,
                                .repeat = options.repeat,
                                .seed = options.seed};
    if (!way.library) {
      MINISGL_ASSIGN_OR_RETURN(const MeasuredCeilings measured,
                               MeasureCeilings(options.ceilings, timer.format, &device));
      rates = measured.rates;
      ReportCeilings(device, measured, report);
      report->json().Set("weight_format", timer.format.Name());
      report->json().Set("cold_bytes", timer.cold_bytes);
      report->Line("weights", fmt::format("{}, {} MiB in turn", timer.format.Name(), cold_mib));
    }
    MINISGL_RETURN_IF_ERROR(
        ReportWay(way, products, tokens, timer, rates, &device, &results, report));
  }
  report->json().Set("results", std::move(results));
  return Status();
}

}  // namespace minisgl::bench
