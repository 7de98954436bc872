// A tile of a product (product_tile.cuh) whose weights are codes.
//
// A thread copies the codes of half a line of a row of weights, 32 bytes, several steps ahead, and
// makes their weights in a tile in shared memory for the products: of a step of 64 inputs, while
// other threads may still multiply the step before. A thread decodes what it has copied itself.
#pragma once

#include "kernels/coded_weights.cuh"
#include "kernels/product_tile.cuh"

namespace minisgl::cuda {

inline constexpr int kHalfLine = 32;      // bytes of codes: two lanes
inline constexpr int kLanesOfThread = 2;  // of a row's four
inline constexpr int kStepGroups = kStep / kCodeGroup;
static_assert(kTileThreads * kHalfLine == kTileOuts * kCodeLineBytes);

// Shared memory: steps of x, lines of codes, two steps of weights.
template <int ROWS16>
struct CodesShape {
  static constexpr int kRows = ProductShape<ROWS16>::kRows;
  static constexpr int kSteps = ProductShape<ROWS16>::kSteps;
  static constexpr size_t kTileLineBytes = size_t{kTileThreads} * kHalfLine;
  static constexpr size_t kBytes = size_t{2} * kSteps * kRows * kStep +
                                   kSteps * (kTileLineBytes + kTileLineBytes / 2) +
                                   size_t{2} * 2 * kTileOuts * kStep +
                                   (kCodeNumbers + kRows + kTileThreads / device::kWarpSize) * 4;
};

// PARAMS has `rows` and `linear`, and this x, num_in and aligned, as ExpertLinearKernelParams.
// ANY_ORDER: rows.order may be any that has shifts, and steps follow the lines; else the groups of
// a line are neighbours.
template <typename PARAMS, typename T, RowCodes KIND, CodeMath MATH, int ROWS16,
          bool ANY_ORDER = false>
class CodesTile {
 public:
  using Shape = CodesShape<ROWS16>;
  static constexpr bool kHasUpper = KIND == RowCodes::kInt6;
  static constexpr int kLineSteps = kLineGroups<KIND> / kStepGroups;  // of 64 inputs

  // `table`: of codes of 4 bits.
  MINISGL_DEVICE CodesTile(const PARAMS& p, device::SharedArena* arena)
      : p_(p),
        thread_(static_cast<int>(threadIdx.x)),
        x_tiles_(arena->Take<T>(Shape::kSteps * Shape::kRows * kStep)),
        lines_(arena->Take<uint32_t>(Shape::kSteps * kTileThreads * kHalfLine / 4)),
        upper_(arena->Take<uint32_t>(kHasUpper ? Shape::kSteps * kTileThreads * kHalfLine / 8 : 0)),
        weight_tiles_(arena->Take<T>(2 * kTileOuts * kStep)),
        table_(TakeCodeTable(p.rows, *arena)) {}

  // `row`: of the weights that this thread has (of output thread / 2), or -1.
  MINISGL_DEVICE void SetWeights(int64_t row) { row_ = row; }
  // As of ProductTile.
  template <typename RowOf>
  MINISGL_DEVICE void SetRows(const RowOf& row_of) {
#pragma unroll
    for (int i = 0; i < ROWS16; ++i) x_[i] = row_of(i * kRowsAtOnce + thread_ / kChunks);
  }

  MINISGL_DEVICE void Multiply(float (&sums)[ROWS16][2][4]) {
    const int num_steps = (p_.rows.num_in + kStep - 1) / kStep;
    const int lane = thread_ % device::kWarpSize;
    const int first_out = thread_ / device::kWarpSize * kOutsOfWarp;
#pragma unroll 1
    for (int step = 0; step < Shape::kSteps - 1; ++step) {
      if (step < num_steps) Copy(step);
      device::CopyAsyncCommit();
    }
    LoadFactors(0);
#pragma unroll 1
    for (int step = 0; step < num_steps; ++step) {
      device::CopyAsyncWait<Shape::kSteps - 2>();
      const device::Shared<T> weights = weight_tiles_ + step % 2 * kTileOuts * kStep;
      Decode(step, weights);
      __syncthreads();  // x and weights of this step are there; the previous step is multiplied
      if (step + 1 < num_steps) LoadFactors(step + 1);
      const int ahead = step + Shape::kSteps - 1;
      if (ahead < num_steps) Copy(ahead);
      device::CopyAsyncCommit();
      MultiplyTileStep<T, ROWS16>(x_tiles_ + step % Shape::kSteps * Shape::kRows * kStep,
                                  weights + first_out * kStep, lane, sums);
    }
  }

 private:
  MINISGL_DEVICE int first_lane() const { return thread_ % 2 * kLanesOfThread; }

