// Linear layers: y[row][o] = bias[row][o] + sum_k weight[o][k] x[row][k], every x and y a register
// of samples.
//
// Weights are packed as [outputs / 4][inputs][4], the last block filled up with zeros, so that the
// inner loop reads them in order. A tile of kRows rows and 4 outputs is kept in registers while the
// loop runs over the inputs: for 3 rows it takes 3 loads of x and 4 broadcasts for 12
// multiply-adds.
#pragma once

#include <algorithm>
#include <vector>

#include "lanes.hpp"

namespace simdist {

constexpr int kBlock = 4;  // outputs of one tile

inline int blocks_of(int outputs) { return (outputs + kBlock - 1) / kBlock; }
inline int padded(int outputs) { return blocks_of(outputs) * kBlock; }

// Added to the products: one row for all (step 0), or one for each row of x.
struct Bias {
  const float* rows;
  long step;
};

// A weight matrix in packed order; belongs to someone else.
struct Packed {
  const float* weight;
  int inputs;
  int outputs;
};

inline long packed_size(int inputs, int outputs) {
  return static_cast<long>(padded(outputs)) * inputs;
}

// Packs weight[o * output_step + k * input_step].
inline void pack(const float* weight, long output_step, long input_step, int inputs, int outputs,
                 float* packed) {
  for (int block = 0; block < blocks_of(outputs); ++block)
    for (int k = 0; k < inputs; ++k)
      for (int i = 0; i < kBlock; ++i) {
        const int o = block * kBlock + i;
        *packed++ = o < outputs ? weight[o * output_step + k * input_step] : 0.0f;
      }
}

// A layer with its own weights. `bias_rows` is 0 where the bias comes from outside, 1, or the
// number of positions in a sequence.
struct Linear {
  int inputs = 0, outputs = 0, bias_rows = 0;
  std::vector<float> weight, bias;

  Packed packed() const { return {weight.data(), inputs, outputs}; }
  Bias own_bias(int row = 0) const {
    const long step = bias_rows > 1 ? padded(outputs) : 0;
    return {bias.data() + row * step, step};
  }
};

enum class Finish { kStore, kAdd, kGelu };  // y = sum, y += sum, y = gelu(sum)

template <int Rows, int Blocks, Finish finish>
inline void tile(const float* weight, int inputs, const float* bias, long bias_step,
                 const Lanes* x, long x_step, Lanes* y, long y_step, int outputs) {
  constexpr int kOutputs = Blocks * kBlock;
  const long block_step = static_cast<long>(inputs) * kBlock;
  Lanes sum[Rows][kOutputs];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
    for (int o = 0; o < kOutputs; ++o) sum[r][o] = splat(bias[r * bias_step + o]);
  for (int k = 0; k < inputs; ++k) {
#pragma GCC unroll 16
    for (int o = 0; o < kOutputs; ++o) {
      const float w = weight[(o / kBlock) * block_step + k * kBlock + o % kBlock];
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r) sum[r][o] += x[r * x_step + k] * w;
    }
  }
  if constexpr (finish == Finish::kGelu) {
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
      for (int b = 0; b < Blocks; ++b) gelu<kBlock>(sum[r] + b * kBlock);
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
    for (int o = 0; o < kOutputs; ++o) {
      // Constant where it counts: only the last tile of a layer is narrower than it is packed.
      if (o >= outputs) break;
      Lanes& out = y[r * y_step + o];
      if constexpr (finish == Finish::kAdd) out += sum[r][o];
      else out = sum[r][o];
    }
}

// All outputs of `Rows` rows. A single row takes several blocks at a time, because few sums would
// wait for each other. Not inlined: all of a plan's code should stay in the instruction cache.
template <int Rows, Finish finish>
__attribute__((noinline)) void all_outputs(const Packed& layer, Bias bias, const Lanes* x,
                                           long x_step, Lanes* y, long y_step) {
  constexpr int kWide = Rows == 1 ? 3 : 1;
  const long block_step = static_cast<long>(layer.inputs) * kBlock;
  const float* weight = layer.weight;
  int o = 0;
  for (; o + kWide * kBlock <= layer.outputs; o += kWide * kBlock, weight += kWide * block_step)
    tile<Rows, kWide, finish>(weight, layer.inputs, bias.rows + o, bias.step, x, x_step, y + o,
                              y_step, kWide * kBlock);
  for (; o < layer.outputs; o += kBlock, weight += block_step)
    tile<Rows, 1, finish>(weight, layer.inputs, bias.rows + o, bias.step, x, x_step, y + o, y_step,
                          layer.outputs - o);
}

// At most kRows rows. Bias rows must be padded to whole blocks.
template <Finish finish>
inline void linear_rows(const Packed& layer, Bias bias, const Lanes* x, long x_step, Lanes* y,
                        long y_step, int rows) {
  static_assert(kRows <= 5);
  switch (rows) {
    case 1: return all_outputs<1, finish>(layer, bias, x, x_step, y, y_step);
    case 2: return all_outputs<2, finish>(layer, bias, x, x_step, y, y_step);
#define SIMDIST_ROWS(n) \
  if constexpr (kRows >= n) return all_outputs<n, finish>(layer, bias, x, x_step, y, y_step); \
  break
    case 3: SIMDIST_ROWS(3);
    case 4: SIMDIST_ROWS(4);
    case 5: SIMDIST_ROWS(5);
#undef SIMDIST_ROWS
  }
}

// Calls f(first, count) for slices of at most kRows of `rows` rows, as even as can be.
template <class F>
inline void for_slices(int rows, F f) {
  const int slices = (rows + kRows - 1) / kRows;
  for (int i = 0, first = 0; i < slices; ++i) {
    const int end = static_cast<int>(static_cast<long>(rows) * (i + 1) / slices);
    f(first, end - first);
    first = end;
  }
}

template <Finish finish = Finish::kStore>
inline void linear(const Packed& layer, Bias bias, const Lanes* x, long x_step, Lanes* y,
                   long y_step, int rows) {
  for_slices(rows, [&](int first, int count) {
    linear_rows<finish>(layer, {bias.rows + first * bias.step, bias.step}, x + first * x_step,
                        x_step, y + first * y_step, y_step, count);
  });
}

}  // namespace simdist
