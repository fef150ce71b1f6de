# xgrammar's C++ core from its PyPI package (Apache-2.0), which holds its sources and the headers that they need. The
# target `xgrammar` exists afterwards, or is left out with a message: docs/dependencies.md.
set(ASYNCT_GRAMMAR AUTO CACHE STRING "constrained decoding: ON, OFF, or AUTO, where xgrammar's package can be had")
set(ASYNCT_XGRAMMAR_ARCHIVE "" CACHE FILEPATH "a copy of xgrammar's package, for machines that cannot reach PyPI")

set(XGRAMMAR_NAME xgrammar-0.2.9)
set(XGRAMMAR_URL "https://files.pythonhosted.org/packages/3a/2f/5bf8e8fa6619cff534932f79b0abc81a417d354bc5093252c1a6081d0a93/${XGRAMMAR_NAME}.tar.gz")
set(XGRAMMAR_SHA256 87b466bca2475e29bb0323abc62c6c33cbcbcff47e5fb800a3e2099ac9620b90)

set(XGRAMMAR_ROOT ${CMAKE_BINARY_DIR}/xgrammar)
set(XGRAMMAR_DIR ${XGRAMMAR_ROOT}/${XGRAMMAR_NAME})
# There when the sources are, as this file makes them: another version of it unpacks them again.
file(SHA256 ${CMAKE_CURRENT_LIST_FILE} XGRAMMAR_RECIPE)
set(XGRAMMAR_READY ${XGRAMMAR_ROOT}/${XGRAMMAR_NAME}-${XGRAMMAR_RECIPE}.ready)

# Sets `problem` in the caller when there is no archive at `path` with the right sum afterwards.
function(xgrammar_download path)
  if(ASYNCT_XGRAMMAR_ARCHIVE)
    file(COPY_FILE "${ASYNCT_XGRAMMAR_ARCHIVE}" ${path} RESULT result)
    if(NOT result EQUAL 0)
      set(problem "${ASYNCT_XGRAMMAR_ARCHIVE}: ${result}" PARENT_SCOPE)
      return()
    endif()
  elseif(NOT EXISTS ${path})
    message(STATUS "Downloading ${XGRAMMAR_URL}")
    file(DOWNLOAD ${XGRAMMAR_URL} ${path} STATUS status INACTIVITY_TIMEOUT 20 TIMEOUT 120 TLS_VERIFY ON)
    list(GET status 0 code)
    if(NOT code EQUAL 0)
      list(GET status 1 text)
      file(REMOVE ${path})
      set(problem "the download failed: ${text}" PARENT_SCOPE)
      return()
    endif()
  endif()
  file(SHA256 ${path} sum)
  if(NOT sum STREQUAL XGRAMMAR_SHA256)
    file(REMOVE ${path})
    set(problem "the archive's SHA-256 is ${sum}, expected ${XGRAMMAR_SHA256}" PARENT_SCOPE)
  endif()
endfunction()

