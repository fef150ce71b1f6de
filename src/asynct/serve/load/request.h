#pragma once

#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>

#include "asynct/serve/load/answer.h"
#include "asynct/serve/load/client.h"
#include "asynct/serve/load/measures.h"
#include "asynct/serve/load/sse_parser.h"

namespace asynct::load {

struct RequestPlan {
  std::string http;  // formatted
  bool stream = true;
  double timeout = 0;                     // seconds
  std::int64_t prompt_tokens = 0;         // sent; 0: unknown
  std::int64_t output_tokens = 0;         // asked for
  bool exact_output = true;               // fewer are a failure
  std::int64_t cancel_after_chunks = -1;  // disconnect when so many with text or tokens have come; -1: never
  double cancel_after = -1;               // disconnect so many seconds after the start; below 0: never
};

/// One request and what is seen of its response.
class Request : public ResponseSink, public std::enable_shared_from_this<Request> {
 public:
  using Finished = std::function<void(Request&)>;

  /// `begin` is the start of the run, `due` that of the request.
  Request(boost::asio::io_context& context, RequestPlan plan, Clock::time_point begin, Clock::time_point due,
          Finished finished);

  void send(Client& client);
  /// Disconnects; `finished` is not called.
  void drop();

  Record& record() { return record_; }

  void on_body(const ResponseParser& head, std::string_view bytes, Clock::time_point now) override;
  void on_end(int status, Failure failure, std::string_view detail, Clock::time_point now) override;

 private:
  void arm(boost::asio::steady_timer& timer, double seconds, Failure failure);
  void on_answer(const Answer& answer, Clock::time_point now);
  void on_content(Clock::time_point now);
  void check();
  void note(Failure failure, std::string_view detail);
  void disconnect(Failure failure, std::string_view detail, Clock::time_point now);
  void finish(Clock::time_point now);
  double since_begin(Clock::time_point now) const;

  RequestPlan plan_;
  Clock::time_point begin_, due_;
  Finished finished_;
  boost::asio::steady_timer timeout_, cancel_;
  std::shared_ptr<Connection> connection_;
  Record record_;
  SseParser events_;
  std::string body_;  // of a response that is no stream
  std::int64_t chunks_ = 0;
  bool done_ = false;     // "[DONE]"
  bool counted_ = false;  // usage came
  bool finished_called_ = false;
};

}  // namespace asynct::load
