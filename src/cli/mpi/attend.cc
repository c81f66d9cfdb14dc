// keel attend under mpirun: every rank maps the files, reads its own rows and writes its own rows of the output, which
// gets its name once all rows are there.
#include "cli/mpi/attend.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "cli/common/arguments.h"
#include "cli/common/progress.h"
#include "cli/operator_flags.h"
#include "io/messages.h"
#include "io/npy_header.h"
#include "keel/mpi.h"

namespace keel::cli {
namespace {

[[noreturn]] void raise_io(const std::string& path, const char* expected) {
  throw Error(ErrorCode::io,
              fmt::format("[file] {}: expected {}, got \"{}\"", io::path_text(path), expected, std::strerror(errno)));
}

// A .npy file in memory as the system maps it: only what is read takes memory.
class MappedArray {
 public:
  explicit MappedArray(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) raise_io(path, "a file that can be read");
    struct stat facts {};
    const bool known = ::fstat(file, &facts) == 0;
    size_ = known ? static_cast<std::size_t>(facts.st_size) : 0;
    if (size_ > 0) memory_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    ::close(file);
    if (!known || memory_ == MAP_FAILED) raise_io(path, "a file that can be mapped");
    const std::span<const std::byte> bytes(static_cast<const std::byte*>(memory_), size_);
    const std::size_t start = io::npy_header_size(bytes.first(std::min(size_, io::kNpyPrefix)), path);
    header_ = io::parse_npy_header(bytes.first(std::min(size_, start)), path);
    if (size_ - start != header_.data_bytes) {
      io::raise_bad_file("npy", path,
                         fmt::format("expected {} bytes of data, got {}", header_.data_bytes, size_ - start));
    }
    const bool native = header_.layout.big_endian == (std::endian::native == std::endian::big);
    if (header_.layout.fortran_order || !native || header_.shape.size() > 4 || header_.shape.size() < 2) {
      io::raise_bad_file("npy", path,
                         "expected 2 to 4 dimensions in C order and this machine's byte order, got others");
    }
    std::array<std::int64_t, 4> shape{1, 1, 1, 1};
    std::copy(header_.shape.begin(), header_.shape.end(),
              shape.end() - static_cast<std::ptrdiff_t>(header_.shape.size()));
    view_ = {bytes.data() + start, header_.dtype, shape, contiguous_strides(shape)};
  }
  ~MappedArray() {
    if (memory_ != nullptr && memory_ != MAP_FAILED) ::munmap(memory_, size_);
  }
  MappedArray(const MappedArray&) = delete;
  MappedArray& operator=(const MappedArray&) = delete;

  const TensorView& view() const { return view_; }
  const std::vector<std::int64_t>& shape() const { return header_.shape; }

 private:
  void* memory_ = nullptr;
  std::size_t size_ = 0;
  io::NpyHeader header_;
  TensorView view_;
};

// This rank's rows of an array (…, N, D), and where they belong in the whole.
class OwnRows {
 public:
  OwnRows(DType dtype, const std::array<std::int64_t, 4>& whole, const ring::Shard& shard)
      : whole_(whole), shard_(shard), item_(size_of(dtype)) {
    const std::array<std::int64_t, 4> shape = {whole[0], whole[1], shard.size(), whole[3]};
    memory_.resize(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3] * item_));
    view_ = {memory_.data(), dtype, shape, contiguous_strides(shape)};
  }
  const MutableTensorView& view() const { return view_; }

  // Calls work(bytes here, offset in the whole's data, count) for each run of rows.
  template <class Work>
  void for_runs(Work work) {
    std::byte* here = memory_.data();
    for (std::int64_t head = 0; head < whole_[0] * whole_[1]; ++head) {
      for (const ring::Rows& rows : shard_.parts) {
        const std::int64_t bytes = rows.size() * whole_[3] * item_;
        if (bytes > 0) work(here, (head * whole_[2] + rows.begin) * whole_[3] * item_, bytes);
        here += bytes;
      }
    }
  }

 private:
  std::array<std::int64_t, 4> whole_;
  ring::Shard shard_;
  std::int64_t item_;
  std::vector<std::byte> memory_;
  MutableTensorView view_;
};

// Shows how many of the blocks that it expects a rank has received.
class Watched final : public ring::Transport {
 public:
  Watched(ring::Transport& inner, std::int64_t blocks, bool shown) : inner_(inner), blocks_(blocks), progress_(shown) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Request isend(int to, int tag, const void* data, std::int64_t bytes) override {
    return inner_.isend(to, tag, data, bytes);
  }
  Request irecv(int from, int tag, void* data, std::int64_t bytes) override {
    const Request request = inner_.irecv(from, tag, data, bytes);
    if (tag != 0) open_.insert(request);  // 0: what ranks agree on
    return request;
  }
  void wait(Request request) override {
    inner_.wait(request);
    if (open_.erase(request) == 0) return;
    ++got_;
    progress_.show(fmt::format("block {} of {}", got_, blocks_),
                   static_cast<double>(got_) / static_cast<double>(blocks_));
  }
  void progress() override { inner_.progress(); }

 private:
  ring::Transport& inner_;
  std::int64_t blocks_, got_ = 0;
  std::set<Request> open_;
  Progress progress_;
};

