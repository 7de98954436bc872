// The oracle for every other implementation of Ops: plain loops in the order of the formulas, sums
// in double, one thread. Slow on purpose: the code is simple enough to be trusted by reading it.
//
// Weights are stored as floats, rounded to the requested format: an implementation that stores bf16
// is compared with exactly the numbers that it uses.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "cpu/memory.h"
#include "cpu/naive_keys.h"
#include "cpu/naive_low_rank.h"
#include "cpu/naive_sampler.h"
#include "cpu/naive_states.h"
#include "cpu/naive_towers.h"
#include "cpu/naive_values.h"
#include "cpu/token_rows.h"
#include "minisgl/ops.h"
#include "tensor/quantize.h"

namespace minisgl::cpu {
namespace {

float RoundTo(DType dtype, float value) {
  switch (dtype) {
    case DType::kBF16:
      return Bf16ToFloat(FloatToBf16(value));
    case DType::kF16:
      return F16ToFloat(FloatToF16(value));
    default:
      break;
  }
  return value;
}

// The elements of a Matrix, or of ExpertMatrices: one expert after another.
template <typename Matrices>
const float* Elements(const Matrices& matrices) {
  return static_cast<const std::vector<float>*>(matrices.storage.get())->data();
}

// Replaces the values of one row by their quantized values, block by block.
template <typename Quantize>
void RoundBlocks(float* values, int64_t count, const Quantize& quantize) {
  for (int64_t first = 0; first < count; first += kQuantBlock) {
    int8_t q[kQuantBlock];
    const int64_t length = std::min(kQuantBlock, count - first);
    const float scale = quantize(values + first, length, q);
    for (int64_t i = 0; i < length; ++i) values[first + i] = scale * static_cast<float>(q[i]);
  }
}

void Append(std::span<const WeightTensor> parts, const WeightFormat& format,
            std::vector<float>* elements) {
  for (const WeightTensor& part : parts) {
    std::vector<float> row(static_cast<size_t>(part.num_in()));
    for (int64_t out = 0; out < part.num_out(); ++out) {
      part.ReadRow(out, row.data());
      if (format.quantization == Quantization::kInt8) {
        RoundBlocks(row.data(), part.num_in(), [](const float* block, int64_t count, int8_t* q) {
          return Bf16ToFloat(tensor::QuantizeWeights(block, count, q));
        });
      } else {
        if (format.quantization == Quantization::kInt4) {
          RoundBlocks(row.data(), part.num_in(), [](const float* block, int64_t count, int8_t* q) {
            return Bf16ToFloat(tensor::QuantizeWeightsInt4(block, count, q));
          });
        }
        for (float& value : row) value = RoundTo(format.dtype, value);
      }
      elements->insert(elements->end(), row.begin(), row.end());
    }
  }
}

// `count` values of x from `first` on, quantized if a product with `weights` quantizes them.
template <typename Matrices>
std::vector<double> InputOf(const Matrices& weights, ConstActivationPtr x, int64_t first,
                            int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(Get(x, first + i));
  if (weights.quantization == Quantization::kInt8) {
    RoundBlocks(values.data(), count, tensor::QuantizeActivations);
  }
  return {values.begin(), values.end()};
}

constexpr double kSqrtHalf = 0.70710678118654752440;
constexpr double kSqrt2OverPi = 0.79788456080286535588;

double Act(const ActivateParams& p, double x) {
  switch (p.activation) {
    case Activation::kSilu:
      return x * NaiveSigmoid(x);
    case Activation::kGelu:  // 0.5 x (1 + erf(x / sqrt(2))) without cancellation
      return 0.5 * x * std::erfc(-x * kSqrtHalf);
    case Activation::kGeluTanh:  // 0.5 x (1 + tanh(u)) is x * sigmoid(2u): no cancellation
      return x * NaiveSigmoid(2 * kSqrt2OverPi * (x + 0.044715 * x * x * x));
    case Activation::kRelu2:
      return x < 0 ? 0 : x * x;
    case Activation::kClampedSwiglu: {
      const double gate = x > p.limit ? p.limit : x;
      return gate * NaiveSigmoid(1.702 * gate);
    }
    case Activation::kSigmoid:
      return NaiveSigmoid(x);
    case Activation::kXielu: {
      const XieluParams& xielu = p.xielu;
      if (x > 0) return xielu.positive * x * x + xielu.linear * x;
      const double least = x < xielu.min ? x : xielu.min;
      return xielu.negative * (std::expm1(least) - x) + xielu.linear * x;
    }
  }
  return x;
}

// The factor that the activation of the gate is multiplied by.
double Up(const ActivateParams& p, double x) {
  if (p.activation != Activation::kClampedSwiglu) return x;
  return (x > p.limit ? p.limit : x < -p.limit ? -p.limit : x) + 1;
}

class NaiveOps : public Ops {
 public:
  NaiveOps(DType activation_dtype, HostRank rank)
      : activation_dtype_(activation_dtype), rank_(std::move(rank)) {}

