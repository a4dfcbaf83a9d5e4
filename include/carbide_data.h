/* Data for training, and its progress: a library of its own over carbide.h.
 *
 *     cb_tokens *play = cb_tokens_open("shakespeare.txt", 1, 256);
 *     cb_token_reader *reader = cb_token_reader_new(play, 0, cb_tokens_count(play), 4, 32, 1);
 *     cb_tensor *inputs, *targets;
 *     cb_token_reader_next(reader, &inputs, &targets);
 *     cb_token_reader_free(reader);
 *     cb_tokens_close(play);
 *
 * Link with -lcarbide_data -lcarbide -lm -lpthread; CMake's Carbide::carbide_data brings
 * carbide_static. Errors are carbide.h's: NULL or a status, and cb_error() has the caller's line,
 * the file and what is wrong with it. */
#ifndef CARBIDE_DATA_H
#define CARBIDE_DATA_H

#include <carbide.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- token files ------------------------------------------------------------------------------
 * Unsigned integers of 1, 2 or 4 bytes, the least significant first, and nothing else: what
 * numpy's tofile writes, and, with 1 byte, any text. */

typedef struct cb_tokens cb_tokens; /* an open file; several threads may read it */

/* Maps the file: it may be larger than memory, and nobody may shorten it meanwhile. Numbers of
 * tokens are below vocabulary, which is checked where they are read. NULL with an error: there is
 * no such file, it is empty, or its end is cut off within a token. */
CB_API cb_tokens *cb_tokens_open(const char *path, int bytes, int64_t vocabulary);
CB_API void cb_tokens_close(cb_tokens *tokens);
CB_API int64_t cb_tokens_count(const cb_tokens *tokens);
/* Reads count tokens from position first on. CB_ERR_INDEX: there are not so many, or one of them is
 * no number of the vocabulary, which the error names with its position. */
CB_API cb_status cb_tokens_read(const cb_tokens *tokens, int64_t first, int64_t count,
                                int64_t *out);
CB_API cb_status cb_tokens_check(const cb_tokens *tokens); /* reads all of them */
/* Writes such a file, as a whole or not at all. CB_ERR_INDEX: a number has more bytes. */
CB_API cb_status cb_tokens_save(const char *path, const int32_t *ids, int64_t count, int bytes);

/* Batches of windows over tokens first .. end-1, drawn by seed and position: batch n is the same
 * whatever was read before, so that seed and position are all of the reader's state. */
typedef struct cb_token_reader cb_token_reader;
/* The tokens must live as long. CB_ERR_SHAPE: no window of length + 1 tokens fits. */
CB_API cb_token_reader *cb_token_reader_new(const cb_tokens *tokens, int64_t first, int64_t end,
                                            int64_t batch, int64_t length, uint64_t seed);
/* Both i64[batch, length], in the current scope; targets are the inputs one token later. Moves the
 * position on by one. On an error neither is made, and the position stays. */
CB_API cb_status cb_token_reader_next(cb_token_reader *reader, cb_tensor **inputs,
                                      cb_tensor **targets);
/* The state dict, as a module that the reader owns: position, i64[2] of seed and position. */
CB_API cb_module *cb_token_reader_state(cb_token_reader *reader);
CB_API void cb_token_reader_free(cb_token_reader *reader);

/* ---- arrays of other programs -----------------------------------------------------------------
 * For npy there is cb_npy_load. All are copies, in the current scope; NULL with an error that has
 * the file, and the line where there are lines. */

/* IDX, as MNIST's files are once they are unpacked: u8, i8, i16, i32, f32 or f64, of any rank that
 * a tensor can have. CB_ERR_IO: truncated, too long, or no IDX. */
CB_API cb_tensor *cb_idx_load(const char *path);
/* Lines of numbers, with a separator such as ',' between them, behind `skip` lines that are left
 * out; f64[rows, columns]. Numbers are as strtod reads them in the C locale. Empty lines are
 * skipped. CB_ERR_IO: what is no number, or a line of another length than the first. */
