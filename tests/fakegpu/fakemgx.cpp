// Test double of libmigraphx_c.so.3: the C functions that the MIGraphX provider imports, on the CPU.
//
// A program keeps the ONNX graph that the provider hands over, and a run computes it with a second ONNX
// Runtime (FAKE_ORT, loaded through its C API), so that what comes out are true numbers. Saved programs have
// the layout of real .mxr files (msgpack, as written by MIGraphX's program::to_value) and their own data
// behind it. As on a GPU, a program runs with the shape it was compiled for, whatever it is given.
#include <dlfcn.h>
#include <unistd.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

using Lens = std::vector<size_t>;
struct Shape { int type; Lens lens, strides; };
struct Arg { Shape shape; void* data; };
struct Args { std::vector<Arg> list; };
struct Shapes { std::vector<Shape> list; };
struct Param { std::string name; Shape shape; };
struct ParamShapes { std::vector<Param> list; };
struct Params { std::map<std::string, Arg> map; };
struct OnnxOptions { std::map<std::string, Lens> lens; };
struct Target { std::string name; };
struct FileOptions { int unused; };
struct CompileOptions { bool exhaustive = false; };
struct Program {
  std::string onnx, gfx;
  bool fp16 = false, exhaustive = false;
  std::vector<Param> inputs, outputs;
  void* session = nullptr;
};

static const char* option(const char* name, const char* otherwise) {
  const char* value = getenv(name);
  return value ? value : otherwise;
}
static void milliseconds(const char* name) { usleep(1000 * atoi(option(name, "0"))); }
static std::string text(const Lens& lens) {
  std::string all;
  for (size_t n : lens) all += (all.empty() ? "" : "x") + std::to_string(n);
  return all;
}
static void note(const std::string& line) {  // one line into the file FAKE_LOG
  if (const char* path = getenv("FAKE_LOG")) std::ofstream(path, std::ios::app) << line << "\n";
}
// FAKE_CRASH=when aborts there; with FAKE_CRASH_ONCE=file only as long as that file is not there.
static void crash(const char* when) {
  if (strcmp(option("FAKE_CRASH", ""), when)) return;
  if (const char* once = getenv("FAKE_CRASH_ONCE")) {
    if (access(once, F_OK) == 0) return;
    std::ofstream(once) << when;
  }
  fprintf(stderr, "free(): invalid pointer\n");
  abort();
}

// ---- the second ONNX Runtime, by position in its table of functions, which never changes ----

enum { ErrorMessage = 2, CreateEnv = 3, CreateSessionFromArray = 8, Run = 9, CreateSessionOptions = 10,
       SetIntraOpNumThreads = 24, SessionGetInputCount = 30, SessionGetOutputCount = 31, InputTypeInfo = 33,
       OutputTypeInfo = 34, InputName = 36, OutputName = 37, CreateTensorWithData = 49, TensorData = 51,
       CastTypeInfo = 55, ElementType = 60, DimensionsCount = 61, Dimensions = 62, TensorTypeAndShape = 65,
       CreateCpuMemoryInfo = 69, DefaultAllocator = 78 };

static void** table() {
  static void** api = [] {
    void* library = dlopen(option("FAKE_ORT", "FAKE_ORT is not set"), RTLD_NOW | RTLD_LOCAL);
    if (!library) { fprintf(stderr, "fakemgx: %s\n", dlerror()); abort(); }
    auto base = reinterpret_cast<void** (*)()>(dlsym(library, "OrtGetApiBase"))();
    return reinterpret_cast<void** (*)(uint32_t)>(base[0])(13);
  }();
  return api;
}
template <class... A> static void ort(int function, A... arguments) {
  void* status = reinterpret_cast<void* (*)(A...)>(table()[function])(arguments...);
  if (!status) return;
  fprintf(stderr, "fakemgx: %s\n", reinterpret_cast<const char* (*)(void*)>(table()[ErrorMessage])(status));
  abort();
}

// MIGraphX's number of each type, ONNX's, its name and its size.
struct Type { int number, onnx; const char* name; size_t size; };
static const Type TYPES[] = {{2, 9, "bool_type", 1},  {3, 10, "half_type", 2},  {4, 1, "float_type", 4},
                             {5, 11, "double_type", 8}, {6, 2, "uint8_type", 1}, {7, 3, "int8_type", 1},
                             {10, 6, "int32_type", 4}, {11, 7, "int64_type", 8}};