  DType activation_dtype() const override { return activation_dtype_; }
  std::string Name() const override { return "cpu (naive)"; }

  Result<std::shared_ptr<void>> Allocate(size_t num_bytes) override {
    return AllocateZeroed(num_bytes);
  }

  Result<Matrix> PackMatrix(std::span<const WeightTensor> parts,
                            const WeightFormat& format) override {
    Matrix matrix{
        .num_in = parts[0].num_in(), .dtype = format.dtype, .quantization = format.quantization};
    for (const WeightTensor& part : parts) matrix.num_out += part.num_out();
    auto elements = std::make_shared<std::vector<float>>();
    Append(parts, format, elements.get());
    matrix.storage = std::move(elements);
    return matrix;
  }

  Result<ExpertMatrices> PackExperts(std::span<const std::vector<WeightTensor>> experts,
                                     const WeightFormat& format) override {
    ExpertMatrices matrices{.num_experts = std::ssize(experts),
                            .num_in = experts[0][0].num_in(),
                            .dtype = format.dtype,
                            .quantization = format.quantization};
    for (const WeightTensor& part : experts[0]) matrices.num_out += part.num_out();
    auto elements = std::make_shared<std::vector<float>>();
    for (const auto& parts : experts) Append(parts, format, elements.get());
    matrices.storage = std::move(elements);
    return matrices;
  }

  Result<Matrix> PackEmbedding(const WeightTensor& table, const WeightFormat& format) override {
    return PackMatrix({&table, 1}, format);
  }

  void Embedding(const EmbeddingParams& p) override {
    const int64_t width = p.table == nullptr ? p.stored->num_in() : p.table->num_in;
    std::vector<float> stored(static_cast<size_t>(width));
    const int64_t num_ids = p.table == nullptr ? p.stored->num_out() : p.table->num_out;
    for (int64_t t = 0; t < p.num_tokens; ++t) {
      const int64_t id = p.ids[t] - p.first_id;
      const bool has_row = id >= 0 && id < num_ids;
      if (p.table == nullptr && has_row) p.stored->ReadRow(id, stored.data());
      const float* row =
          p.table == nullptr || !has_row ? stored.data() : Elements(*p.table) + id * width;
      for (int64_t i = 0; i < width; ++i) p.out[t * width + i] = has_row ? row[i] * p.scale : 0;
    }
  }

  // The first rank sums, and the others wait for it.
  void AllReduce(const AllReduceParams& p) override {
    const std::span<void* const> parts = rank_.rendezvous->Meet(rank_.index, p.x.f32());
    for (int64_t i = 0; rank_.index == 0 && i < p.count; ++i) {
      double sum = 0;
      for (const void* part : parts) sum += static_cast<const float*>(part)[i];
      for (void* part : parts) static_cast<float*>(part)[i] = static_cast<float>(sum);
    }
    rank_.rendezvous->Meet(rank_.index, nullptr);
  }
  void MeanSquares(const MeanSquaresParams& p) override {
    const int64_t stride = p.stride == 0 ? p.width : p.stride;
    for (int64_t t = 0; t < p.num_tokens; ++t) {
      double sum = 0;
      for (int64_t i = 0; i < p.width; ++i) {
        const double x = Get(p.x, t * stride + i);
        sum += x * x;
      }
      p.out[t] = static_cast<float>(p.share * sum / static_cast<double>(p.width));
    }
  }
  void GatherColumns(const GatherColumnsParams& p) override {
    auto* const out = static_cast<float*>(rank_.rendezvous->Meet(rank_.index, p.out)[0]);
    for (int64_t t = 0; t < p.num_tokens; ++t) {
      for (int64_t i = 0; i < p.width; ++i) {
        out[t * p.out_stride + p.first + i] = p.x[t * p.width + i];
      }
    }
    rank_.rendezvous->Meet(rank_.index, nullptr);
  }

