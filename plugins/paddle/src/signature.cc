#include "signature.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <type_traits>
#include <typeindex>
#include <unordered_map>

#include "labels.h"

namespace softipu {
namespace {

template <class T>
using Optional = paddle::optional<T>;
template <class T>
using List = std::vector<const T*>;

template <class Kind>
using Kinds = std::unordered_map<std::type_index, Kind>;

const Kinds<InputKind>& InputKinds() {
  static const Kinds<InputKind> kinds = {
      {typeid(phi::DenseTensor), InputKind::kDense},
      {typeid(Optional<phi::DenseTensor>), InputKind::kOptionalDense},
      {typeid(List<phi::DenseTensor>), InputKind::kDenseList},
      {typeid(Optional<List<phi::DenseTensor>>), InputKind::kOptionalDenseList},
      {typeid(phi::SelectedRows), InputKind::kRows},
      {typeid(Optional<phi::SelectedRows>), InputKind::kOptionalRows},
      {typeid(List<phi::SelectedRows>), InputKind::kRowsList},
      {typeid(phi::SparseCooTensor), InputKind::kCoo},
      {typeid(Optional<phi::SparseCooTensor>), InputKind::kOptionalCoo},
      {typeid(List<phi::SparseCooTensor>), InputKind::kCooList},
      {typeid(phi::SparseCsrTensor), InputKind::kCsr},
      {typeid(Optional<phi::SparseCsrTensor>), InputKind::kOptionalCsr},
      {typeid(List<phi::SparseCsrTensor>), InputKind::kCsrList},
      {typeid(phi::StringTensor), InputKind::kStrings},
      {typeid(Optional<phi::StringTensor>), InputKind::kOptionalStrings},
      {typeid(List<phi::StringTensor>), InputKind::kStringsList},
      {typeid(phi::TensorArray), InputKind::kArray},
      {typeid(List<phi::TensorArray>), InputKind::kArrayList},
      {typeid(List<phi::TensorBase>), InputKind::kAnyList},
  };
  return kinds;
}

const Kinds<OutputKind>& OutputKinds() {
  static const Kinds<OutputKind> kinds = {
      {typeid(phi::DenseTensor*), OutputKind::kDense},
      {typeid(std::vector<phi::DenseTensor*>), OutputKind::kDenseList},
      {typeid(phi::SelectedRows*), OutputKind::kRows},
      {typeid(phi::SparseCooTensor*), OutputKind::kCoo},
      {typeid(std::vector<phi::SparseCooTensor*>), OutputKind::kCooList},
      {typeid(phi::SparseCsrTensor*), OutputKind::kCsr},
      {typeid(std::vector<phi::SparseCsrTensor*>), OutputKind::kCsrList},
      {typeid(phi::StringTensor*), OutputKind::kStrings},
      {typeid(std::vector<phi::StringTensor*>), OutputKind::kStringsList},
      {typeid(phi::TensorArray*), OutputKind::kArray},
  };
  return kinds;
}

// The call below passes these by value as plain integers, and a Place as a struct of three.
static_assert(sizeof(phi::DataType) == 4 && sizeof(phi::DataLayout) == 4, "enums are ints");
static_assert(std::is_trivially_copyable<phi::Place>::value && sizeof(phi::Place) == 16,
              "a Place is two bytes and a 64-bit number");

ffi_type* PlaceType() {
  static ffi_type* parts[] = {&ffi_type_sint8, &ffi_type_sint8, &ffi_type_uint64, nullptr};
  static ffi_type type = {0, 0, FFI_TYPE_STRUCT, parts};
  return &type;
}

ffi_type* TypeOf(phi::AttributeType attribute) {
  switch (attribute) {
    case phi::AttributeType::UNDEFINED: return nullptr;
    case phi::AttributeType::BOOL: return &ffi_type_uint8;
    case phi::AttributeType::INT32:
    case phi::AttributeType::DATA_TYPE:
    case phi::AttributeType::DATA_LAYOUT: return &ffi_type_sint32;
    case phi::AttributeType::INT64: return &ffi_type_sint64;
    case phi::AttributeType::FLOAT32: return &ffi_type_float;
    case phi::AttributeType::FLOAT64: return &ffi_type_double;
    case phi::AttributeType::PLACE: return PlaceType();
    default: return &ffi_type_pointer;  // strings, lists, Scalar, IntArray: by reference
  }
}

std::string NameOf(const std::type_index& type) {
  int status = 0;
  std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), std::free);
  return name ? name.get() : type.name();
}

template <class Kind>
std::string Add(const Kinds<Kind>& known, const std::type_index& type, std::vector<Kind>* kinds,
                std::vector<ffi_type*>* types) {
  auto found = known.find(type);
  if (found == known.end()) return "it takes a " + NameOf(type);
  kinds->push_back(found->second);
  types->push_back(&ffi_type_pointer);
  return "";
}

}  // namespace

std::string Describe(const phi::KernelArgsDef& arguments, Signature* signature) {
  signature->types.push_back(&ffi_type_pointer);  // the device context
  for (auto& input : arguments.input_defs()) {
    auto why = Add(InputKinds(), input.type_index, &signature->inputs, &signature->types);
    if (!why.empty()) return why;
  }
  for (auto& attribute : arguments.attribute_defs()) {
    ffi_type* type = TypeOf(attribute.type_index);
    if (!type) return "it has an attribute of unknown type";
    signature->attributes.push_back(attribute.type_index);
    signature->types.push_back(type);
  }
  for (auto& output : arguments.output_defs()) {
    auto why = Add(OutputKinds(), output.type_index, &signature->outputs, &signature->types);
    if (!why.empty()) return why;
  }
  if (signature->size() > kMostArguments) return "it has too many arguments";
  const auto status = ffi_prep_cif(&signature->call, FFI_DEFAULT_ABI, signature->types.size(),
                                   &ffi_type_void, signature->types.data());
  return status == FFI_OK ? "" : "libffi can't describe the call";
}

}  // namespace softipu