static const Type& type(int number) {
  for (const Type& t : TYPES) if (t.number == number) return t;
  fprintf(stderr, "fakemgx: type %d\n", number); abort();
}
static const Type& type_of_onnx(int onnx) {
  for (const Type& t : TYPES) if (t.onnx == onnx) return t;
  fprintf(stderr, "fakemgx: ONNX type %d\n", onnx); abort();
}
static Shape shape_of(int number, Lens lens) {
  Shape shape{number, lens, Lens(lens.size(), 1)};
  for (int i = (int)lens.size() - 2; i >= 0; --i) shape.strides[i] = shape.strides[i + 1] * lens[i + 1];
  return shape;
}
static size_t bytes(const Shape& shape) {
  size_t n = type(shape.type).size;
  for (size_t d : shape.lens) n *= d;
  return n;
}
static Shape read_shape(void* info) {
  int onnx; size_t rank;
  ort(ElementType, info, &onnx);
  ort(DimensionsCount, info, &rank);
  std::vector<int64_t> dims(rank);
  ort(Dimensions, info, dims.data(), rank);
  Lens lens;
  for (int64_t d : dims) lens.push_back(d < 0 ? 1 : d);  // MIGraphX's default for a free dimension
  return shape_of(type_of_onnx(onnx).number, lens);
}
static void* tensor(const Shape& shape, void* data) {
  static void* memory = nullptr;
  if (!memory) ort(CreateCpuMemoryInfo, 0, 0, &memory);
  std::vector<int64_t> dims(shape.lens.begin(), shape.lens.end());
  void* value = nullptr;
  ort(CreateTensorWithData, memory, data, bytes(shape), dims.data(), dims.size(), type(shape.type).onnx, &value);
  return value;
}
// Into `into` if that is given, else only to learn the shapes of the outputs.
static void compute(Program& p, const std::vector<void*>& from, const std::vector<void*>& into) {
  std::vector<const char*> input_names, output_names;
  std::vector<void*> feeds, results(p.outputs.size(), nullptr);
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    input_names.push_back(p.inputs[i].name.c_str());
    feeds.push_back(tensor(p.inputs[i].shape, from[i]));
  }
  for (size_t i = 0; i < p.outputs.size(); ++i) {
    output_names.push_back(p.outputs[i].name.c_str());
    if (!into.empty()) results[i] = tensor(p.outputs[i].shape, into[i]);
  }
  ort(Run, p.session, (void*)nullptr, input_names.data(), feeds.data(), feeds.size(), output_names.data(),
      output_names.size(), results.data());
  if (!into.empty()) return;
  for (size_t i = 0; i < p.outputs.size(); ++i) {
    void* info;
    ort(TensorTypeAndShape, results[i], &info);
    p.outputs[i].shape = read_shape(info);
  }
}
static void open_session(Program& p, const std::map<std::string, Lens>& lens) {
  static void* environment = nullptr;
  if (!environment) ort(CreateEnv, 4, "fakemgx", &environment);
  void *options, *allocator;
  ort(CreateSessionOptions, &options);
  ort(SetIntraOpNumThreads, options, 1);
  ort(CreateSessionFromArray, environment, p.onnx.data(), p.onnx.size(), options, &p.session);
  ort(DefaultAllocator, &allocator);
  auto parameters = [&](int count, int name, int type_info) {
    std::vector<Param> found;
    size_t n;
    ort(count, p.session, &n);
    for (size_t i = 0; i < n; ++i) {
      char* called; void *info, *cast;
      ort(name, p.session, i, allocator, &called);
      ort(type_info, p.session, i, &info);
      ort(CastTypeInfo, info, &cast);
      found.push_back({called, read_shape(cast)});
    }
    return found;
  };
  p.inputs = parameters(SessionGetInputCount, InputName, InputTypeInfo);
  p.outputs = parameters(SessionGetOutputCount, OutputName, OutputTypeInfo);
  for (Param& input : p.inputs)
    if (lens.count(input.name)) input.shape = shape_of(input.shape.type, lens.at(input.name));
  std::vector<std::vector<char>> zeros;
  std::vector<void*> from;
  for (Param& input : p.inputs) { zeros.emplace_back(bytes(input.shape)); from.push_back(zeros.back().data()); }
  compute(p, from, {});
}
static std::string all_inputs(const Program& p) {
  std::string all;
  for (const Param& input : p.inputs) all += " " + text(input.shape.lens);
  return all;
}

