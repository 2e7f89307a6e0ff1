// Test double of libmigraphx-ep.so, AMD's plug-in provider, behind ONNX Runtime's own plug-in interface.
//
// Its name, its options (device_id, cache_dir, fp16_enable, exhaustive_tune) and the names of its files are
// those of onnxruntime-ep-amdgpu at a2ea3b2. It takes all nodes but those of the operator FAKE_LEFT, reads the
// model from the file FAKE_MODEL instead of from the graph, and has the double of MIGraphX compile and run it.
// It claims the CPU as its device, because ONNX Runtime lists no card where there is none. FAKE_EP gives it
// another name.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

// ---- ONNX Runtime, by position in its tables of functions, which never changes ----

enum { CreateStatus = 0, TensorData = 51, CastTypeInfo = 55, DimensionsCount = 61, Dimensions = 62,
       TensorTypeAndShape = 65, KernelInput = 90, KernelOutput = 91, ReleaseStatus = 93, ConfigEntry = 238,
       InputName = 289, InputTypeInfo = 290, GetEpApi = 317, GraphInputs = 339, GraphNumNodes = 344,
       GraphNodes = 345, OperatorType = 350 };
enum { CreateEpDevice = 0, AddNodesToFuse = 2 };  // in the table of GetEpApi

using Status = void*;
static void **api, **ep_api;
template <class... A> static Status call(void** table, int function, A... arguments) {
  return reinterpret_cast<Status (*)(A...)>(table[function])(arguments...);
}
static const char* ep_name() {
  const char* name = getenv("FAKE_EP");
  return name ? name : "MIGraphXExecutionProvider";
}
static Status failed(const std::string& text) {
  return reinterpret_cast<Status (*)(int, const char*)>(api[CreateStatus])(11, text.c_str());  // ORT_EP_FAIL
}

extern "C" {
int hipGetDeviceCount(int*);
int hipSetDevice(int);
int migraphx_onnx_options_create(void**);
int migraphx_onnx_options_set_input_parameter_shape(void*, const char*, size_t*, size_t);
int migraphx_parse_onnx_buffer(void**, const void*, size_t, void*);
int migraphx_quantize_fp16(void*);
int migraphx_compile_options_create(void**);
int migraphx_compile_options_set_exhaustive_tune_flag(void*, bool);
int migraphx_program_compile(void*, void*, void*);
int migraphx_save(void*, const char*, void*);
int migraphx_load(void**, const char*, void*);
int migraphx_program_get_output_shapes(void**, void*);
int migraphx_shapes_get(const void**, void*, size_t);
int migraphx_shape_lengths(const size_t**, size_t*, const void*);
int migraphx_argument_create(void**, const void*, void*);
int migraphx_program_parameters_create(void**);
int migraphx_program_parameters_add(void*, const char*, const void*);
int migraphx_program_get_parameter_shapes(void**, void*);
int migraphx_program_parameter_shapes_get(const void**, void*, const char*);
int migraphx_program_run_async(void**, void*, void*, void*, const char*);
}

struct Computation {  // OrtNodeComputeInfo
  uint32_t version = 23;
  Status (*create_state)(Computation*, void*, void**) = [](Computation*, void*, void** state) -> Status {
    *state = nullptr;
    return nullptr;
  };
  Status (*compute)(Computation*, void*, void*) = nullptr;
  void (*release_state)(Computation*, void*) = [](Computation*, void*) {};
  void* program = nullptr;
  std::string input;
};

static Status compute(Computation* self, void*, void* context) {
  void *value, *from, *into, *shapes, *parameters, *arguments, *argument;
  const void* shape;
  call(api, KernelInput, context, size_t(0), &value);
  call(api, TensorData, value, &from);
  migraphx_program_parameters_create(&parameters);
  migraphx_program_get_parameter_shapes(&shapes, self->program);
  migraphx_program_parameter_shapes_get(&shape, shapes, self->input.c_str());
  migraphx_argument_create(&argument, shape, from);
  migraphx_program_parameters_add(parameters, self->input.c_str(), argument);
  const size_t* lens;
  size_t rank;
  migraphx_program_get_output_shapes(&shapes, self->program);
  migraphx_shapes_get(&shape, shapes, 0);
  migraphx_shape_lengths(&lens, &rank, shape);
  std::vector<int64_t> dims(lens, lens + rank);
  call(api, KernelOutput, context, size_t(0), dims.data(), rank, &value);
  call(api, TensorData, value, &into);
  migraphx_argument_create(&argument, shape, into);
  migraphx_program_parameters_add(parameters, "main:#output_0", argument);
  return migraphx_program_run_async(&arguments, self->program, parameters, nullptr, "") ? failed("run") : nullptr;
}

struct Provider {  // OrtEp
  uint32_t version = 23;
  const char* (*name)(const Provider*) = [](const Provider*) { return ep_name(); };
  Status (*capability)(Provider*, const void*, void*) = nullptr;
  Status (*compile)(Provider*, const void**, const void**, size_t, Computation**, void**) = nullptr;
  void (*release)(Provider*, Computation**, size_t) = [](Provider*, Computation**, size_t) {};
  void* optional[16] = {};
  std::string folder;
  bool fp16 = false, exhaustive = false;
};

static Status capability(Provider*, const void* graph, void* support) {
  size_t count = 0;
  call(api, GraphNumNodes, graph, &count);
  std::vector<const void*> nodes(count), taken;
  call(api, GraphNodes, graph, nodes.data(), count);
  const char* left = getenv("FAKE_LEFT");
  for (const void* node : nodes) {
    const char* kind = "";
    call(api, OperatorType, node, &kind);
    if (!left || strcmp(kind, left)) taken.push_back(node);
  }
  struct { uint32_t version; bool drop_constants; } fusion{23, true};
  if (left && taken.size() < count) taken.resize(taken.empty() ? 0 : 1);  // so that no path crosses another node
  return taken.empty() ? nullptr : call(ep_api, AddNodesToFuse, support, taken.data(), taken.size(), &fusion);
}

