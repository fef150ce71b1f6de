// The extension asynct.torch_ops._C: the CUDA kernels on tensors that come by DLPack, of whatever framework.
// Python owns all device memory; python/asynct/torch_ops makes torch operators of it.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "asynct/ops/attention/cuda/factors.h"
#include "asynct/ops/cuda/error.h"
#include "asynct/python/attention_step.h"
#include "asynct/python/row_ops.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace asynct::extension {
namespace {

using Array = nb::ndarray<>;
template <class Int>
using HostList = nb::ndarray<const Int, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using HostInts = HostList<std::int32_t>;

std::optional<DType> dtype_of(const nb::dlpack::dtype& dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto is = [&](Code code, int bits) {
    return dtype.lanes == 1 && dtype.code == static_cast<std::uint8_t>(code) && dtype.bits == bits;
  };
  if (is(Code::Bfloat, 16)) return DType::bf16;
  if (is(Code::Float, 16)) return DType::f16;
  if (is(Code::Float, 32)) return DType::f32;
  if (is(Code::Int, 32)) return DType::i32;
  if (is(Code::Int, 64)) return DType::i64;
  return std::nullopt;
}

TensorRef ref(const Array& array) {
  return {.data = array.data(),
          .dtype = dtype_of(array.dtype()),
          .on_cuda = array.device_type() == nb::device::cuda::value,
          .device = array.device_id(),
          .shape = {array.shape_ptr(), array.shape_ptr() + array.ndim()},
          .stride = {array.stride_ptr(), array.stride_ptr() + array.ndim()}};
}

template <class Int>
std::span<const Int> list(const HostList<Int>& array) {
  return {array.data(), array.size()};
}

cudaStream_t stream_of(std::uintptr_t stream) {
  return reinterpret_cast<cudaStream_t>(stream);  // NOLINT: torch hands it over as a number
}

AttentionKernels kernels_of(const std::string& name) {
  if (name == "decode") return AttentionKernels::decode;
  if (name == "prefill") return AttentionKernels::prefill;
  if (name == "both") return AttentionKernels::both;
  fail("kernels \"", name, "\", expected decode, prefill or both");
}

SkipValues skipping_of(const std::string& name) {
  if (name == "no") return SkipValues::no;
  if (name == "yes") return SkipValues::yes;
  if (name == "auto") return SkipValues::by_density;
  fail("skip_values \"", name, "\", expected no, yes or auto");
}

/// A step with the device memory that its launches share, kept alive.
struct Step {
  AttentionStep step;
  Array units = {}, places = {}, partial = {}, arrived = {}, span_sums = {}, value_count = {};