// ---- .mxr files ----

static const char MAGIC[] = "FAKEMXR1";
struct Pack {  // as much of msgpack as is needed
  std::string out;
  void number(uint64_t v, int size) { for (int i = size - 1; i >= 0; --i) out += char(v >> (8 * i)); }
  Pack& map(uint32_t n) { out += '\xdf'; number(n, 4); return *this; }
  Pack& array(uint32_t n) { out += '\xdd'; number(n, 4); return *this; }
  Pack& str(const std::string& s) { out += '\xdb'; number(s.size(), 4); out += s; return *this; }
  Pack& bin(const std::string& s) { out += '\xc6'; number(s.size(), 4); out += s; return *this; }
  Pack& integer(uint64_t v) { out += '\xcf'; number(v, 8); return *this; }
  Pack& yes() { out += '\xc3'; return *this; }
  Pack& lens(const Lens& l) { array(l.size()); for (size_t d : l) integer(d); return *this; }
  Pack& node(const std::string& name, const std::string& parameter, const std::string& type, const Lens& dims) {
    map(6).str("output").str(parameter).str("name").str(name).str("normalized").yes();
    str("shape").map(3).str("type").str(type).str("sub_shapes").array(0).str("lens").lens(dims);
    str("operator").map(1).str("parameter").str(parameter);
    return str("inputs").array(0);
  }
};
static std::string encode(const Program& p) {
  std::stringstream own;
  own << p.fp16 << ' ' << p.exhaustive << ' ' << p.gfx << ' ' << p.inputs.size();
  for (const Param& input : p.inputs) {
    own << ' ' << input.name << ' ' << input.shape.lens.size();
    for (size_t d : input.shape.lens) own << ' ' << d;
  }
  own << '\n' << p.onnx;
  std::string tail = own.str();
  uint64_t size = tail.size();
  tail += std::string(reinterpret_cast<char*>(&size), 8) + MAGIC;

  Pack pack;
  pack.map(6).str("version").integer(atoi(option("FAKE_MXR", "7"))).str("migraphx_version").str(option("FAKE_MGX_VERSION", "2.15.0"));
  pack.str("targets").array(1).map(1).str("name").str("gpu").str("contexts").array(0);
  pack.str("modules").map(1).str("main").map(2).str("name").str("main").str("nodes");
  pack.array(p.inputs.size() + p.outputs.size() + 1);
  for (const Param& input : p.inputs) pack.node("@param", input.name, type(input.shape.type).name, input.shape.lens);
  for (size_t i = 0; i < p.outputs.size(); ++i)
    pack.node("@param", "main:#output_" + std::to_string(i), "float_type", p.outputs[i].shape.lens);
  pack.node("hip::hip_copy_literal", "main:@literal:0", p.fp16 ? "half_type" : "float_type", {p.onnx.size()});
  pack.str("fake").array(1).bin(tail);
  return pack.out;
}
static bool decode(const std::string& file, Program& p) {
  size_t end = file.size();
  if (end < 16 || file.compare(end - 8, 8, MAGIC) || file[0] != '\xdf') return false;
  uint64_t size;
  memcpy(&size, file.data() + end - 16, 8);
  if (size + 16 > end) return false;
  std::stringstream own(file.substr(end - 16 - size, size));
  std::map<std::string, Lens> lens;
  size_t inputs, rank;
  own >> p.fp16 >> p.exhaustive >> p.gfx >> inputs;
  while (inputs--) {
    std::string name;
    own >> name >> rank;
    for (lens[name].resize(rank); rank--;) own >> lens[name][lens[name].size() - 1 - rank];
  }
  own.get();
  std::stringstream rest;
  rest << own.rdbuf();
  p.onnx = rest.str();
  if (p.gfx != option("FAKE_GFX", "gfx1201")) return false;  // another GPU's code does not load
  open_session(p, lens);
  return true;
}