  void Norm(const NormParams& p) override {
    const int64_t stride = p.stride == 0 ? p.width : p.stride;
    std::vector<double> v(static_cast<size_t>(p.width));
    for (int64_t t = 0; t < p.num_tokens; ++t) {
      for (int64_t i = 0; i < p.width; ++i) {
        v[i] = p.x == nullptr ? 0 : Get(p.x, t * stride + i);
        if (p.residual == nullptr) continue;
        float& residual = p.residual[t * p.width + i];
        residual = static_cast<float>((residual + static_cast<double>(p.x_scale) * v[i]) *
                                      p.residual_factor);
        v[i] = residual;
      }
      if (p.out == nullptr) continue;
      if (p.weight != nullptr) {
        NormalizeGroups(p, p.mean_squares == nullptr ? nullptr : p.mean_squares + t, &v);
      }
      for (int64_t i = 0; i < p.width; ++i) Put(p.out, t * stride + i, v[i]);
    }
  }

  void Linear(const LinearParams& p) override {
    const int64_t num_in = p.weight->num_in, num_out = p.weight->num_out;
    for (int64_t t = 0; t < p.num_tokens; ++t) {
      const std::vector<double> x = InputOf(*p.weight, p.x, t * num_in, num_in);
      for (int64_t o = 0; o < num_out; ++o) {
        const float* w = Elements(*p.weight) + o * num_in;
        double sum = 0;
        for (int64_t i = 0; i < num_in; ++i) sum += x[i] * w[i];
        if (p.bias != nullptr) sum += p.bias[o];
        Put(p.out, t * (p.out_stride == 0 ? num_out : p.out_stride) + o, sum);
      }
    }
  }

  void RopeKvWrite(const RopeKvWriteParams& p) override {
    const int64_t token_width = p.token_width(), value_dim = p.value_dim();
    const int64_t key_offset = int64_t{p.num_heads} * p.head_dim;
    const int64_t value_offset = key_offset + int64_t{p.num_kv_heads} * p.head_dim;
    for (int64_t t = 0; t < p.num_tokens; ++t) {
      const int64_t token = t * token_width;
      const double query_scale = p.query_scale == nullptr ? 1 : p.query_scale[p.positions[t]];
      for (int32_t h = 0; h < p.num_heads; ++h) {
        const int64_t head = token + h * p.head_dim;
        const std::vector<double> q = Rotated(p, t, head, p.q_norm, query_scale);
        for (int32_t e = 0; e < p.head_dim; ++e) Put(p.qkv, head + e, q[e]);
      }
      for (int32_t h = 0; h < p.num_kv_heads; ++h) {
        const int64_t key = token + key_offset + h * p.head_dim;
        PutKv(p.kv, KeyAt(p.kv, p.slots[t], h), ScaleAt(p.kv, p.slots[t], h, p.kv.k_scales),
              Rotated(p, t, key, p.k_norm, 1));
        std::vector<double> value(static_cast<size_t>(value_dim));
        for (int64_t e = 0; e < value_dim; ++e) {
          value[e] = Get(p.qkv, token + value_offset + h * value_dim + e);
        }
        PutKv(p.kv, ValueAt(p.kv, p.slots[t], h), ScaleAt(p.kv, p.slots[t], h, p.kv.v_scales),
              value);
      }
    }
  }

  void Attention(const AttentionParams& p) override {
    for (int32_t row = 0; row < p.num_rows; ++row) {
      const int32_t begin = p.row_begin[row], end = p.row_begin[row + 1];
      for (int32_t t = begin; t < end; ++t) {
        const int64_t position = p.kv_len[row] - (end - t);
        for (int32_t head = 0; head < p.num_heads; ++head) {
          AttendOne(p, p.table_row[row], t, position, head);
        }
      }
    }
  }

  void Activate(const ActivateParams& p) override {
    const int64_t in_width = p.gated ? 2 * p.width : p.width;
    for (int64_t t = 0; t < p.num_tokens; ++t) {
      for (int64_t i = 0; i < p.width; ++i) {
        const int64_t gate = t * in_width + i;
        double value = Act(p, p.gate_scale * Get(p.gate_up, gate));
        if (p.gated) value *= Up(p, Get(p.gate_up, gate + p.width));
        if (p.up != nullptr) value *= Get(p.up, t * p.up_stride + i);
        Put(p.out, t * p.width + i, value);
      }
    }
  }

  void Softcap(const SoftcapParams& p) override {
    for (int64_t i = 0; i < p.count; ++i) {
      p.values[i] = static_cast<float>(p.cap * std::tanh(double{p.values[i]} / p.cap));
    }
  }

