// Attention of one head. Queries come scaled by 1 / sqrt(width).
#pragma once

#include "lanes.hpp"

namespace simdist {

// Turns `count` logits into weights e^(logit - largest) and returns their sum. Subtracting the
// largest keeps logits of any size exact.
inline Lanes exponentials(Lanes* logits, int count) {
  Lanes best = logits[0];
  for (int i = 1; i < count; ++i) best = larger(best, logits[i]);
  constexpr float kLog2E = 1.44269504f;
  constexpr int kAtOnce = 4;
  for (int i = 0; i < count; ++i) logits[i] = (logits[i] - best) * kLog2E;
  int i = 0;
  for (; i + kAtOnce <= count; i += kAtOnce) powers_of_two<kAtOnce>(logits + i);
  for (; i < count; ++i) powers_of_two<1>(logits + i);
  Lanes sum{};
  for (i = 0; i < count; ++i) sum += logits[i];
  return sum;
}

// One query (width) that differs from sample to sample as its `count` keys and values do; key i
// stands at keys + i * step. `logits` is scratch for `count` numbers.
inline void attend(const Lanes* query, const Lanes* keys, const Lanes* values, long step, int count,
                   int width, Lanes* logits, Lanes* mixed) {
  constexpr int kAtOnce = 4;
  int i = 0;
  for (; i + kAtOnce <= count; i += kAtOnce) {
    const Lanes* key = keys + i * step;
    Lanes a{}, b{}, c{}, d{};
    for (int k = 0; k < width; ++k) {
      a += query[k] * key[k];
      b += query[k] * key[k + step];
      c += query[k] * key[k + 2 * step];
      d += query[k] * key[k + 3 * step];
    }
    logits[i] = a;
    logits[i + 1] = b;
    logits[i + 2] = c;
    logits[i + 3] = d;
  }
  for (; i < count; ++i) {
    Lanes sum{};
    for (int k = 0; k < width; ++k) sum += query[k] * keys[i * step + k];
    logits[i] = sum;
  }
  const Lanes share = 1.0f / exponentials(logits, count);
  int k = 0;
  for (; k + kAtOnce <= width; k += kAtOnce) {
    const Lanes* value = values + k;
    Lanes a{}, b{}, c{}, d{};
    for (int j = 0; j < count; ++j, value += step) {
      a += logits[j] * value[0];
      b += logits[j] * value[1];
      c += logits[j] * value[2];
      d += logits[j] * value[3];
    }
    mixed[k] = a * share;
    mixed[k + 1] = b * share;
    mixed[k + 2] = c * share;
    mixed[k + 3] = d * share;
  }
  for (; k < width; ++k) {
    Lanes sum{};
    for (int j = 0; j < count; ++j) sum += logits[j] * values[j * step + k];
    mixed[k] = sum * share;
  }
}

}  // namespace simdist