extern "C" {
typedef int status;
enum { SUCCESS = 0, UNKNOWN_ERROR = 4 };
#define DONE return SUCCESS

status migraphx_argument_buffer(char** o, const Arg* a) { *o = (char*)a->data; DONE; }
status migraphx_argument_create(Arg** o, const Shape* s, void* b) { *o = new Arg{*s, b}; DONE; }
status migraphx_argument_destroy(Arg* a) { delete a; DONE; }
status migraphx_argument_shape(const Shape** o, const Arg* a) { *o = &a->shape; DONE; }
status migraphx_arguments_destroy(Args* a) { delete a; DONE; }
status migraphx_arguments_get(const Arg** o, Args* a, size_t i) { *o = &a->list[i]; DONE; }
status migraphx_arguments_size(size_t* o, Args* a) { *o = a->list.size(); DONE; }

status migraphx_compile_options_create(CompileOptions** o) { *o = new CompileOptions; DONE; }
status migraphx_compile_options_destroy(CompileOptions* o) { delete o; DONE; }
status migraphx_compile_options_set_exhaustive_tune_flag(CompileOptions* o, bool b) { o->exhaustive = b; DONE; }
status migraphx_compile_options_set_fast_math(CompileOptions*, bool) { DONE; }
status migraphx_file_options_create(FileOptions** o) { *o = new FileOptions; DONE; }
status migraphx_file_options_destroy(FileOptions* o) { delete o; DONE; }
status migraphx_file_options_set_file_format(FileOptions*, const char*) { DONE; }
status migraphx_onnx_options_create(OnnxOptions** o) { *o = new OnnxOptions; DONE; }
status migraphx_onnx_options_destroy(OnnxOptions* o) { delete o; DONE; }
status migraphx_onnx_options_set_external_data_path(OnnxOptions*, const char*) { DONE; }
status migraphx_onnx_options_set_input_parameter_shape(OnnxOptions* o, const char* n, size_t* d, size_t k) {
  o->lens[n] = Lens(d, d + k); DONE;
}

status migraphx_parse_onnx_buffer(Program** o, const void* onnx, size_t n, OnnxOptions* options) {
  auto* p = new Program;
  p->onnx.assign((const char*)onnx, n);
  open_session(*p, options->lens);
  *o = p;
  DONE;
}
status migraphx_program_compile(Program* p, Target*, CompileOptions* options) {
  printf("fakemgx: compiling\n");  // the real libraries print on stdout as well
  fflush(stdout);
  p->exhaustive = options->exhaustive;
  p->gfx = option("FAKE_GFX", "gfx1201");
  note("COMPILE" + all_inputs(*p));
  crash("compile");
  milliseconds("FAKE_COMPILE_MS");
  DONE;
}
status migraphx_save(Program* p, const char* path, FileOptions*) {
  std::ofstream file(path, std::ios::binary);
  if (!file) {
    fprintf(stderr, "migraphx_save: Error: write_buffer: Failure opening file: \"%s\"\n", path);
    return UNKNOWN_ERROR;
  }
  file << encode(*p);
  note(std::string("SAVE ") + path);
  DONE;
}
status migraphx_load(Program** o, const char* path, FileOptions*) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream all;
  all << file.rdbuf();
  auto* p = new Program;
  if (!file || !decode(all.str(), *p)) { delete p; return UNKNOWN_ERROR; }
  note("LOAD" + all_inputs(*p));
  crash("load");
  *o = p;
  DONE;
}