class Attend {
 public:
  void add_to(CLI::App& command) {
    const auto add = [&](const char* name, std::string& path, const char* help) {
      return command.add_option(name, path, help)->type_name("FILE")->check(kNotEmpty);
    };
    add("q", q_, "Queries: (N_q, d), (H, N_q, d) or (B, H, N_q, d)")->required();
    add("k", k_, "Keys")->required();
    add("v", v_, "Values")->required();
    add("-o,--out", out_, "The output, with q's dtype and number of dimensions")->required();
    flags_.add_to(command);
    command.add_option("--layout", layout_, "zigzag or contiguous")->check(CLI::IsMember({"zigzag", "contiguous"}));
    command.add_option("--mode", mode_, "ring, or ordered for the bits of one process")
        ->check(CLI::IsMember({"ring", "ordered"}));
    command.add_flag("-q,--quiet", quiet_, "Print nothing");
  }

  void run() {
    ring::Transport& transport = mpi::transport_of(MPI_COMM_WORLD);
    std::string failure;
    try {
      prepare(transport);
    } catch (const Error& error) {
      failure = error.what();
    }
    ring::share(transport, {}, failure);  // all have their rows, or all end here
    try {
      Watched watched(transport, blocks(transport.size()), transport.rank() == 0 && !quiet_);
      ring::attention(watched, sharding_, {own_[0]->view(), own_[1]->view(), own_[2]->view(), own_[3]->view()},
                      options_);
      write(transport);
    } catch (...) {
      if (transport.rank() == 0) std::remove(part().c_str());
      throw;
    }
    if (transport.rank() == 0 && !quiet_) {
      fmt::print("{} rows over {} ranks: {}\n", sharding_.n_q, transport.size(), io::path_text(out_));
    }
  }

 private:
  std::string part() const { return out_ + ".part"; }

  // That rank 0 gets at most: one of every other rank, or one per head and entry.
  std::int64_t blocks(int ranks) const {
    const auto& shape = own_[1]->view().shape;
    const bool at_once = sharding_.mode == ring::Mode::ring || options_.dropout > 0;
    return std::max<std::int64_t>((at_once ? 1 : shape[0] * shape[1]) * (ranks - 1), 1);
  }

  void prepare(const ring::Transport& transport) {
    const MappedArray q(q_), k(k_), v(v_);
    options_ = flags_.options();
    sharding_ = {.n_q = q.view().shape[2],
                 .n_k = k.view().shape[2],
                 .layout = layout_ == "zigzag" ? ring::Layout::zigzag : ring::Layout::contiguous,
                 .mode = mode_ == "ring" ? ring::Mode::ring : ring::Mode::ordered};
    const auto shard_of = [&](std::int64_t n) {
      return ring::shard(n, transport.size(), transport.rank(), sharding_.layout);
    };
    for (const MappedArray* array : {&q, &k, &v}) {
      const TensorView& x = array->view();
      own_.push_back(std::make_unique<OwnRows>(x.dtype, x.shape, shard_of(x.shape[2])));
      own_.back()->for_runs([&](std::byte* here, std::int64_t offset, std::int64_t bytes) {
        std::memcpy(here, static_cast<const std::byte*>(x.data) + offset, static_cast<std::size_t>(bytes));
      });
    }
    std::array<std::int64_t, 4> shape = q.view().shape;
    shape[3] = v.view().shape[3];
    own_.push_back(std::make_unique<OwnRows>(q.view().dtype, shape, shard_of(shape[2])));
    std::vector<std::int64_t> written = q.shape();
    written.back() = shape[3];
    header_ = io::make_npy_header(q.view().dtype, written, {});
    if (transport.rank() != 0) return;
    std::FILE* const file = std::fopen(part().c_str(), "wb");  // before any work, as a folder may be missing
    if (file == nullptr) raise_io(part(), "a file that can be written");
    std::fclose(file);
  }

  void write(ring::Transport& transport) {
    std::string failure;
    const int file = ::open(part().c_str(), O_WRONLY | O_CLOEXEC);
    const auto put = [&](const void* data, std::int64_t bytes, std::int64_t offset) {
      const auto* at = static_cast<const std::byte*>(data);
      while (bytes > 0 && failure.empty()) {
        const auto done = ::pwrite(file, at, static_cast<std::size_t>(bytes), offset);
        if (done <= 0)
          failure = fmt::format("[file] {}: expected to be written, got \"{}\"", part(), std::strerror(errno));
        at += done, bytes -= done, offset += done;
      }
    };
    if (file < 0)
      failure = fmt::format("[file] {}: expected the file of rank 0, got \"{}\"", part(), std::strerror(errno));
    if (transport.rank() == 0) put(header_.data(), std::ssize(header_), 0);
    own_[3]->for_runs([&](std::byte* here, std::int64_t offset, std::int64_t bytes) {
      put(here, bytes, std::ssize(header_) + offset);
    });
    if (file >= 0 && ::fsync(file) != 0 && failure.empty()) failure = "[file] the output did not reach the disk";
    if (file >= 0) ::close(file);
    ring::share(transport, {}, failure);
    if (transport.rank() == 0 && std::rename(part().c_str(), out_.c_str()) != 0)
      raise_io(out_, "a name for the output");
  }

  OperatorFlags flags_;
  std::string q_, k_, v_, out_, layout_ = "zigzag", mode_ = "ring";
  bool quiet_ = false;
  Options options_;
  ring::Sharding sharding_;
  std::vector<std::unique_ptr<OwnRows>> own_;  // q, k, v, out
  decltype(io::make_npy_header(DType::f32, {}, {})) header_;
};

}  // namespace

void add_mpi_attend(CLI::App& app) {
  CLI::App* command = app.add_subcommand("attend", "Attention over arrays in .npy files, by all ranks");
  const auto attend = std::make_shared<Attend>();
  attend->add_to(*command);
  command->callback([attend] { attend->run(); });
}

}  // namespace keel::cli