  // Begins the copies of a step: of x, and of the line that begins with it.
  MINISGL_DEVICE void Copy(int step) {
    const int chunk = thread_ % kChunks;  // of eight inputs, as a lane's
    const int first = GroupOf(step, chunk / kLineLanes) * kCodeGroup;
    CopyTileStep<T>(x_, x_tiles_, first + chunk % kLineLanes * kLaneCodes, step % Shape::kSteps,
                    p_.linear.num_in, p_.linear.aligned, static_cast<const T*>(p_.linear.x));
    if (step % kLineSteps != 0 || row_ < 0) return;
    const int line = step / kLineSteps, place = line % Shape::kSteps * kTileThreads + thread_;
    const int64_t at = (row_ * p_.rows.num_lines + line) * kLineLanes + first_lane();
    const uint32_t* const codes = reinterpret_cast<const uint32_t*>(p_.rows.codes + at * 16);
    device::CopyAsync16(lines_ + place * (kHalfLine / 4), codes);
    device::CopyAsync16(lines_ + (place * (kHalfLine / 4) + 4), codes + 4);
    if constexpr (kHasUpper) {
      device::CopyAsync16(upper_ + place * (kHalfLine / 8),
                          reinterpret_cast<const uint32_t*>(p_.rows.upper + at * 8));
    }
  }

  // The number in the row of a group of a step, as CodeOrder::Group.
  MINISGL_DEVICE int GroupOf(int step, int group) const {
    if constexpr (!ANY_ORDER) return step * kStepGroups + group;
    const int line = step / kLineSteps, place = step % kLineSteps * kStepGroups + group;
    const int in_warps = p_.rows.order.warps - 1, in_run = p_.rows.order.run - 1;  // masks
    const int warps = __popc(static_cast<unsigned>(in_warps));
    const int run = __popc(static_cast<unsigned>(in_run));
    return ((line >> warps) * kLineGroups<KIND> << warps) + ((line & in_warps) << run) +
           (place & in_run) + (place >> run << (warps + run));
  }
  // The first input of a lane's eight in a group of a step.
  MINISGL_DEVICE int InputOf(int step, int group, int lane) const {
    return GroupOf(step, group) * kCodeGroup + (first_lane() + lane) * kLaneCodes;
  }

  // Loads what the weights of a step are made with.
  MINISGL_DEVICE void LoadFactors(int step) {
#pragma unroll
    for (int group = 0; group < kStepGroups; ++group) {
#pragma unroll
      for (int lane = 0; lane < kLanesOfThread; ++lane) {
        const int input = InputOf(step, group, lane);
        if (row_ < 0 || input >= p_.rows.num_in) continue;
        factors_[group][lane] = LoadGroupFactors(p_.rows, row_, input / p_.rows.group_inputs);
      }
    }
  }

  MINISGL_DEVICE void Decode(int step, device::Shared<T> weights) {
    const int line = step / kLineSteps, first_group = step % kLineSteps * kStepGroups;
    const int place = line % Shape::kSteps * kTileThreads + thread_;
#pragma unroll
    for (int lane = 0; lane < kLanesOfThread; ++lane) {
      LaneLine part;
      if (row_ >= 0) part = LoadLine(place, lane);
#pragma unroll
      for (int group = 0; group < kStepGroups; ++group) {
        const int input = InputOf(step, group, lane);
        device::Vec<uint32_t, 4> words = {};
        if (row_ >= 0 && input < p_.rows.num_in) {
          const GroupFactors& factors = factors_[group][lane];
          words =
              kLineSteps == 1 || first_group == 0
                  ? WordsOf<T, KIND, MATH>(p_.rows, part, group, factors, table_)
                  : WordsOf<T, KIND, MATH>(p_.rows, part, (group + kStepGroups) % kLineGroups<KIND>,
                                           factors, table_);
          if (input + kLaneCodes > p_.rows.num_in) {  // the other codes stand for no weights
#pragma unroll
            for (int i = 0; i < kLaneCodes; ++i) {
              if (input + i >= p_.rows.num_in) words[i / 2] &= i % 2 == 0 ? 0 : 0xFFFFu;
            }
          }
        }
        const int chunk = group * kLineLanes + first_lane() + lane;
        device::StoreShared((weights + TileOffset(thread_ / 2, chunk)).template As<uint32_t>(),
                            words);
      }
    }
  }

  MINISGL_DEVICE LaneLine LoadLine(int place, int lane) const {
    LaneLine part;
    part.words = device::LoadShared<4>(lines_ + (place * (kHalfLine / 4) + lane * 4));
    if constexpr (kHasUpper) {
      part.upper = device::LoadShared<2>(upper_ + (place * (kHalfLine / 8) + lane * 2));
    }
    return part;
  }

  const PARAMS& p_;
  const int thread_;
  const device::Shared<T> x_tiles_;
  const device::Shared<uint32_t> lines_, upper_;
  const device::Shared<T> weight_tiles_;
  const device::Shared<float> table_;
  int64_t row_ = -1;
  const T* x_[ROWS16];
  GroupFactors factors_[kStepGroups][kLanesOfThread];
};

}  // namespace minisgl::cuda