CB_API cb_tensor *cb_csv_load(const char *path, char separator, int64_t skip);

/* ---- pictures with labels -------------------------------------------------------------------- */

typedef struct cb_samples cb_samples; /* only read: any number of readers may share it */

/* A folder for each class, by name, with pictures in it (.jpg, .jpeg, .png), which are read when
 * they are asked for, as 1 (gray), 3 (RGB) or 4 channels. NULL with an error: there are none. */
CB_API cb_samples *cb_samples_folder(const char *path, int channels);
/* Copies of pictures, u8[N, H, W] or u8[N, C, H, W] with up to 4 channels, and of N labels from 0
 * on, of any integer dtype. CB_ERR_SHAPE, CB_ERR_INDEX: other ones. */
CB_API cb_samples *cb_samples_tensors(cb_tensor *pictures, cb_tensor *labels);
CB_API void cb_samples_free(cb_samples *samples);
CB_API int64_t cb_samples_count(const cb_samples *samples);
CB_API int64_t cb_samples_classes(const cb_samples *samples); /* the greatest label and one */
CB_API const char *cb_samples_class(const cb_samples *samples, int64_t index); /* NULL: no name */

typedef struct cb_sample_options {
    int64_t batch;
    int64_t height, width; /* of what comes out: a window of each picture */
    int64_t pad;           /* zeros around a picture, before the window is taken */
    /* In a new order each epoch, the window anywhere, and turned left to right if flip says so and
     * a coin does. Otherwise in order, with the window in the middle: for validation. */
    bool random, flip;
    double mean[4], deviation[4]; /* of each channel of 0..1: (x - mean) / deviation; 0 means 1 */
    int threads;                  /* that read ahead, up to 64; 0: batches are made when asked
                                   * for */
    uint64_t seed;
} cb_sample_options;

/* Batches by seed and position, as those of tokens: the same ones for any number of threads.
 * Samples follow each other without end; when the batch divides their count, each epoch has each
 * once. */
typedef struct cb_sample_reader cb_sample_reader;
CB_API cb_sample_reader *cb_sample_reader_new(const cb_samples *samples,
                                              const cb_sample_options *options);
/* f32[batch, channels, height, width] and i64[batch], in the current scope. On an error neither is
 * made, and the position stays: the next call reads the files again. CB_ERR_IO: a picture that
 * cannot be read, is truncated or damaged, CB_ERR_SHAPE: smaller than the window; both name it. */
CB_API cb_status cb_sample_reader_next(cb_sample_reader *reader, cb_tensor **pictures,
                                       cb_tensor **labels);
/* The state dict, as a module that the reader owns: position, i64[2] of seed and position. */
CB_API cb_module *cb_sample_reader_state(cb_sample_reader *reader);
CB_API void cb_sample_reader_free(cb_sample_reader *reader); /* ends its threads */

/* ---- tokenizers -------------------------------------------------------------------------------
 * A text -> the numbers of its tokens, and back. Texts are bytes, which should be UTF-8 and need
 * not be: what was encoded is decoded to the same bytes. Several threads may share a tokenizer,
 * while none adds to it. */

typedef struct cb_tokenizer cb_tokenizer;

CB_API cb_tokenizer *cb_tokenizer_bytes(void); /* a token per byte: needs no files */
/* Byte pair encoding with GPT-2's files vocab.json and merges.txt (encoder.json and vocab.bpe), and
 * its pattern of words, with the letters and numbers of Unicode 18. <|endoftext|> is special, if it
 * is there. NULL with an error, which has the file and the line: what is no JSON, a number that is
 * missing or there twice, a byte without a token, a merge of tokens that the vocabulary lacks. */
CB_API cb_tokenizer *cb_tokenizer_gpt2(const char *vocabulary, const char *merges);
CB_API void cb_tokenizer_free(cb_tokenizer *tokenizer);
CB_API int64_t cb_tokenizer_count(const cb_tokenizer *tokenizer); /* of the vocabulary */
/* The number of the token that is this text, or -1. */
CB_API int32_t cb_tokenizer_id(const cb_tokenizer *tokenizer, const char *text);
/* Makes the token of this text special: a new one behind all others, if there is none. Its number,
 * or -1 with an error. */