# The one place where `before` stands in a file becomes `after`.
function(xgrammar_change file before after)
  file(READ ${XGRAMMAR_DIR}/cpp/${file} text)
  string(FIND "${text}" "${before}" first)
  string(FIND "${text}" "${before}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "xgrammar: ${file} is not what it was: ${before}")
  endif()
  string(REPLACE "${before}" "${after}" text "${text}")
  file(WRITE ${XGRAMMAR_DIR}/cpp/${file} "${text}")
endfunction()

# Its loops count what they do (src/asynct/text/grammar/work.h), so that a hostile grammar ends in an exception and not in
# hours: it has no other bound (docs/notes/constrained-decoding.md).
function(xgrammar_count_work)
  set(include "#include \"asynct/text/grammar/work.h\"\n")
  xgrammar_change(earley_parser.h "#include \"grammar_impl.h\"\n" "${include}#include \"grammar_impl.h\"\n")
  xgrammar_change(earley_parser.h "    return tmp_states_visited_in_queue_.IsVisited(state);"
                  "    asynct::spend_work(1);\n    return tmp_states_visited_in_queue_.IsVisited(state);")
  xgrammar_change(earley_parser.cc "      rule_is_nullable_(grammar->NumRules(), 0) {\n"
                  "      rule_is_nullable_(grammar->NumRules(), 0) {\n  asynct::spend_work(grammar->NumRules());\n")
  set(parents "  for (const auto& [ref_id, parent_state] : parent_states_map) {\n    if (ref_id != state.rule_id) {\n      continue;\n    }\n    XGRAMMAR_DCHECK(\n")
  string(REPLACE "{\n    if" "{\n    asynct::spend_work(1);\n    if" counted "${parents}")
  xgrammar_change(earley_parser.cc "${parents}" "${counted}")
  xgrammar_change(grammar_matcher.cc "    const AdaptiveTokenMask* adaptive_token_mask_pointer =\n"
                  "    asynct::spend_work(20);\n    const AdaptiveTokenMask* adaptive_token_mask_pointer =\n")
  xgrammar_change(grammar_builder.cc "int32_t GrammarBuilder::AddGrammarExpr(const GrammarExpr& grammar_expr) {\n"
                  "int32_t GrammarBuilder::AddGrammarExpr(const GrammarExpr& grammar_expr) {\n  asynct::spend_work(20 + grammar_expr.data_len);\n")
  xgrammar_change(grammar_builder.cc "#include \"grammar_builder.h\"\n" "#include \"grammar_builder.h\"\n${include}")
  xgrammar_change(json_schema_converter.cc "std::string SchemaParser::ComputeCacheKey(const picojson::value& schema) {\n"
                  "std::string SchemaParser::ComputeCacheKey(const picojson::value& schema) {\n  asynct::spend_work(20);\n")
  xgrammar_change(json_schema_converter.cc "#include \"json_schema_converter.h\"\n" "#include \"json_schema_converter.h\"\n${include}")
  xgrammar_change(fsm.cc "#include \"fsm.h\"\n" "#include \"fsm.h\"\n${include}")
  xgrammar_change(fsm.cc "  int AddState() {\n" "  int AddState() {\n    asynct::spend_work(1);\n")
  xgrammar_change(fsm.cc "    XGRAMMAR_DCHECK(from < static_cast<int>(edges_.size()));\n    edges_[from].push_back({min, max, to});\n"
                  "    asynct::spend_work(1);\n    edges_[from].push_back({min, max, to});\n")
  xgrammar_change(fsm.cc "  edges_.resize(edges_.size() + fsm.NumStates());\n"
                  "  asynct::spend_work(fsm.NumStates());\n  edges_.resize(edges_.size() + fsm.NumStates());\n")
  xgrammar_change(fsm.cc "    for (const auto& interval : intervals) {\n      std::unordered_set<int> next_closure;\n"
                  "    for (const auto& interval : intervals) {\n      asynct::spend_work(closures.size() + 4 * closures[now_process].size());\n      std::unordered_set<int> next_closure;\n")
endfunction()

# What lets texts through that are no JSON, or not of their schema.
function(xgrammar_correct)
  # Strings with lengths held control characters.
  set(characters "{'\"', '\"'}, {'\\\\', '\\\\'}, {'\\r', '\\r'}, {'\\n', '\\n'}}, true);\n      int32_t body")
  xgrammar_change(json_schema_converter.cc "AddCharacterClass({${characters}" "AddCharacterClass({{0, 0x1f}, ${characters}")
  # Names beside those of `properties` could be those, written with escapes.
  xgrammar_change(json_schema_converter.cc
    "  choices.push_back(Sequence({ByteString(\"\\\\\"), RuleRef(kBasicEscape), RuleRef(kBasicStringSub)}));\n" "")
endfunction()

function(xgrammar_fetch)
  set(problem "")
  if(NOT EXISTS ${XGRAMMAR_READY})
    file(MAKE_DIRECTORY ${XGRAMMAR_ROOT})
    xgrammar_download(${XGRAMMAR_ROOT}/${XGRAMMAR_NAME}.tar.gz)
    if(NOT problem)
      file(GLOB stamps ${XGRAMMAR_ROOT}/*ready)
      file(REMOVE_RECURSE ${XGRAMMAR_DIR} ${stamps})
      file(ARCHIVE_EXTRACT INPUT ${XGRAMMAR_ROOT}/${XGRAMMAR_NAME}.tar.gz DESTINATION ${XGRAMMAR_ROOT}
           PATTERNS ${XGRAMMAR_NAME}/cpp ${XGRAMMAR_NAME}/include ${XGRAMMAR_NAME}/LICENSE ${XGRAMMAR_NAME}/NOTICE
                    ${XGRAMMAR_NAME}/3rdparty/dlpack ${XGRAMMAR_NAME}/3rdparty/picojson)
      xgrammar_count_work()
      xgrammar_correct()
      file(WRITE ${XGRAMMAR_READY} "")
    endif()
  endif()
  if(NOT problem)
    return()
  endif()
  if(ASYNCT_GRAMMAR STREQUAL AUTO)
    message(WARNING "No constrained decoding (response_format, structured_outputs) in this build: ${problem}. "
                    "-DASYNCT_GRAMMAR=OFF leaves it out without this message; -DASYNCT_XGRAMMAR_ARCHIVE=FILE takes a copy of "
                    "${XGRAMMAR_URL}.")
  else()
    message(FATAL_ERROR "xgrammar: ${problem}")
  endif()
endfunction()

if(ASYNCT_GRAMMAR)  # AUTO is true
  xgrammar_fetch()
endif()
if(ASYNCT_GRAMMAR AND EXISTS ${XGRAMMAR_READY})
  file(GLOB XGRAMMAR_SOURCES ${XGRAMMAR_DIR}/cpp/*.cc ${XGRAMMAR_DIR}/cpp/support/*.cc ${XGRAMMAR_DIR}/cpp/converter_ext/*.cc)
  add_library(xgrammar STATIC ${XGRAMMAR_SOURCES})
  set_target_properties(xgrammar PROPERTIES CXX_STANDARD 17)  # its own; clang 14 refuses some of it as C++20
  # Its log is ours: what it warns of is refused (src/asynct/text/grammar/xgrammar_log.cc).
  target_compile_definitions(xgrammar PUBLIC XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0
                                             XGRAMMAR_LOG_CUSTOMIZE=1)
  target_compile_options(xgrammar PRIVATE -w $<$<CONFIG:Release>:-O2>)
  target_include_directories(xgrammar PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_include_directories(xgrammar SYSTEM PUBLIC ${XGRAMMAR_DIR}/include ${XGRAMMAR_DIR}/cpp
                             ${XGRAMMAR_DIR}/3rdparty/dlpack/include ${XGRAMMAR_DIR}/3rdparty/picojson)
endif()