  void Route(const RouteParams& p) override {
    const auto count = static_cast<size_t>(p.num_experts);
    for (int64_t t = 0; t < p.num_tokens; ++t) {
      const std::span<const float> logits(p.logits + t * p.num_experts, count);
      const std::vector<double> scores = Scores(p.routing.score, logits);
      std::vector<float> values(logits.begin(), logits.end());
      if (!ChoosesByLogits(p)) {
        for (size_t e = 0; e < count; ++e) {
          values[e] = static_cast<float>(scores[e]) + (p.bias == nullptr ? 0 : p.bias[e]);
        }
      }
      std::vector<int32_t> order = Descending(values);
      const std::vector<bool> may_choose = ChosenGroups(p, values, order);
      std::erase_if(order, [&](int32_t e) { return !may_choose[GroupOf(p, e)]; });
      double sum = 0;
      for (int32_t k = 0; k < p.num_chosen; ++k) sum += scores[order[k]];
      for (int32_t k = 0; k < p.num_chosen; ++k) {
        const int64_t at = t * p.num_chosen + k;
        p.experts[at] = order[k];
        const double shared = std::max<double>(sum + p.routing.sum_eps, p.routing.sum_min);
        const double divisor = p.routing.renormalize ? shared : 1;
        const double scale = p.expert_scale == nullptr ? 1 : p.expert_scale[order[k]];
        p.shares[at] = static_cast<float>(p.routing.factor * scores[order[k]] / divisor * scale);
      }
    }
  }

  void ExpertLinear(const ExpertLinearParams& p) override {
    const int64_t num_in = p.weights->num_in, num_out = p.weights->num_out;
    for (int64_t pair = 0; pair < p.num_tokens * p.num_chosen; ++pair) {
      const int64_t row = p.x_per_choice ? pair : pair / p.num_chosen;
      const std::vector<double> x = InputOf(*p.weights, p.x, row * num_in, num_in);
      const int64_t expert = p.experts[pair];
      for (int64_t o = 0; o < num_out; ++o) {
        const float* w = Elements(*p.weights) + (expert * num_out + o) * num_in;
        double sum = 0;
        for (int64_t i = 0; i < num_in; ++i) sum += x[i] * w[i];
        if (p.bias != nullptr) sum += p.bias[expert * num_out + o];
        Put(p.out, pair * num_out + o, sum);
      }
    }
  }

  void HeadLinear(const HeadLinearParams& p) override {
    const int64_t num_heads = p.weights->num_experts, num_in = p.weights->num_in;
    const int64_t num_out = p.weights->num_out, copied = p.num_copied;
    const int64_t out_stride = p.out_stride == 0 ? num_heads * (copied + num_out) : p.out_stride;
    for (int64_t t = 0; t < p.num_tokens; ++t) {
      for (int64_t h = 0; h < num_heads; ++h) {
        const int64_t x = (t * num_heads + h) * (copied + num_in);
        const int64_t out = t * out_stride + h * (copied + num_out);
        for (int64_t c = 0; c < copied; ++c) Put(p.out, out + c, Get(p.x, x + c));
        for (int64_t o = 0; o < num_out; ++o) {
          const float* w = Elements(*p.weights) + (h * num_out + o) * num_in;
          double sum = 0;
          for (int64_t i = 0; i < num_in; ++i) sum += Get(p.x, x + copied + i) * w[i];
          Put(p.out, out + copied + o, sum);
        }
      }
    }
  }

  void CombineExperts(const CombineExpertsParams& p) override {
    for (int64_t t = 0; t < p.num_tokens; ++t) {
      const double gate = p.shared_gate == nullptr ? 1 : NaiveSigmoid(p.shared_gate[t]);
      for (int64_t i = 0; i < p.width; ++i) {
        double sum = 0;
        for (int64_t pair = t * p.num_chosen; pair < (t + 1) * p.num_chosen; ++pair) {
          sum += p.shares[pair] * Get(p.x, pair * p.width + i);
        }
        if (p.shared != nullptr) sum += gate * Get(p.shared, t * p.width + i);
        Put(p.out, t * p.width + i, sum);
      }
    }
  }

  void GatherRows(const GatherRowsParams& p) override {
    for (int64_t i = 0; i < p.num_rows; ++i) {
      for (int64_t d = 0; d < p.width; ++d) {
        Put(p.out, i * p.width + d, Get(p.x, p.rows[i] * p.width + d));
      }
    }
  }