CB_API int32_t cb_tokenizer_add_special(cb_tokenizer *tokenizer, const char *text);
/* Gives the count of tokens, or -1 with an error; ids has room for one per byte, which is the most
 * there can be. special: the texts of special tokens become these, the longest one where several
 * begin; otherwise they are text as any other, as befits what a user wrote. */
CB_API int64_t cb_tokenizer_encode(const cb_tokenizer *tokenizer, const char *text, int64_t bytes,
                                   bool special, int32_t *ids);
/* The same of a file, saved as a token file of so many bytes each (cb_tokens_save). Takes memory of
 * four times the file's size. */
CB_API cb_status cb_tokenizer_encode_file(const cb_tokenizer *tokenizer, const char *text_path,
                                          bool special, const char *path, int bytes);
/* Writes what fits, with a NUL behind it, and gives the length of the whole text without that; -1:
 * one of the numbers is none of the vocabulary, which the error names with its position. */
CB_API int64_t cb_tokenizer_decode(const cb_tokenizer *tokenizer, const int32_t *ids, int64_t count,
                                   char *text, int64_t capacity);
/* The bytes of one token, which are the tokenizer's, with no NUL behind them, and maybe a part of a
 * character. NULL with an error, as above. */
CB_API const char *cb_tokenizer_token(const cb_tokenizer *tokenizer, int32_t id, int64_t *bytes);

/* ---- progress of a run ------------------------------------------------------------------------
 * One live line on stderr, where that is a terminal:
 *
 *     step 210/480  loss 0.0831  lr 3.6e-03  41200 tokens/s  0:07 left
 *
 * a log of JSON lines, and the curve of the loss as SVG. */

typedef struct cb_progress cb_progress;

/* A run of steps, each of so many samples, called unit ("tokens"), that goes on behind step first
 * (0: from the start). log: a file that every value gets a line in, or NULL; what it holds of steps
 * up to first is kept, and drawn, the rest is dropped. NULL with an error. */
CB_API cb_progress *cb_progress_new(int64_t first, int64_t steps, int64_t samples, const char *unit,
                                    const char *log);
/* Is the line due? Never without a terminal, else ten times a second: asked before a loss is read
 * for the line alone, as reading it waits for it. */
CB_API bool cb_progress_due(const cb_progress *progress);
/* After a step, which counts from 1: shows the line when it is due, adds one to the log. CB_ERR_IO:
 * the log cannot be written. A loss that is no number is null in the log. */
CB_API cb_status cb_progress_step(cb_progress *progress, int64_t step, double loss, double lr);
/* Another value of that step, such as "validation", which gets a line of the log and a curve of its
 * own. CB_ERR_ARGUMENT: more than three names, or one with characters that JSON would escape. */
CB_API cb_status cb_progress_value(cb_progress *progress, int64_t step, const char *name,
                                   double value);
CB_API double cb_progress_seconds(const cb_progress *progress); /* since cb_progress_new */
/* Everything so far as a drawing, written as a whole or not at all. */
CB_API cb_status cb_progress_curve(const cb_progress *progress, const char *path);
CB_API void cb_progress_free(cb_progress *progress); /* takes the live line away */

/* From now on the first SIGINT (Ctrl-C) or SIGTERM is only noted, so that a run can save and stop;
 * the second one ends the program as ever. */
CB_API void cb_interrupt_catch(void);
CB_API bool cb_interrupted(void);

#ifdef __cplusplus
}
#endif

