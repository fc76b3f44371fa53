#include "remote/redis/protocol.hpp"

#include <hiredis.h>

#include <array>
#include <charconv>
#include <new>

#include "store/remote.hpp"

namespace kiln::remote::redis {
namespace {

constexpr int deepest_reply = 1;  // an array of values: no command that Kiln sends is answered by arrays in arrays

template <class Count>
void* make_array(const redisReadTask* task, Count count);

/// hiredis's own functions, with arrays limited before they are allocated. Its releases differ in the type of a count.
struct LimitedFunctions {
  redisReplyObjectFunctions functions{};
  decltype(redisReplyObjectFunctions::createArray) unlimited = nullptr;
  LimitedFunctions() {
    redisReader* reader = redisReaderCreate();
    if (reader == nullptr) throw std::bad_alloc();
    functions = *reader->fn;
    unlimited = functions.createArray;
    functions.createArray = make_array;
    redisReaderFree(reader);
  }
};
LimitedFunctions& limited() {
  static LimitedFunctions functions;
  return functions;
}

template <class Count>
void* make_array(const redisReadTask* task, Count count) {
  int depth = 1;
  for (const redisReadTask* each = task->parent; each != nullptr; each = each->parent) ++depth;
  const auto& limits = *static_cast<const ReplyLimits*>(task->privdata);
  if (depth > deepest_reply || static_cast<unsigned long long>(count) > limits.items) return nullptr;
  return limited().unlimited(task, count);
}

/// hiredis 0.14 has its tasks in an array, later releases have pointers to them.
template <class Reader>
int type_being_read(const Reader& reader) {
  if constexpr (requires { reader.rstack; })
    return reader.rstack[reader.ridx].type;
  else
    return reader.task[reader.ridx]->type;
}

Reply value_of(const redisReply& from) {
  Reply reply;
  switch (from.type) {
    case REDIS_REPLY_NIL: return reply;
    case REDIS_REPLY_INTEGER: reply.kind = Reply::Kind::number; break;
    case REDIS_REPLY_STRING: reply.kind = Reply::Kind::text; break;
    case REDIS_REPLY_STATUS: reply.kind = Reply::Kind::status; break;
    case REDIS_REPLY_ERROR: reply.kind = Reply::Kind::error; break;
    case REDIS_REPLY_ARRAY: reply.kind = Reply::Kind::list; break;
    default:
      throw store::RemoteFailure(store::RemoteFailure::Kind::damaged,
                                 "the Redis server answered with a type that Kiln did not ask for");
  }
  reply.number = from.integer;
  if (from.str != nullptr) reply.text.assign(from.str, from.len);
  if (reply.kind != Reply::Kind::list) return reply;
  reply.items.reserve(from.elements);
  for (std::size_t at = 0; at < from.elements; ++at) reply.items.push_back(value_of(*from.element[at]));
  return reply;
}

}  // namespace

std::string command_of(std::initializer_list<std::string_view> words) {
  std::vector<const char*> texts;
  std::vector<std::size_t> lengths;
  for (const std::string_view word : words) {
    texts.push_back(word.data() != nullptr ? word.data() : "");
    lengths.push_back(word.size());
  }
  char* formatted = nullptr;
  const auto length = redisFormatCommandArgv(&formatted, static_cast<int>(texts.size()), texts.data(), lengths.data());
  if (length < 0) throw std::bad_alloc();
  const std::unique_ptr<char, void (*)(char*)> owner(formatted, redisFreeCommand);
  return {formatted, static_cast<std::size_t>(length)};
}

void ReplyReader::Free::operator()(redisReader* reader) const noexcept { redisReaderFree(reader); }

ReplyReader::ReplyReader() : reader_(redisReaderCreate()) {
  if (!reader_) throw std::bad_alloc();
  reader_->fn = &limited().functions;
  reader_->privdata = &limits_;
}

void ReplyReader::feed(std::string_view bytes) {
  bytes_ += bytes.size();
  if (bytes_ > limits_.bytes) throw ReplyTooLarge();
  if (redisReaderFeed(reader_.get(), bytes.data(), bytes.size()) != REDIS_OK) throw std::bad_alloc();
}

std::optional<Reply> ReplyReader::next() {
  void* found = nullptr;
  if (redisReaderGetReply(reader_.get(), &found) != REDIS_OK) {
    if (reader_->err == REDIS_ERR_OOM) throw ReplyTooLarge();
    throw store::RemoteFailure(store::RemoteFailure::Kind::damaged,
                               "the Redis server answered in no protocol of Redis");
  }
  if (found == nullptr) {
    refuse_announced();
    return std::nullopt;
  }
  const std::unique_ptr<void, void (*)(void*)> owner(found, freeReplyObject);
  bytes_ = 0;
  return value_of(*static_cast<const redisReply*>(found));
}

bool ReplyReader::is_empty() const noexcept { return reader_->pos == reader_->len; }

/// hiredis waits for as many bytes as a value's head announces, be they 2^62.
void ReplyReader::refuse_announced() const {
  if (reader_->ridx < 0 || type_being_read(*reader_) != REDIS_REPLY_STRING) return;
  unsigned long long announced = 0;
  const char *const head = reader_->buf + reader_->pos, *const end = reader_->buf + reader_->len;
  const std::errc error = std::from_chars(head, end, announced).ec;
  if (error == std::errc::result_out_of_range || (error == std::errc() && announced > limits_.bytes))
    throw ReplyTooLarge();
}

}  // namespace kiln::remote::redis
