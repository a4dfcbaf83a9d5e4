# Fuzz targets of the parsers, for libFuzzer: programs in build/fuzzers, tests/fuzz/parsers.sh runs them.
# They are clang's work in a build of any compiler: the parsers and what they stand on are compiled
# again, with coverage and the sanitizers, and come before the library's own, which fills the rest.
set(PARSERS fx graph loops npy safetensors tokenizer)
set(PARSER_SOURCES
    data/files.c data/merge.c data/position.c data/split.c data/tokenizer.c data/tokens.c data/vocabulary.c
    src/base/arena.c src/base/buffer.c src/base/map.c src/base/vec.c
    src/fx/graph.c src/fx/lint.c src/fx/names.c src/fx/parse.c src/fx/target.c src/fx/text.c
    src/graph/build.c src/graph/graph.c src/graph/parse.c src/graph/print.c src/graph/syntax.c
    src/graph/verify.c
    src/io/header.c src/io/safetensors.c src/tensor/npy.c third_party/yyjson.c
    src/lower/index.c src/lower/loop.c src/lower/parse.c src/lower/print.c src/lower/verify.c)
# Not optimized: at -O1 clang's undefined behaviour checks make yyjson a compilation of two minutes, here 8 s.
set(PARSER_FLAGS -std=gnu11 -g -O0 -w -fno-omit-frame-pointer -fno-sanitize-recover=undefined
    -fsanitize=fuzzer-no-link,address,undefined ${NUMERIC} -DCARBIDE_BUILD -D_GNU_SOURCE
    -DCARBIDE_UNDEFINED_SANITIZER -I${CMAKE_SOURCE_DIR}/include -I${CMAKE_SOURCE_DIR}/src -I${GEN}
    -I${CMAKE_SOURCE_DIR}/third_party)
foreach(definition ${YYJSON_DEFINITIONS})
    list(APPEND PARSER_FLAGS -D${definition})
endforeach()

find_program(FUZZ_CLANG NAMES clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14)
set(FUZZ_SOURCE ${CMAKE_BINARY_DIR}/fuzz_try.c)
file(WRITE ${FUZZ_SOURCE} "int LLVMFuzzerTestOneInput(const char *, long);\n"
                          "int LLVMFuzzerTestOneInput(const char *a, long b) { return !a && b; }\n")
set(FUZZ_MISSING 1)
if(FUZZ_CLANG)
    execute_process(COMMAND ${FUZZ_CLANG} -fsanitize=fuzzer,address,undefined ${FUZZ_SOURCE} -o
                            ${FUZZ_SOURCE}.out RESULT_VARIABLE FUZZ_MISSING OUTPUT_QUIET ERROR_QUIET)
endif()

set(FUZZ_PROGRAMS "")
if(FUZZ_MISSING EQUAL 0 AND NOT CARBIDE_SANITIZE AND NOT CARBIDE_COVERAGE AND CMAKE_GENERATOR MATCHES Ninja)
    set(objects "")
    foreach(name ${PARSERS})
        list(APPEND PARSER_SOURCES tests/fuzz/parsers/${name}.c)
    endforeach()
    foreach(source ${PARSER_SOURCES})
        set(object ${CMAKE_BINARY_DIR}/fuzzers/${source}.o)
        get_filename_component(folder ${object} DIRECTORY)
        file(MAKE_DIRECTORY ${folder})
        add_custom_command(
            OUTPUT ${object}
            COMMAND ${CMAKE_C_COMPILER_LAUNCHER} ${FUZZ_CLANG} ${PARSER_FLAGS} -MD -MF ${object}.d -MT
                    fuzzers/${source}.o -c ${CMAKE_SOURCE_DIR}/${source} -o ${object}
            DEPENDS ${source} generated ${GENERATED}
            DEPFILE ${object}.d
            COMMENT "Instrumenting ${source}")
        if(NOT source MATCHES "^tests/")
            list(APPEND objects ${object})
        endif()
    endforeach()
    foreach(name ${PARSERS})
        set(program ${CMAKE_BINARY_DIR}/fuzzers/parse_${name})
        set(target ${CMAKE_BINARY_DIR}/fuzzers/tests/fuzz/parsers/${name}.c.o)
        add_custom_command(
            OUTPUT ${program}
            COMMAND ${FUZZ_CLANG} -fsanitize=fuzzer,address,undefined ${target} ${objects}
                    $<TARGET_FILE:carbide_static> ${OpenMP_gomp_LIBRARY} -lm -ldl -lpthread -o ${program}
            DEPENDS ${target} ${objects} carbide_static
            COMMENT "Linking fuzzers/parse_${name}"
            VERBATIM)
        list(APPEND FUZZ_PROGRAMS ${program})
    endforeach()
endif()
add_custom_target(fuzz_parsers ALL DEPENDS ${FUZZ_PROGRAMS})
add_test(NAME fuzz_parsers COMMAND ${CMAKE_SOURCE_DIR}/tests/fuzz/parsers.sh ${CMAKE_BINARY_DIR}/fuzzers runs=1000)
set_tests_properties(fuzz_parsers PROPERTIES SKIP_RETURN_CODE 77)
