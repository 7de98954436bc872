// The oracle of every other implementation of Ops: plain loops in the order of the formulas, sums
// in double, one thread. Slow on purpose; nothing here is clever, so that reading it is enough to
// trust it.
//
// Weights are kept as the floats that the asked-for dtype rounds them to: an implementation that
// stores bf16 is compared with exactly the numbers it has.
#include <cmath>
#include <limits>
#include <vector>

#include "cpu/memory.h"
#include "cpu/sampler.h"
#include "minisgl/ops.h"

namespace minisgl {
namespace {

float RoundTo(DType dtype, float value) {
  switch (dtype) {
    case DType::kBF16:
      return Bf16ToFloat(FloatToBf16(value));
    case DType::kF16:
      return F16ToFloat(FloatToF16(value));
    case DType::kF32:
      break;
  }
  return value;
}

// Element `index` of activations of any dtype, and back with rounding to nearest.
double Get(ConstActivationPtr x, int64_t index) {
  switch (x.dtype) {
    case DType::kBF16:
      return Bf16ToFloat(x.as<uint16_t>()[index]);
    case DType::kF16:
      return F16ToFloat(x.as<uint16_t>()[index]);
    case DType::kF32:
      break;
  }
  return x.as<float>()[index];
}

void Put(ActivationPtr x, int64_t index, double value) {
  const auto rounded = static_cast<float>(value);
  switch (x.dtype) {
    case DType::kBF16:
      x.as<uint16_t>()[index] = FloatToBf16(rounded);
      return;
    case DType::kF16:
      x.as<uint16_t>()[index] = FloatToF16(rounded);
      return;
    case DType::kF32:
      x.as<float>()[index] = rounded;
  }
}

const float* Elements(const Matrix& matrix) {
  return static_cast<const std::vector<float>*>(matrix.storage.get())->data();
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// GELU in its tanh form, 0.5 x (1 + tanh(u)), is x * sigmoid(2u): the same without cancellation.
double Activate(Activation activation, double x) {
  if (activation == Activation::kSilu) return x * Sigmoid(x);
  constexpr double kSqrt2OverPi = 0.79788456080286535588;
  return x * Sigmoid(2 * kSqrt2OverPi * (x + 0.044715 * x * x * x));
}

// The element where slot `slot` keeps head `head`'s key; its value lies v_offset further.
int64_t KeyAt(const KvLayer& kv, int64_t slot, int64_t head) {
  return slot / kv.page_size * kv.page_stride + slot % kv.page_size * kv.slot_stride +
         head * kv.head_stride;
}

class NaiveOps : public Ops {
 public:
  explicit NaiveOps(DType activation_dtype) : activation_dtype_(activation_dtype) {}

  DType activation_dtype() const override { return activation_dtype_; }
  std::string Name() const override { return "cpu (naive)"; }

  Result<std::shared_ptr<void>> Allocate(size_t num_bytes) override {
    return AllocateZeroed(num_bytes);
  }

  Result<Matrix> PackMatrix(std::span<const TensorView> parts, DType dtype) override {
    Matrix matrix{.num_in = parts[0].shape[1], .dtype = dtype};
    auto elements = std::make_shared<std::vector<float>>();
    for (const TensorView& part : parts) {
      matrix.num_out += part.shape[0];
      for (int64_t i = 0; i < part.num_elements(); ++i) {
        elements->push_back(RoundTo(dtype, part.At(i)));
      }
    }
    matrix.storage = std::move(elements);
    return matrix;
  }

  Result<Matrix> PackEmbedding(const TensorView& table, DType dtype) override {
    return PackMatrix({&table, 1}, dtype);
  }

  void Embedding(const EmbeddingParams& p) override {
    const int64_t width = p.table->num_in;
    for (int64_t t = 0; t < p.num_tokens; ++t) {
      const float* row = Elements(*p.table) + p.ids[t] * width;
      for (int64_t i = 0; i < width; ++i) p.out[t * width + i] = row[i] * p.scale;
    }
  }

  void RmsNorm(const RmsNormParams& p) override {
    std::vector<double> v(static_cast<size_t>(p.width));
    for (int64_t t = 0; t < p.num_tokens; ++t) {
      for (int64_t i = 0; i < p.width; ++i) {
        const int64_t at = t * p.width + i;
        v[i] = p.x == nullptr ? 0 : Get(p.x, at);
        if (p.residual == nullptr) continue;
        p.residual[at] = static_cast<float>(p.residual[at] + v[i]);
        v[i] = p.residual[at];
      }
      Normalize(p.weight, p.eps, &v);
      for (int64_t i = 0; i < p.width; ++i) Put(p.out, t * p.width + i, v[i]);
    }
  }

  void Linear(const LinearParams& p) override {
    const int64_t num_in = p.weight->num_in, num_out = p.weight->num_out;
    for (int64_t t = 0; t < p.num_tokens; ++t) {
      for (int64_t o = 0; o < num_out; ++o) {
        const float* w = Elements(*p.weight) + o * num_in;
        double sum = 0;
        for (int64_t i = 0; i < num_in; ++i) sum += Get(p.x, t * num_in + i) * w[i];
        if (p.bias != nullptr) sum += p.bias[o];
        Put(p.out, t * num_out + o, sum);
      }
    }
  }

  void RopeKvWrite(const RopeKvWriteParams& p) override {
    const int64_t token_width = int64_t{p.num_heads + 2 * p.num_kv_heads} * p.head_dim;
    const int64_t key_offset = int64_t{p.num_heads} * p.head_dim;
    const int64_t value_offset = key_offset + int64_t{p.num_kv_heads} * p.head_dim;
    for (int64_t t = 0; t < p.num_tokens; ++t) {
      const int64_t token = t * token_width;
      for (int32_t h = 0; h < p.num_heads; ++h) {
        const int64_t head = token + h * p.head_dim;
        Rotate(p, t, head, p.q_norm, p.qkv, head);
      }
      for (int32_t h = 0; h < p.num_kv_heads; ++h) {
        const int64_t key = token + key_offset + h * p.head_dim;
        const int64_t slot = KeyAt(p.kv, p.slots[t], h);
        Rotate(p, t, key, p.k_norm, p.kv.base, slot);
        for (int32_t e = 0; e < p.head_dim; ++e) {
          Put(p.kv.base, slot + p.kv.v_offset + e,
              Get(p.qkv, token + value_offset + h * p.head_dim + e));
        }
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

  void GatedActivation(const GatedActivationParams& p) override {
    for (int64_t t = 0; t < p.num_tokens; ++t) {
      const int64_t gate = t * 2 * p.width;
      for (int64_t i = 0; i < p.width; ++i) {
        Put(p.out, t * p.width + i,
            Activate(p.activation, Get(p.gate_up, gate + i)) * Get(p.gate_up, gate + p.width + i));
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

  void Sample(const SampleParams& p) override {
    for (int64_t i = 0; i < p.num_rows; ++i) {
      sampler_.SampleRow({.logits = p.logits + i * p.vocab_size,
                          .vocab_size = p.vocab_size,
                          .sampling = p.sampling[i],
                          .history = p.history[i],
                          .prompt_len = p.prompt_len[i],
                          .history_len = p.history_len[i]},
                         &p.results[i]);
    }
  }

 private:
  static void Normalize(const float* weight, double eps, std::vector<double>* v) {
    double sum_of_squares = 0;
    for (const double x : *v) sum_of_squares += x * x;
    const double scale = 1 / std::sqrt(sum_of_squares / static_cast<double>(v->size()) + eps);
    for (size_t i = 0; i < v->size(); ++i) (*v)[i] *= scale * weight[i];
  }

  // The head at element `from` of qkv, normalised where `norm` is given, then rotated, to element
  // `to` of `out`.
  static void Rotate(const RopeKvWriteParams& p, int64_t token, int64_t from, const float* norm,
                     ActivationPtr out, int64_t to) {
    std::vector<double> x(static_cast<size_t>(p.head_dim));
    for (int32_t e = 0; e < p.head_dim; ++e) x[e] = Get(p.qkv, from + e);
    if (norm != nullptr) Normalize(norm, p.norm_eps, &x);
    const int32_t half = p.rotary_dim / 2;
    const int64_t row = int64_t{p.positions[token]} * half;
    for (int32_t i = 0; i < half; ++i) {
      const double a = x[i], b = x[i + half], cos = p.cos[row + i], sin = p.sin[row + i];
      x[i] = a * cos - b * sin;
      x[i + half] = b * cos + a * sin;
    }
    for (int32_t e = 0; e < p.head_dim; ++e) Put(out, to + e, x[e]);
  }

  // Softmax over the keys that the token may see, in the two passes of the definition.
  void AttendOne(const AttentionParams& p, int64_t table_row, int64_t token, int64_t position,
                 int32_t head) {
    const int32_t kv_head = head / (p.num_heads / p.num_kv_heads);
    const int64_t token_width = int64_t{p.num_heads + 2 * p.num_kv_heads} * p.head_dim;
    const int64_t q = token * token_width + head * p.head_dim;
    const int64_t first =
        p.sliding_window > 0 ? std::max<int64_t>(0, position - p.sliding_window + 1) : 0;
    const auto key_at = [&](int64_t key) {
      const int64_t page = p.page_table[table_row * p.page_table_stride + key / p.kv.page_size];
      return KeyAt(p.kv, page * p.kv.page_size + key % p.kv.page_size, kv_head);
    };

    scores_.clear();
    double largest = p.sinks != nullptr ? p.sinks[head] : -std::numeric_limits<double>::infinity();
    for (int64_t key = first; key <= position; ++key) {
      const int64_t k = key_at(key);
      double score = 0;
      for (int32_t e = 0; e < p.head_dim; ++e) score += Get(p.qkv, q + e) * Get(p.kv.base, k + e);
      score *= p.scale;
      if (p.logit_softcap > 0) score = p.logit_softcap * std::tanh(score / p.logit_softcap);
      scores_.push_back(score);
      largest = std::max(largest, score);
    }

    double total = p.sinks != nullptr ? std::exp(p.sinks[head] - largest) : 0;
    std::vector<double> sum(p.head_dim, 0.0);
    for (int64_t key = first; key <= position; ++key) {
      const double weight = std::exp(scores_[key - first] - largest);
      const int64_t v = key_at(key) + p.kv.v_offset;
      total += weight;
      for (int32_t e = 0; e < p.head_dim; ++e) sum[e] += weight * Get(p.kv.base, v + e);
    }
    const int64_t out = (token * p.num_heads + head) * p.head_dim;
    for (int32_t e = 0; e < p.head_dim; ++e) Put(p.out, out + e, sum[e] / total);
  }

  const DType activation_dtype_;
  Sampler sampler_;
  std::vector<double> scores_;
};

}  // namespace

std::unique_ptr<Ops> MakeNaiveOps(DType activation_dtype) {
  return std::make_unique<NaiveOps>(activation_dtype);
}

}  // namespace minisgl
