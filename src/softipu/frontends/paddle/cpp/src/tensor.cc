#include "paddle_tensor.h"

#include <pybind11/stl.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "states.h"

namespace paddle_infer {
inline namespace softipu_api {

using softipu::Held;
using softipu::WithPython;
namespace py = pybind11;

Error::~Error() = default;

namespace {

template <typename T>
struct Element;
#define SOFTIPU_ELEMENT(type, numpy_name)                 \
  template <>                                             \
  struct Element<type> {                                  \
    static constexpr const char* kName = numpy_name;      \
  };
SOFTIPU_ELEMENT(float, "float32")
SOFTIPU_ELEMENT(double, "float64")
SOFTIPU_ELEMENT(float16, "float16")
SOFTIPU_ELEMENT(std::int64_t, "int64")
SOFTIPU_ELEMENT(std::int32_t, "int32")
SOFTIPU_ELEMENT(std::uint8_t, "uint8")
SOFTIPU_ELEMENT(std::int8_t, "int8")
SOFTIPU_ELEMENT(bool, "bool")
#undef SOFTIPU_ELEMENT

std::size_t Count(const std::vector<int>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1},
                         [](std::size_t product, int size) {
                           return product * static_cast<std::size_t>(size);
                         });
}

// NumPy's name for an element type, made once. Needs the GIL.
template <typename T>
const py::dtype& DtypeOf() {
  static const auto* dtype = new py::dtype(Element<T>::kName);  // outlives every predictor
  return *dtype;
}

// An array over memory of somebody else.
py::array View(const py::dtype& dtype, const std::vector<int>& shape, const void* data) {
  return py::array(dtype, std::vector<py::ssize_t>(shape.begin(), shape.end()), data, py::none());
}

[[noreturn]] void Fail(const Tensor::State& state, const std::string& what,
                       const std::string& remedy) {
  throw Error("SIPU-4120: Tensor '" + state.name + "': " + what +
              "\n  Cause: Tensors have one shape and one element type, and data in them once they "
              "were fed or computed.\n  Way out: " +
              remedy);
}

void NeedInput(const Tensor::State& state, const char* method) {
  if (!state.is_input) Fail(state, std::string(method) + " is for inputs.", "Use CopyToCpu.");
}

const std::vector<int>& ShapeForData(const Tensor::State& state) {
  if (!state.has_shape) Fail(state, "its shape is not known.", "Call Reshape first.");
  return state.shape;
}

// The output's array after the last run, fetched once. Needs the GIL.
py::array Result(Tensor::State& state) {
  if (!state.result || state.result_of_run != *state.runs) {
    state.result = Held(py::array::ensure((*state.handle).attr("copy_to_cpu")(),
                                          py::array::c_style));
    state.result_of_run = *state.runs;
  }
  return py::reinterpret_borrow<py::array>(*state.result);
}

// Memory of one element type must not be read or written as another: the caller's is too small then.
template <typename T>
void NeedType(const Tensor::State& state, const py::dtype& dtype) {
  if (!dtype.is(DtypeOf<T>()) && !dtype.equal(DtypeOf<T>())) {
    Fail(state,
         "it has elements of type " + std::string(py::str(py::handle(dtype))) + ", not " +
             Element<T>::kName + ".",
         "Ask type(), and use the C++ type that belongs to it.");
  }
}

// The array behind the handle, which must have elements of type T. Needs the GIL.
template <typename T>
py::array ArrayOf(Tensor::State& state) {
  py::array array = state.is_input ? py::array::ensure((*state.handle).attr("copy_to_cpu")(),
                                                       py::array::c_style)
                                   : Result(state);
  NeedType<T>(state, array.dtype());
  return array;
}

}  // namespace

Tensor::Tensor(std::shared_ptr<State> state) : state_(std::move(state)) {}
Tensor::~Tensor() = default;

void Tensor::Reshape(const std::vector<int>& shape) {
  NeedInput(*state_, "Reshape");
  for (int size : shape) {
    if (size < 0) Fail(*state_, "a dimension below 0 in Reshape.", "Give the full shape.");
  }
  if (state_->has_shape && state_->shape == shape) return;
  WithPython([&] { (*state_->handle).attr("reshape")(shape); });
  state_->shape = shape;
  state_->has_shape = true;
  state_->source = nullptr;
}

void Tensor::ReshapeStrings(const std::size_t& count) {
  NeedInput(*state_, "ReshapeStrings");
  WithPython([&] { (*state_->handle).attr("reshape")(count); });
}

template <typename T>
T* Tensor::mutable_data(PlaceType) {
  NeedInput(*state_, "mutable_data");
  const std::size_t size = Count(ShapeForData(*state_)) * sizeof(T);
  if (size > state_->own_size) {
    state_->own.reset(new char[size]());
    state_->own_size = size;
  }
  WithPython([&] { state_->source_dtype = Held(DtypeOf<T>()); });
  state_->source = state_->own.get();
  return reinterpret_cast<T*>(state_->own.get());
}

