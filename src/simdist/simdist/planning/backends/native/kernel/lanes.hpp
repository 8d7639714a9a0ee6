// One SIMD register full of samples, and the functions of it that the network needs.
//
// Every activation of the kernel is a `Lanes`: lane i belongs to sample i of a group. Weights are
// shared by all samples, so they enter as scalars that are broadcast. No lane ever looks at
// another, hence one algorithm serves every register width.
//
// Non-finite numbers stay non-finite: comparisons below are written so that NaN passes through,
// and the kernel must not be compiled with -ffast-math.
#pragma once

#include <cstdint>

namespace simdist {

#if defined(__AVX512F__)
constexpr int kLanes = 16;  // 32 registers
constexpr int kRows = 5;    // rows of one register tile, see linear.hpp
#elif defined(__AVX2__) && defined(__FMA__)
constexpr int kLanes = 8;  // 16 registers
constexpr int kRows = 3;
#else
constexpr int kLanes = 4;  // 16 registers of SSE, 32 of NEON
constexpr int kRows = 2;
#endif

typedef float Lanes __attribute__((vector_size(kLanes * 4)));
typedef int32_t IntLanes __attribute__((vector_size(kLanes * 4)));

inline Lanes splat(float x) { return Lanes{} + x; }

// Both give x where x is NaN.
inline Lanes at_least(Lanes x, float low) { return splat(low) > x ? splat(low) : x; }
inline Lanes at_most(Lanes x, float high) { return splat(high) < x ? splat(high) : x; }

// The larger of both; NaN in `best` stays.
inline Lanes larger(Lanes best, Lanes x) { return x > best ? x : best; }

// e^x to 2e-7 relative. Exponents beyond +-80 count as +-80, which is 0 or infinity beside 1 and
// keeps denormal numbers, which some processors are slow with, away.
inline Lanes exponential(Lanes x) {
  constexpr float kLog2E = 1.44269504f, kLn2 = 0.69314718f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves no room for fractions
  x = at_most(at_least(x, -80.0f), 80.0f);
  const Lanes shifted = x * kLog2E + kRound;
  const Lanes r = x - (shifted - kRound) * kLn2;  // in +-ln(2)/2
  // Fit of smallest relative error, 7.5e-8.
  Lanes p = r * 8.297611860e-03f + 4.191562818e-02f;
  p = p * r + 1.666757665e-01f;
  p = p * r + 4.999889268e-01f;
  p = p * r + 9.999996911e-01f;
  p = p * r + 1.000000072e+00f;
  // The integer stands in the low bits of `shifted`; moved into the exponent it is a power of two.
  return p * (Lanes)(((IntLanes)shifted << 23) + (127 << 23));
}

// GELU in its tanh form, as x sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3).
inline Lanes gelu(Lanes x) {
  constexpr float kMinusTwoU = -1.5957691216f, kCubic = 0.044715f;
  const Lanes minus_two_u = (x * x * (kMinusTwoU * kCubic) + kMinusTwoU) * x;
  return x / (exponential(minus_two_u) + 1.0f);
}

inline Lanes square_root(Lanes x) {
  Lanes root;
  for (int i = 0; i < kLanes; ++i) root[i] = __builtin_sqrtf(x[i]);
  return root;
}

}  // namespace simdist
