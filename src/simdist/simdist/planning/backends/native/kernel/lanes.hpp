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
#if defined(__AVX2__)
#include <immintrin.h>
#endif

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

inline Lanes splat(float x) { return x - Lanes{}; }

// The larger and the smaller of both; x where x is NaN. In C++ compilers make two instructions of
// them, as other processors choose otherwise between a number and NaN.
inline Lanes at_least(Lanes x, float low) {
#if defined(__AVX512F__)
  return _mm512_max_ps(splat(low), x);
#elif defined(__AVX2__)
  return _mm256_max_ps(splat(low), x);
#else
  return splat(low) > x ? splat(low) : x;
#endif
}

inline Lanes at_most(Lanes x, float high) {
#if defined(__AVX512F__)
  return _mm512_min_ps(splat(high), x);
#elif defined(__AVX2__)
  return _mm256_min_ps(splat(high), x);
#else
  return splat(high) < x ? splat(high) : x;
#endif
}

// The larger of both; NaN in `best` stays.
inline Lanes larger(Lanes best, Lanes x) { return x > best ? x : best; }

// x / y to 2e-7 relative, for y from 1 to 1e35: an estimate and one step of Newton's method take a
// third of the time of a division.
inline Lanes quotient(Lanes x, Lanes y) {
#if defined(__AVX512F__)
  const Lanes estimate = _mm512_rcp14_ps(y);
#elif defined(__AVX2__)
  const Lanes estimate = _mm256_rcp_ps(y);
#else
  const Lanes estimate = 1.0f / y;
#endif
  return x * (estimate * (2.0f - y * estimate));
}

// 2^x of N numbers, in place, to 2e-7 relative. Exponents beyond +-115 count as +-115, which is 0
// or infinity beside 1 and keeps denormal numbers, which some processors are slow with, away.
//
// One such power is a chain of dependent steps; several at a time keep the processor busy.
template <int N>
inline void powers_of_two(Lanes* x) {
  // 1.5 * 2^23: adding it leaves no room for fractions. The bias of exponents comes with it.
  constexpr float kRound = 12582912.0f + 127.0f;
  // Fit of smallest relative error, 7.5e-8, for exponents in +-1/2.
  constexpr float kFit[] = {1.327640282e-03f, 9.675598162e-03f, 5.550713913e-02f,
                            2.402211868e-01f, 6.931469664e-01f, 1.000000072e+00f};
  Lanes shifted[N], power[N];
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) x[i] = at_most(at_least(x[i], -115.0f), 115.0f);
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) shifted[i] = x[i] + kRound;
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) x[i] -= shifted[i] - kRound;
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) power[i] = x[i] * kFit[0] + kFit[1];
#pragma GCC unroll 4
  for (int c = 2; c < 6; ++c)
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) power[i] = power[i] * x[i] + kFit[c];
  // The integers stand in the low bits of `shifted`; in the exponent's place they are powers of 2.
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) x[i] = power[i] * (Lanes)((IntLanes)shifted[i] << 23);
}

// GELU of N numbers, in place, in its tanh form: x / (1 + e^-2u) with u = sqrt(2/pi) (x + 0.044715
// x^3).
template <int N>
inline void gelu(Lanes* x) {
  constexpr float kLinear = -2.302208198f;  // -2 sqrt(2/pi) / ln(2)
  constexpr float kCubic = kLinear * 0.044715f;
  Lanes power[N];
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) power[i] = (x[i] * x[i] * kCubic + kLinear) * x[i];
  powers_of_two<N>(power);
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) x[i] = quotient(x[i], power[i] + 1.0f);
}

inline Lanes square_root(Lanes x) {
  Lanes root;
  for (int i = 0; i < kLanes; ++i) root[i] = __builtin_sqrtf(x[i]);
  return root;
}

}  // namespace simdist