template <typename T>
T* Tensor::data(PlaceType* place, int* size) const {
  if (place != nullptr) *place = PlaceType::kCPU;
  if (state_->is_input) {
    if (state_->source == nullptr) {
      Fail(*state_, "it has no memory to read from.", "Call mutable_data first.");
    }
    WithPython([&] {
      NeedType<T>(*state_, py::reinterpret_borrow<py::dtype>(*state_->source_dtype));
    });
    if (size != nullptr) *size = static_cast<int>(Count(state_->shape));
    return static_cast<T*>(const_cast<void*>(state_->source));
  }
  return WithPython([&] {
    py::array array = ArrayOf<T>(*state_);
    if (size != nullptr) *size = static_cast<int>(array.size());
    return static_cast<T*>(const_cast<void*>(array.data()));
  });
}

template <typename T>
void Tensor::CopyFromCpu(const T* data) {
  NeedInput(*state_, "CopyFromCpu");
  const std::vector<int>& shape = ShapeForData(*state_);
  if (data == nullptr) Fail(*state_, "CopyFromCpu of a null pointer.", "Give the data.");
  WithPython([&] { (*state_->handle).attr("copy_from_cpu")(View(DtypeOf<T>(), shape, data)); });
  state_->source = nullptr;
}

template <typename T>
void Tensor::ShareExternalData(const T* data, const std::vector<int>& shape, PlaceType place,
                               DataLayout) {
  if (place != PlaceType::kCPU && place != PlaceType::kIPU) {
    Fail(*state_, "ShareExternalData takes memory of the host.", "Give PlaceType::kCPU.");
  }
  Reshape(shape);
  WithPython([&] {
    state_->source_dtype = Held(DtypeOf<T>());
    state_->source = data;
    Feed(*state_);  // so that a wrong type is told here, and not at the run
  });
}

void Feed(Tensor::State& state) {
  if (state.source != nullptr) {
    const auto dtype = py::reinterpret_borrow<py::dtype>(*state.source_dtype);
    (*state.handle).attr("copy_from_cpu")(View(dtype, state.shape, state.source));
  }
}

void Tensor::CopyStringsFromCpu(const Strings* data) {
  NeedInput(*state_, "CopyStringsFromCpu");
  WithPython([&] { (*state_->handle).attr("copy_from_cpu")(*data); });
}

template <typename T>
void Tensor::CopyToCpu(T* data) const {
  WithPython([&] {
    const py::array array = ArrayOf<T>(*state_);
    std::memcpy(data, array.data(), static_cast<std::size_t>(array.nbytes()));
  });
}

template <typename T>
void Tensor::CopyToCpuAsync(T* data, void*) const {
  CopyToCpu(data);
}

template <typename T>
void Tensor::CopyToCpuAsync(T* data, CallbackFunc cb, void* cb_params) const {
  CopyToCpu(data);
  if (cb != nullptr) cb(cb_params);
}

std::vector<int> Tensor::shape() const {
  if (state_->is_input && state_->has_shape) return state_->shape;
  return WithPython([&] { return (*state_->handle).attr("shape")().cast<std::vector<int>>(); });
}

void Tensor::SetLoD(const std::vector<std::vector<std::size_t>>& lod) {
  WithPython([&] { (*state_->handle).attr("set_lod")(lod); });
}

std::vector<std::vector<std::size_t>> Tensor::lod() const {
  return WithPython([&] {
    return (*state_->handle).attr("lod")().cast<std::vector<std::vector<std::size_t>>>();
  });
}

const std::string& Tensor::name() const { return state_->name; }

DataType Tensor::type() const {
  return WithPython([&] {
    return static_cast<DataType>(softipu::Bridge().attr("type_number")(*state_->handle).cast<int>());
  });
}

PlaceType Tensor::place() const { return PlaceType::kCPU; }

#define SOFTIPU_TENSOR_OF(type)                                                                 \
  template PD_INFER_DECL type* Tensor::mutable_data<type>(PlaceType);                           \
  template PD_INFER_DECL type* Tensor::data<type>(PlaceType*, int*) const;                      \
  template PD_INFER_DECL void Tensor::CopyFromCpu<type>(const type*);                           \
  template PD_INFER_DECL void Tensor::ShareExternalData<type>(                                  \
      const type*, const std::vector<int>&, PlaceType, DataLayout);                             \
  template PD_INFER_DECL void Tensor::CopyToCpu<type>(type*) const;                             \
  template PD_INFER_DECL void Tensor::CopyToCpuAsync<type>(type*, void*) const;                 \
  template PD_INFER_DECL void Tensor::CopyToCpuAsync<type>(type*, CallbackFunc, void*) const;
SOFTIPU_TENSOR_OF(float)
SOFTIPU_TENSOR_OF(double)
SOFTIPU_TENSOR_OF(float16)
SOFTIPU_TENSOR_OF(std::int64_t)
SOFTIPU_TENSOR_OF(std::int32_t)
SOFTIPU_TENSOR_OF(std::uint8_t)
SOFTIPU_TENSOR_OF(std::int8_t)
SOFTIPU_TENSOR_OF(bool)
#undef SOFTIPU_TENSOR_OF

}  // namespace softipu_api
}  // namespace paddle_infer
