#include "asynct/serve/load/request.h"

#include "asynct/base/error.h"

namespace asynct::load {
namespace {

constexpr std::size_t kMaxErrorBody = 65536;
constexpr std::size_t kMaxBody = std::size_t{64} << 20;

Clock::duration as_duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

Request::Request(boost::asio::io_context& context, RequestPlan plan, Clock::time_point begin,
                 Clock::time_point due, Finished finished)
    : plan_(std::move(plan)),
      begin_(begin),
      due_(due),
      finished_(std::move(finished)),
      timeout_(context),
      cancel_(context) {
  record_.start = since_begin(due);
  record_.streamed = plan_.stream;
  record_.prompt_tokens = plan_.prompt_tokens;
}

double Request::since_begin(Clock::time_point now) const {
  return std::chrono::duration<double>(now - begin_).count();
}

void Request::send(Client& client) {
  arm(timeout_, plan_.timeout, Failure::timeout);
  if (plan_.cancel_after >= 0) arm(cancel_, plan_.cancel_after, Failure::cancelled);
  connection_ = client.send(std::move(plan_.http), shared_from_this());
}

void Request::drop() {
  finished_called_ = true;
  timeout_.cancel();
  cancel_.cancel();
  if (connection_ != nullptr) connection_->close();
}

void Request::arm(boost::asio::steady_timer& timer, double seconds, Failure failure) {
  timer.expires_at(due_ + as_duration(seconds));
  timer.async_wait([self = shared_from_this(), failure](const boost::system::error_code& error) {
    if (!error && !self->finished_called_)
      self->disconnect(failure, failure == Failure::timeout ? "no complete response in time" : "",
                       Clock::now());
  });
}

// The first failure is the cause of what follows.
void Request::note(Failure failure, std::string_view detail) {
  if (record_.failure != Failure::none) return;
  record_.failure = failure;
  record_.detail = detail;
}

void Request::disconnect(Failure failure, std::string_view detail, Clock::time_point now) {
  note(failure, detail);
  connection_->close();
  finish(now);
}

void Request::finish(Clock::time_point now) {
  finished_called_ = true;
  timeout_.cancel();
  cancel_.cancel();
  connection_.reset();
  record_.end = since_begin(now);
  if (!counted_) record_.output_tokens = chunks_;
  finished_(*this);
}

void Request::on_body(const ResponseParser& head, std::string_view bytes, Clock::time_point now) {
  record_.status = head.status();
  if (head.status() != 200) {
    if (body_.size() < kMaxErrorBody) body_ += bytes.substr(0, kMaxErrorBody - body_.size());
    return;
  }
  if (!plan_.stream) {
    body_ += bytes;
    if (body_.size() > kMaxBody) disconnect(Failure::malformed, "the response is too large", now);
    return;
  }
  if (!head.is_event_stream())
    return disconnect(Failure::malformed, "the response is not text/event-stream", now);
  try {
    const bool ok = events_.feed(bytes, [&](std::string_view data) {
      if (done_) fail("an event after [DONE]");
      on_answer(parse_answer(data), now);
    });
    if (!ok) fail("an event is too large");
  } catch (const Error& error) {
    return disconnect(Failure::malformed, error.what(), now);
  }
  if (plan_.cancel_after_chunks >= 0 && chunks_ >= plan_.cancel_after_chunks && !done_)
    disconnect(Failure::cancelled, "", now);
}

void Request::on_answer(const Answer& answer, Clock::time_point now) {
  if (!answer.error.empty()) note(Failure::server_error, answer.error);
  if (answer.prompt_tokens) record_.prompt_tokens = *answer.prompt_tokens;
  if (answer.output_tokens) record_.output_tokens = *answer.output_tokens;
  counted_ = counted_ || answer.output_tokens;
  done_ = done_ || answer.done;
  if (answer.content) on_content(now);
}

void Request::on_content(Clock::time_point now) {
  const double time = since_begin(now);
  if (chunks_++ == 0)
    record_.first_token = time;
  else
    record_.gaps.push_back(static_cast<float>(time - record_.last_token));
  record_.last_token = time;
}

void Request::on_end(int status, Failure failure, std::string_view detail, Clock::time_point now) {
  if (status != 0) record_.status = status;
  if (failure != Failure::none) {
    note(failure, detail);
  } else if (status != 200) {
    note(Failure::http_status, error_message(body_));
  } else {
    try {
      if (!plan_.stream) on_answer(parse_answer(body_), now);
      check();
    } catch (const Error& error) {
      note(Failure::malformed, error.what());
    }
  }
  // Tokens without text, of half a character say, are seen no earlier than when they are counted.
  if (plan_.stream && chunks_ == 0 && record_.output_tokens > 0)
    record_.first_token = record_.last_token = since_begin(now);
  finish(now);
}

void Request::check() {
  if (record_.failure != Failure::none) return;
  if (plan_.stream && (!done_ || !events_.at_boundary())) fail("the stream ended without [DONE]");
  if (!counted_) return;
  if (plan_.prompt_tokens > 0 && record_.prompt_tokens != plan_.prompt_tokens)
    return note(Failure::wrong_tokens, cat("usage counts ", record_.prompt_tokens,
                                           " prompt tokens, sent were ", plan_.prompt_tokens));
  const bool wrong = plan_.exact_output ? record_.output_tokens != plan_.output_tokens
                                        : record_.output_tokens > plan_.output_tokens;
  if (wrong)
    note(Failure::wrong_tokens,
         cat("usage counts ", record_.output_tokens, " output tokens, asked for were ", plan_.output_tokens));
}

}  // namespace asynct::load