#ifndef CARBIDE_BUILD /* as in carbide_calls.h: errors name the caller's line */
#define cb_tokens_open(...) (CB_HERE, (cb_tokens_open)(__VA_ARGS__))
CB_AT_VOID(cb_tokens_close, (cb_tokens *tokens), (tokens))
#define cb_tokens_close(...) CB_AT(cb_tokens_close, __VA_ARGS__)
CB_AT_GIVES(int64_t, cb_tokens_count, (const cb_tokens *tokens), (tokens))
#define cb_tokens_count(...) CB_AT(cb_tokens_count, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_tokens_read, (const cb_tokens *tokens, int64_t first, int64_t count,
                                        int64_t *out), (tokens, first, count, out))
#define cb_tokens_read(...) CB_AT(cb_tokens_read, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_tokens_check, (const cb_tokens *tokens), (tokens))
#define cb_tokens_check(...) CB_AT(cb_tokens_check, __VA_ARGS__)
#define cb_tokens_save(...) (CB_HERE, (cb_tokens_save)(__VA_ARGS__))
CB_AT_GIVES(cb_token_reader *, cb_token_reader_new, (const cb_tokens *tokens, int64_t first,
                                                     int64_t end, int64_t batch, int64_t length,
                                                     uint64_t seed),
            (tokens, first, end, batch, length, seed))
#define cb_token_reader_new(...) CB_AT(cb_token_reader_new, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_token_reader_next, (cb_token_reader *reader, cb_tensor **inputs,
                                              cb_tensor **targets), (reader, inputs, targets))
#define cb_token_reader_next(...) CB_AT(cb_token_reader_next, __VA_ARGS__)
CB_AT_GIVES(cb_module *, cb_token_reader_state, (cb_token_reader *reader), (reader))
#define cb_token_reader_state(...) CB_AT(cb_token_reader_state, __VA_ARGS__)
CB_AT_VOID(cb_token_reader_free, (cb_token_reader *reader), (reader))
#define cb_token_reader_free(...) CB_AT(cb_token_reader_free, __VA_ARGS__)
#define cb_idx_load(...) (CB_HERE, (cb_idx_load)(__VA_ARGS__))
#define cb_csv_load(...) (CB_HERE, (cb_csv_load)(__VA_ARGS__))
#define cb_samples_folder(...) (CB_HERE, (cb_samples_folder)(__VA_ARGS__))
CB_AT_GIVES(cb_samples *, cb_samples_tensors, (cb_tensor *pictures, cb_tensor *labels),
            (pictures, labels))
#define cb_samples_tensors(...) CB_AT(cb_samples_tensors, __VA_ARGS__)
CB_AT_VOID(cb_samples_free, (cb_samples *samples), (samples))
#define cb_samples_free(...) CB_AT(cb_samples_free, __VA_ARGS__)
CB_AT_GIVES(int64_t, cb_samples_count, (const cb_samples *samples), (samples))
#define cb_samples_count(...) CB_AT(cb_samples_count, __VA_ARGS__)
CB_AT_GIVES(int64_t, cb_samples_classes, (const cb_samples *samples), (samples))
#define cb_samples_classes(...) CB_AT(cb_samples_classes, __VA_ARGS__)
CB_AT_GIVES(const char *, cb_samples_class, (const cb_samples *samples, int64_t index),
            (samples, index))
#define cb_samples_class(...) CB_AT(cb_samples_class, __VA_ARGS__)
CB_AT_GIVES(cb_sample_reader *, cb_sample_reader_new, (const cb_samples *samples,
                                                       const cb_sample_options *options),
            (samples, options))
#define cb_sample_reader_new(...) CB_AT(cb_sample_reader_new, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_sample_reader_next, (cb_sample_reader *reader, cb_tensor **pictures,
                                               cb_tensor **labels), (reader, pictures, labels))