status migraphx_program_create(Program** o) { *o = new Program; DONE; }
status migraphx_program_destroy(Program* p) { delete p; DONE; }
status migraphx_program_get_output_shapes(Shapes** o, Program* p) {
  *o = new Shapes;
  for (const Param& output : p->outputs) (*o)->list.push_back(output.shape);
  DONE;
}
status migraphx_program_get_parameter_shapes(ParamShapes** o, Program* p) {
  *o = new ParamShapes{p->inputs};
  for (size_t i = 0; i < p->outputs.size(); ++i)
    (*o)->list.push_back({"main:#output_" + std::to_string(i), p->outputs[i].shape});
  DONE;
}
status migraphx_program_parameter_shapes_destroy(ParamShapes* p) { delete p; DONE; }
status migraphx_program_parameter_shapes_get(const Shape** o, ParamShapes* p, const char* name) {
  for (const Param& parameter : p->list)
    if (parameter.name == name) { *o = &parameter.shape; DONE; }
  return UNKNOWN_ERROR;
}
status migraphx_program_parameter_shapes_names(const char** o, ParamShapes* p) {
  for (const Param& parameter : p->list) *o++ = parameter.name.c_str();
  DONE;
}
status migraphx_program_parameter_shapes_size(size_t* o, ParamShapes* p) { *o = p->list.size(); DONE; }
status migraphx_program_parameters_add(Params* p, const char* n, const Arg* a) { p->map[n] = *a; DONE; }
status migraphx_program_parameters_create(Params** o) { *o = new Params; DONE; }
status migraphx_program_parameters_destroy(Params* p) { delete p; DONE; }

status migraphx_program_run_async(Args** o, Program* p, Params* given, void*, const char*) {
  std::vector<void*> from, into;
  *o = new Args;
  for (const Param& input : p->inputs) from.push_back(given->map[input.name].data);
  for (size_t i = 0; i < p->outputs.size(); ++i) {
    const Arg& output = given->map["main:#output_" + std::to_string(i)];
    into.push_back(output.data);
    (*o)->list.push_back(output);
  }
  note("RUN" + all_inputs(*p));
  static int runs = 0;
  crash(("run " + std::to_string(++runs)).c_str());
  milliseconds("FAKE_RUN_MS");
  compute(*p, from, into);
  for (const Arg& output : (*o)->list) {
    auto* words = static_cast<uint32_t*>(output.data);
    size_t count = type(output.shape.type).number == 4 ? bytes(output.shape) / 4 : 0;
    for (size_t i = 0; p->fp16 && i < count; ++i) words[i] &= 0xffffe000;  // the mantissa of 16 bits
    for (size_t i = 0; getenv("FAKE_WRONG") && i < count / 2; ++i) std::swap(words[i], words[count - 1 - i]);
  }
  DONE;
}

status migraphx_quantize_fp16(Program* p) { p->fp16 = true; DONE; }
status migraphx_quantize_bf16(Program*) { DONE; }
status migraphx_quantize_fp8(Program*, Target*, void*) { DONE; }
status migraphx_quantize_fp8_options_add_calibration_data(void*, void*) { DONE; }
status migraphx_quantize_fp8_options_create(void** o) { *o = malloc(1); DONE; }
status migraphx_quantize_fp8_options_destroy(void* o) { free(o); DONE; }
status migraphx_quantize_int8(Program*, Target*, void*) { DONE; }
status migraphx_quantize_int8_options_add_calibration_data(void*, void*) { DONE; }
status migraphx_quantize_int8_options_add_op_name(void*, const char*) { DONE; }
status migraphx_quantize_int8_options_create(void** o) { *o = malloc(1); DONE; }
status migraphx_quantize_int8_options_destroy(void* o) { free(o); DONE; }

status migraphx_shape_bytes(size_t* o, const Shape* s) { *o = bytes(*s); DONE; }
status migraphx_shape_create_scalar(Shape** o, int t) { *o = new Shape{t, {}, {}}; DONE; }
status migraphx_shape_destroy(Shape* s) { delete s; DONE; }
status migraphx_shape_lengths(const size_t** o, size_t* n, const Shape* s) { *o = s->lens.data(); *n = s->lens.size(); DONE; }
status migraphx_shape_strides(const size_t** o, size_t* n, const Shape* s) { *o = s->strides.data(); *n = s->strides.size(); DONE; }
status migraphx_shape_type(int* o, const Shape* s) { *o = s->type; DONE; }
status migraphx_shapes_destroy(Shapes* s) { delete s; DONE; }
status migraphx_shapes_get(const Shape** o, Shapes* s, size_t i) { *o = &s->list[i]; DONE; }
status migraphx_shapes_size(size_t* o, Shapes* s) { *o = s->list.size(); DONE; }
status migraphx_target_create(Target** o, const char* n) { *o = new Target{n}; DONE; }
status migraphx_target_destroy(Target* t) { delete t; DONE; }
}