  void PlaceRows(const PlaceRowsParams& p) override { PlaceHostRows(p); }
  void MixRotary(const MixRotaryParams& p) override { MixHostRotary(p); }
  void LowRank(const LowRankParams& p) override { NaiveLowRank(p); }
  void SlotLowRank(const SlotLowRankParams& p) override { NaiveSlotLowRank(p); }
  void SlotEmbeddings(const SlotEmbeddingParams& p) override { NaiveSlotEmbeddings(p); }
  void SegmentAttention(const SegmentAttentionParams& p) override { NaiveSegmentAttention(p); }
  void MixRows(const MixRowsParams& p) override { NaiveMixRows(p); }
  void Clamp(const ClampParams& p) override { NaiveClamp(p); }

  void ShortConv(const ShortConvParams& p) override { NaiveShortConv(p); }
  void Recurrence(const RecurrenceParams& p) override { NaiveRecurrence(p); }

  void Sample(const SampleParams& p) override {
    for (int64_t i = 0; i < p.num_rows; ++i) {
      NaiveSampleRow({.logits = p.logits + i * p.vocab_size,
                      .vocab_size = p.vocab_size,
                      .sampling = p.sampling[i],
                      .history = p.history[i],
                      .prompt_len = p.prompt_len[i],
                      .history_len = p.history_len[i],
                      .given = p.given == nullptr ? -1 : p.given[i],
                      .mask = p.masks == nullptr ? nullptr : p.masks[i]},
                     &p.results[i]);
    }
  }

 private:
  static std::vector<double> Scores(RouteScore kind, std::span<const float> logits) {
    std::vector<double> scores(logits.begin(), logits.end());
    if (kind == RouteScore::kSigmoid) {
      for (double& score : scores) score = NaiveSigmoid(score);
      return scores;
    }
    const double largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (double& score : scores) sum += score = std::exp(score - largest);
    for (double& score : scores) score /= sum;
    return scores;
  }

  // The indices of `values`, the largest value first, equal ones in ascending order.
  static std::vector<int32_t> Descending(const std::vector<float>& values) {
    std::vector<int32_t> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      // NaN ranks before all numbers, so that the token's shares and results become NaN.
      if (std::isnan(values[a]) || std::isnan(values[b])) return !std::isnan(values[b]);
      return values[a] > values[b];
    });
    return order;
  }

  static size_t GroupOf(const RouteParams& p, int32_t expert) {
    return static_cast<size_t>(expert / (p.num_experts / p.routing.num_groups));
  }

  // For each group, true if experts may be chosen from it. `order`: of all experts.
  static std::vector<bool> ChosenGroups(const RouteParams& p, const std::vector<float>& values,
                                        const std::vector<int32_t>& order) {
    const auto num_groups = static_cast<size_t>(p.routing.num_groups);
    std::vector<float> sums(num_groups, 0);
    std::vector<int32_t> counted(num_groups, 0);
    for (const int32_t e : order) {
      const size_t group = GroupOf(p, e);
      if (counted[group]++ < p.routing.best_of_group) sums[group] += values[e];
    }
    const std::vector<int32_t> groups = Descending(sums);
    std::vector<bool> may_choose(num_groups, false);
    for (int32_t i = 0; i < p.routing.num_chosen_groups; ++i) may_choose[groups[i]] = true;
    return may_choose;
  }

  // RMS norm over all of `v`.
  static void Normalize(const float* weight, double eps, std::vector<double>* v) {
    double sum_of_squares = 0;
    for (const double x : *v) sum_of_squares += x * x;
    const double scale = 1 / std::sqrt(sum_of_squares / static_cast<double>(v->size()) + eps);
    for (size_t i = 0; i < v->size(); ++i) (*v)[i] *= scale * weight[i];
  }

  // Normalises one token's features, group by group. `mean_square`: over all ranks, or null.
  static void NormalizeGroups(const NormParams& p, const float* mean_square,
                              std::vector<double>* v) {
    const int64_t width = p.group_width == 0 ? p.width : p.group_width;
    for (int64_t begin = 0; begin < p.width; begin += width) {
      const std::span<double> group(v->data() + begin, static_cast<size_t>(width));
      if (p.kind == NormKind::kLayer) {
        double sum = 0;
        for (const double x : group) sum += x;
        for (double& x : group) x -= sum / static_cast<double>(width);
      }
      double sum_of_squares = 0;
      for (const double x : group) sum_of_squares += x * x;
      const double mean =
          mean_square == nullptr ? sum_of_squares / static_cast<double>(width) : *mean_square;
      const double scale = 1 / std::sqrt(mean + p.eps);
      for (int64_t i = 0; i < width; ++i) {
        group[i] *= scale * p.weight[begin + i];
        if (p.bias != nullptr) group[i] += p.bias[begin + i];
      }
    }
  }