#define cb_sample_reader_next(...) CB_AT(cb_sample_reader_next, __VA_ARGS__)
CB_AT_GIVES(cb_module *, cb_sample_reader_state, (cb_sample_reader *reader), (reader))
#define cb_sample_reader_state(...) CB_AT(cb_sample_reader_state, __VA_ARGS__)
CB_AT_VOID(cb_sample_reader_free, (cb_sample_reader *reader), (reader))
#define cb_sample_reader_free(...) CB_AT(cb_sample_reader_free, __VA_ARGS__)
#define cb_tokenizer_bytes() (CB_HERE, (cb_tokenizer_bytes)())
#define cb_tokenizer_gpt2(...) (CB_HERE, (cb_tokenizer_gpt2)(__VA_ARGS__))
CB_AT_VOID(cb_tokenizer_free, (cb_tokenizer *tokenizer), (tokenizer))
#define cb_tokenizer_free(...) CB_AT(cb_tokenizer_free, __VA_ARGS__)
CB_AT_GIVES(int64_t, cb_tokenizer_count, (const cb_tokenizer *tokenizer), (tokenizer))
#define cb_tokenizer_count(...) CB_AT(cb_tokenizer_count, __VA_ARGS__)
CB_AT_GIVES(int32_t, cb_tokenizer_id, (const cb_tokenizer *tokenizer, const char *text),
            (tokenizer, text))
#define cb_tokenizer_id(...) CB_AT(cb_tokenizer_id, __VA_ARGS__)
CB_AT_GIVES(int32_t, cb_tokenizer_add_special, (cb_tokenizer *tokenizer, const char *text),
            (tokenizer, text))
#define cb_tokenizer_add_special(...) CB_AT(cb_tokenizer_add_special, __VA_ARGS__)
CB_AT_GIVES(int64_t, cb_tokenizer_encode, (const cb_tokenizer *tokenizer, const char *text,
                                           int64_t bytes, bool special, int32_t *ids),
            (tokenizer, text, bytes, special, ids))
#define cb_tokenizer_encode(...) CB_AT(cb_tokenizer_encode, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_tokenizer_encode_file, (const cb_tokenizer *tokenizer,
                                                  const char *text_path, bool special,
                                                  const char *path, int bytes),
            (tokenizer, text_path, special, path, bytes))
#define cb_tokenizer_encode_file(...) CB_AT(cb_tokenizer_encode_file, __VA_ARGS__)
CB_AT_GIVES(int64_t, cb_tokenizer_decode, (const cb_tokenizer *tokenizer, const int32_t *ids,
                                           int64_t count, char *text, int64_t capacity),
            (tokenizer, ids, count, text, capacity))
#define cb_tokenizer_decode(...) CB_AT(cb_tokenizer_decode, __VA_ARGS__)
CB_AT_GIVES(const char *, cb_tokenizer_token, (const cb_tokenizer *tokenizer, int32_t id,
                                               int64_t *bytes), (tokenizer, id, bytes))
#define cb_tokenizer_token(...) CB_AT(cb_tokenizer_token, __VA_ARGS__)
#define cb_progress_new(...) (CB_HERE, (cb_progress_new)(__VA_ARGS__))
CB_AT_GIVES(bool, cb_progress_due, (const cb_progress *progress), (progress))
#define cb_progress_due(...) CB_AT(cb_progress_due, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_progress_step, (cb_progress *progress, int64_t step, double loss,
                                          double lr), (progress, step, loss, lr))
#define cb_progress_step(...) CB_AT(cb_progress_step, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_progress_value, (cb_progress *progress, int64_t step, const char *name,
                                           double value), (progress, step, name, value))
#define cb_progress_value(...) CB_AT(cb_progress_value, __VA_ARGS__)
CB_AT_GIVES(double, cb_progress_seconds, (const cb_progress *progress), (progress))
#define cb_progress_seconds(...) CB_AT(cb_progress_seconds, __VA_ARGS__)
CB_AT_GIVES(cb_status, cb_progress_curve, (const cb_progress *progress, const char *path),
            (progress, path))
#define cb_progress_curve(...) CB_AT(cb_progress_curve, __VA_ARGS__)
CB_AT_VOID(cb_progress_free, (cb_progress *progress), (progress))
#define cb_progress_free(...) CB_AT(cb_progress_free, __VA_ARGS__)
#define cb_interrupt_catch() (CB_HERE, (cb_interrupt_catch)())
#define cb_interrupted() (CB_HERE, (cb_interrupted)())
#endif
#endif
