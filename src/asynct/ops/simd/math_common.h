#pragma once

// What the math_<isa>.h headers share, written over Vec; included by them.
namespace asynct {
namespace {

/// Sums in this order: a stack of halvings, which gives the same bits for lanes 8 + 8 and 16.
inline float sum_of_16(const float (&lanes)[16]) {
  float half[8];
  for (int i = 0; i < 8; ++i) half[i] = lanes[i] + lanes[i + 8];
  for (int i = 0; i < 4; ++i) half[i] += half[i + 4];
  for (int i = 0; i < 2; ++i) half[i] += half[i + 2];
  return half[0] + half[1];
}

inline float largest_of_16(const float (&lanes)[16]) {
  float most = lanes[0];
  for (int i = 1; i < 16; ++i) most = lanes[i] > most ? lanes[i] : most;
  return most;
}

/// e^x for x <= 0, within 1 ulp for x > -87; smaller results are 0 or about 1e-38. NaN gives NaN.
/// x = n ln 2 + r, |r| <= ln 2 / 2; Taylor's polynomial of degree 7 on r.
inline Vec exp_of_nonpositive(Vec x) {
  const Vec bounded = max(Vec::all(-87.0F), x);
  const Vec n = nearest_integer(bounded * Vec::all(1.44269504F));
  // ln 2 in two parts, the first short enough that n times it is exact.
  const Vec r = Vec::fma(n, Vec::all(2.12194440e-4F), Vec::fma(n, Vec::all(-0.693359375F), bounded));
  Vec p = Vec::all(1.0F / 5040);
  constexpr float kCoefficients[] = {1.0F / 720, 1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1, 1};
  for (const float coefficient : kCoefficients) p = Vec::fma(p, r, Vec::all(coefficient));
  return p * power_of_two(n);
}

}  // namespace
}  // namespace asynct
