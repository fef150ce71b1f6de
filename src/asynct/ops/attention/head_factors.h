#pragma once

// Included by units compiled with -m flags, hence no inline functions here.
namespace asynct::attention {

/// What turns the scores of a query head into weights: gain * clamp(slope * S + bias - sigma * P, 0, 1).
struct HeadFactors {
  float slope;
  float bias;
  float sigma;  // divided by the pool size
  float gain;
};

}  // namespace asynct::attention