  StepMemory memory() const {
    StepMemory memory = {.units = ref(units),
                         .places = ref(places),
                         .partial = ref(partial),
                         .arrived = ref(arrived),
                         .span_sums = ref(span_sums),
                         .value_count = {}};
    if (value_count.is_valid()) memory.value_count = ref(value_count);
    return memory;
  }
};

/// Rows of HeadFactors, most, plain.
using Factors = std::tuple<std::vector<float>, float, bool>;

Factors factors(const std::vector<float>& sigma, const std::vector<float>& slope,
                const std::vector<float>& bias, const std::vector<float>& gain, float scale,
                std::int32_t pool_size, bool pool_relu, const std::string& dtype) {
  if (dtype != "bf16" && dtype != "fp16") fail("dtype ", dtype, ", expected bf16 or fp16");
  if (pool_size != 1 && pool_size != 2 && pool_size != 3 && pool_size != 5)
    fail("pool_size ", pool_size, ", expected 1, 2, 3 or 5");
  for (const auto& [name, values] : {std::pair("slope", &slope), {"bias", &bias}, {"gain", &gain}})
    if (!values->empty() && values->size() != sigma.size())
      fail(name, ": ", values->size(), " values, expected ", sigma.size(), ", one a head as sigma");
  const cuda::AttentionFactors made =
      cuda::attention_factors({.heads = static_cast<std::int32_t>(sigma.size()),
                               .scale = scale,
                               .pool_size = pool_size,
                               .pool_relu = pool_relu},
                              {.sigma = sigma, .slope = slope, .bias = bias, .gain = gain},
                              dtype == "bf16" ? DType::bf16 : DType::f16);
  std::vector<float> rows;
  for (const cuda::HeadFactors& head : made.heads)
    rows.insert(rows.end(), {head.slope, head.bias, head.sigma, head.gain});
  return {rows, made.form.most, made.form.plain};
}

void bind_step(nb::module_& m) {
  nb::class_<Step>(m, "AttentionStep")
      .def(
          "__init__",
          [](Step* self, std::int32_t heads, std::int32_t kv_heads, std::int32_t head_dim,
             std::int32_t block_size, const std::string& kernels, std::int32_t compute_capability,
             std::int32_t multiprocessors, const std::string& skip_values) {
            const AttentionShape shape = {heads, kv_heads, head_dim, block_size};
            const AttentionDevice device = {compute_capability, multiprocessors};
            new (self) Step{AttentionStep(shape, kernels_of(kernels), device, skipping_of(skip_values))};
          },
          "heads"_a, "kv_heads"_a, "head_dim"_a, "block_size"_a, "kernels"_a, "compute_capability"_a,
          "multiprocessors"_a, "skip_values"_a)
      .def(
          "fix",
          [](Step& self, std::int32_t sequences, std::int32_t tokens, std::int32_t sequence_tokens,
             std::int32_t context) {
            self.step.fix({sequences, tokens, sequence_tokens, context});
          },
          "sequences"_a, "tokens"_a, "sequence_tokens"_a, "context"_a)
      .def(
          "build",
          [](Step& self, const HostInts& query_start, const HostInts& context_length,
             std::int32_t table_width, const std::optional<HostInts>& block_table,
             const std::optional<HostList<std::int64_t>>& first_key) {
            StepLengths lengths = {list(query_start), list(context_length), table_width, {}, {}};
            if (block_table) lengths.block_table = list(*block_table);
            if (first_key) lengths.first_key = list(*first_key);
            self.step.build(lengths);
          },
          "query_start"_a, "context_length"_a, "table_width"_a, "block_table"_a.none(), "first_key"_a.none())
      .def(
          "write_units",
          [](const Step& self, const nb::ndarray<std::int32_t, nb::c_contig, nb::device::cpu>& to) {
            const std::int64_t words = 8 * self.step.room().unit_rows();
            if (static_cast<std::int64_t>(to.size()) != words)
              fail("units: ", to.size(), " words, expected ", words);
            self.step.write_units({to.data(), to.size()});
          },
          "to"_a)
      .def("unit_rows", [](const Step& self) { return self.step.room().unit_rows(); })
      .def("partial_floats", [](const Step& self) { return self.step.room().partial_floats(); })
      .def("arrived_words", [](const Step& self) { return self.step.room().arrived_words(); })
      .def("span_sum_floats", [](const Step& self) { return self.step.room().span_sum_floats(); })
      .def_prop_ro("path", [](const Step& self) { return self.step.path(); })
      .def_prop_ro("counts_values", [](const Step& self) { return self.step.counts_values(); })
      .def_prop_ro("skips_values", [](const Step& self) { return self.step.skips_values(); })
      .def(
          "observe_values",
          [](Step& self, std::int64_t count) {  // torch has no unsigned sums
            self.step.observe_values(static_cast<std::uint64_t>(count));
          },
          "count"_a)
      .def(
          "set_memory",
          [](Step& self, const Array& units, const Array& places, const Array& partial, const Array& arrived,
             const Array& span_sums, const std::optional<Array>& value_count) {
            self.units = units;
            self.places = places;
            self.partial = partial;
            self.arrived = arrived;
            self.span_sums = span_sums;
            self.value_count = value_count.value_or(Array());
          },
          "units"_a, "places"_a, "partial"_a, "arrived"_a, "span_sums"_a, "value_count"_a.none())
      .def(
          "run",
          [](const Step& self, const Array& query, const Array& key, const Array& value, const Array& factors,
             const Array& out, std::int32_t pool_size, bool pool_relu, float most, bool plain, bool together,
             std::uintptr_t stream) {
            if (!self.places.is_valid()) fail("attention: run before plan");
            self.step.run(self.memory(),
                          {.query = ref(query),
                           .key = ref(key),
                           .value = ref(value),
                           .factors = ref(factors),
                           .out = ref(out),
                           .form = {cuda::pool_floor(pool_relu), most, plain},
                           .pool_size = pool_size},
                          together, stream_of(stream));
          },
          "query"_a, "key"_a, "value"_a, "factors"_a, "out"_a, "pool_size"_a, "pool_relu"_a, "most"_a,
          "plain"_a, "together"_a, "stream"_a);
}

void bind_row_ops(nb::module_& m) {
  m.def(
      "dyht",
      [](const Array& x, const Array& y, const Array& alpha, const Array& gamma,
         const std::optional<Array>& beta, float low, float high, std::uintptr_t stream) {
        DyhtTensors norm = {ref(alpha), ref(gamma), {}, low, high};
        if (beta) norm.beta = ref(*beta);
        run_dyht(ref(x), ref(y), norm, stream_of(stream));
      },
      "x"_a, "y"_a, "alpha"_a, "gamma"_a, "beta"_a.none(), "low"_a, "high"_a, "stream"_a);
  m.def(
      "reglu",
      [](const Array& gate, const Array& up, const Array& out, std::uintptr_t stream) {
        run_reglu(ref(gate), ref(up), ref(out), stream_of(stream));
      },
      "gate"_a, "up"_a, "out"_a, "stream"_a);
}

}  // namespace
}  // namespace asynct::extension

NB_MODULE(_C, m) {
  // What a program keeps until it ends (a wrapper in a global, torch its operators) is no leak to tell users
  // of.
  nb::set_leak_warnings(false);
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const asynct::extension::TypeError& error) {
      PyErr_SetString(PyExc_TypeError, error.what());
    } catch (const asynct::cuda::CudaError& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
    } catch (const asynct::Error& error) {
      PyErr_SetString(PyExc_ValueError, error.what());
    }
  });
  asynct::extension::bind_step(m);
  asynct::extension::bind_row_ops(m);
  m.def("attention_factors", &asynct::extension::factors, "sigma"_a, "slope"_a, "bias"_a, "gain"_a, "scale"_a,
        "pool_size"_a, "pool_relu"_a, "dtype"_a);
}
