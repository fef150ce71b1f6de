#include "asynct/base/error.h"
#include "asynct/text/grammar/grammar_engine.h"

namespace asynct {

bool has_grammar_engine() { return false; }

std::unique_ptr<const GrammarEngine> make_grammar_engine(const std::vector<std::string>& /*token_bytes*/) {
  fail("this server was built without constrained decoding (cmake -DASYNCT_GRAMMAR=ON)");
}

}  // namespace asynct