static Status compile(Provider* self, const void** graphs, const void**, size_t count, Computation** made, void**) {
  for (size_t i = 0; i < count; ++i) {
    const void *input, *info, *cast;
    const char* name;
    size_t rank;
    call(api, GraphInputs, graphs[i], &input, size_t(1));
    call(api, InputName, input, &name);
    call(api, InputTypeInfo, input, &info);
    call(api, CastTypeInfo, info, &cast);
    call(api, DimensionsCount, cast, &rank);
    std::vector<int64_t> dims(rank);
    call(api, Dimensions, cast, dims.data(), rank);
    std::string shape;
    for (int64_t size : dims) shape += std::to_string(size < 0 ? 0 : size);
    auto* computation = new Computation;
    computation->compute = compute;
    computation->input = name;
    std::string path = self->folder + "/21200-1-" + getenv("FAKE_ARCH") + "-" + shape + ".mxr";
    if (self->folder.empty() || migraphx_load(&computation->program, path.c_str(), nullptr)) {
      std::ifstream file(getenv("FAKE_MODEL"), std::ios::binary);
      std::stringstream model;
      model << file.rdbuf();
      void *options, *how;
      std::vector<size_t> lens(dims.begin(), dims.end());
      migraphx_onnx_options_create(&options);
      migraphx_onnx_options_set_input_parameter_shape(options, name, lens.data(), rank);
      migraphx_parse_onnx_buffer(&computation->program, model.str().data(), model.str().size(), options);
      if (self->fp16) migraphx_quantize_fp16(computation->program);
      migraphx_compile_options_create(&how);
      migraphx_compile_options_set_exhaustive_tune_flag(how, self->exhaustive);
      migraphx_program_compile(computation->program, nullptr, how);
      if (!self->folder.empty() && migraphx_save(computation->program, path.c_str(), nullptr)) return failed("save");
    }
    made[i] = computation;
  }
  return nullptr;
}

static std::string told(const void* options, const char* name) {
  std::string key = std::string("ep.migraphxexecutionprovider.") + name;
  size_t size = 0;
  Status missing = call(api, ConfigEntry, options, key.c_str(), (char*)nullptr, &size);
  if (missing || !size) {
    if (missing) reinterpret_cast<void (*)(Status)>(api[ReleaseStatus])(missing);
    return "";
  }
  std::string value(size, '\0');
  call(api, ConfigEntry, options, key.c_str(), &value[0], &size);
  value.resize(strlen(value.c_str()));
  return value;
}

struct Factory {  // OrtEpFactory
  uint32_t version = 23;
  const char* (*name)(const Factory*) = [](const Factory*) { return ep_name(); };
  const char* (*vendor)(const Factory*) = [](const Factory*) { return "AMD"; };
  Status (*devices)(Factory*, const void* const*, size_t, void**, size_t, size_t*) =
      [](Factory* self, const void* const* there, size_t, void** ours, size_t, size_t* count) -> Status {
    int cards = 0;
    *count = 0;
    if (hipGetDeviceCount(&cards)) return failed("HIP error 100: no ROCm-capable device is detected");
    for (int i = 0; i < cards; ++i)
      if (Status status = call(ep_api, CreateEpDevice, self, there[0], (void*)nullptr, (void*)nullptr, ours + i))
        return status;
    *count = cards;
    return nullptr;
  };
  Status (*create)(Factory*, const void* const*, const void* const*, size_t, const void*, const void*, Provider**) =
      [](Factory*, const void* const*, const void* const*, size_t, const void* options, const void*,
         Provider** made) -> Status {
    if (hipSetDevice(atoi(told(options, "device_id").c_str()))) return failed("Invalid device ID");
    auto* provider = new Provider;
    provider->capability = capability;
    provider->compile = compile;
    provider->folder = told(options, "cache_dir");
    provider->fp16 = told(options, "fp16_enable") == "1";
    provider->exhaustive = told(options, "exhaustive_tune") == "1";
    *made = provider;
    return nullptr;
  };
  void (*release)(Factory*, Provider*) = [](Factory*, Provider*) {};
  uint32_t (*vendor_id)(const Factory*) = [](const Factory*) { return 0x1002u; };
  const char* (*version_text)(const Factory*) = [](const Factory*) { return "1.0.0"; };
  void* compatible = nullptr;
  Status (*allocator)(Factory*, const void*, const void*, void**) =
      [](Factory*, const void*, const void*, void** made) -> Status { *made = nullptr; return nullptr; };
  void (*release_allocator)(Factory*, void*) = [](Factory*, void*) {};
  Status (*transfer)(Factory*, void**) = [](Factory*, void** made) -> Status { *made = nullptr; return nullptr; };
  bool (*streams)(const Factory*) = [](const Factory*) { return false; };
  void* optional[8] = {};
};

extern "C" Status CreateEpFactories(const char*, void** base, const void*, Factory** made, size_t, size_t* count) {
  api = reinterpret_cast<void** (*)(uint32_t)>(base[0])(23);
  ep_api = reinterpret_cast<void** (*)()>(api[GetEpApi])();
  made[0] = new Factory;
  *count = 1;
  return nullptr;
}
extern "C" Status ReleaseEpFactory(Factory* factory) { delete factory; return nullptr; }
