// Layer norm.
#pragma once

#include <vector>

#include "lanes.hpp"

namespace simdist {

struct Norm {
  std::vector<float> gain, shift;

  // x (rows, width), in place. The variance is taken around the mean, as a mean far from zero
  // would leave nothing of a difference of squares.
  void apply(Lanes* x, int rows) const {
    constexpr float kEpsilon = 1e-6f;
    const int width = static_cast<int>(gain.size());
    for (int r = 0; r < rows; ++r, x += width) {
      Lanes sum = x[0], more{};
      int k = 1;
      for (; k + 2 <= width; k += 2) {
        sum += x[k];
        more += x[k + 1];
      }
      if (k < width) sum += x[k];
      const Lanes mean = (sum + more) / static_cast<float>(width);
      Lanes squares{}, more_squares{};
      for (k = 0; k + 2 <= width; k += 2) {
        const Lanes a = x[k] - mean, b = x[k + 1] - mean;
        squares += a * a;
        more_squares += b * b;
      }
      if (k < width) squares += (x[k] - mean) * (x[k] - mean);
      const Lanes variance = (squares + more_squares) / static_cast<float>(width);
      const Lanes scale = 1.0f / square_root(variance + kEpsilon);
      for (k = 0; k < width; ++k) x[k] = (x[k] - mean) * scale * gain[k] + shift[k];
    }
  }
};

}  // namespace simdist