  // Reads the head at element `from` of qkv, normalises it if `norm` is given, rotates it, and
  // multiplies it by `scale`.
  static std::vector<double> Rotated(const RopeKvWriteParams& p, int64_t token, int64_t from,
                                     const float* norm, double scale) {
    std::vector<double> x(static_cast<size_t>(p.head_dim));
    for (int32_t e = 0; e < p.head_dim; ++e) x[e] = Get(p.qkv, from + e);
    if (norm != nullptr && !p.norm_last) Normalize(norm, p.norm_eps, &x);
    const int32_t half = p.cos == nullptr ? 0 : p.rotary_dim / 2;
    const int64_t row = int64_t{p.positions[token]} * half;
    for (int32_t i = 0; i < half; ++i) {
      const double a = x[i], b = x[i + half], cos = p.cos[row + i], sin = p.sin[row + i];
      x[i] = a * cos - b * sin;
      x[i + half] = b * cos + a * sin;
    }
    if (norm != nullptr && p.norm_last) Normalize(norm, p.norm_eps, &x);
    for (double& element : x) element *= scale;
    return x;
  }

  // Softmax over the keys that the token sees, in the two passes of the definition.
  void AttendOne(const AttentionParams& p, int64_t table_row, int64_t token, int64_t position,
                 int32_t head) {
    const int32_t kv_head = head / (p.num_heads / p.num_kv_heads);
    const int64_t q = token * p.token_width() + head * p.head_dim;
    const int64_t first =
        std::max<int64_t>(p.first_key, p.sliding_window > 0 ? position - p.sliding_window + 1 : 0);
    const int64_t key_end = p.key_end != nullptr ? p.key_end[token] : position + 1;
    const auto slot_of = [&](int64_t key) {
      const int64_t page = p.page_table[table_row * p.page_table_stride + key / p.kv.page_size];
      return page * p.kv.page_size + key % p.kv.page_size;
    };

    scores_.clear();
    double largest = p.sinks != nullptr ? p.sinks[head] : -std::numeric_limits<double>::infinity();
    for (int64_t key = first; key < key_end; ++key) {
      const int64_t k = KeyAt(p.kv, slot_of(key), kv_head);
      const int64_t scale = ScaleAt(p.kv, slot_of(key), kv_head, p.kv.k_scales);
      double score = 0;
      for (int32_t e = 0; e < p.head_dim; ++e) {
        score += Get(p.qkv, q + e) * GetKv(p.kv, k, scale, e);
      }
      score *= p.scale;
      if (p.distance_bias != nullptr) {
        score += p.distance_bias[head * p.distance_stride + p.distance_origin + key - position];
      }
      if (p.logit_softcap > 0) score = p.logit_softcap * std::tanh(score / p.logit_softcap);
      scores_.push_back(score);
      largest = std::max(largest, score);
    }

    double total = p.sinks != nullptr ? std::exp(p.sinks[head] - largest) : 0;
    const int64_t value_dim = p.value_dim();
    std::vector<double> sum(static_cast<size_t>(value_dim), 0.0);
    for (int64_t key = first; key < key_end; ++key) {
      const double weight = std::exp(scores_[key - first] - largest);
      const int64_t v = ValueAt(p.kv, slot_of(key), kv_head);
      const int64_t scale = ScaleAt(p.kv, slot_of(key), kv_head, p.kv.v_scales);
      total += weight;
      for (int64_t e = 0; e < value_dim; ++e) sum[e] += weight * GetKv(p.kv, v, scale, e);
    }
    const int64_t out = (token * p.num_heads + head) * value_dim;
    for (int64_t e = 0; e < value_dim; ++e) Put(p.out, out + e, sum[e] / total);
  }

  const DType activation_dtype_;
  const HostRank rank_;
  std::vector<double> scores_;
};

}  // namespace
}  // namespace minisgl::cpu

namespace minisgl {

std::unique_ptr<Ops> MakeNaiveOps(DType activation_dtype, const HostRank& rank) {
  MINISGL_CHECK(rank.count() == 1 || activation_dtype == DType::kF32, "ranks of {}",
                DTypeName(activation_dtype));
  return std::make_unique<cpu::NaiveOps>(activation_dtype, rank);
}

}  // namespace minisgl
