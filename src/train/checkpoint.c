/* Checkpoints: model, optimizer, schedule and generator as one state dict, in one file.
 *
 *     model.0.weight  optimizer.state.0.exp_avg  scheduler.last_epoch  data.position
 *     scaler.scale  generator.state
 *
 * They become children of a module for as long as the file is written or read, which is
 * nn/state.c's: everything or nothing. */
#include "tensor/random.h"
#include "train/train.h"

typedef struct TrainingRun {
    cb_module *root;
    cb_module *held[5];
    cb_tensor *generator; /* i64[2]: seed and offset */
} TrainingRun;

/* The root frees nobody that was there before; cb_module_add would, for want of memory. */
static bool hold(TrainingRun *run, int place, const char *name, cb_module *module) {
    if (!module) return true;
    if (!module_add(run->root, name, module)) return false;
    run->held[place] = module;
    module->parents++;
    return true;
}

static bool run_open(TrainingRun *run, cb_module *model, cb_optimizer *optimizer,
                     cb_schedule *schedule, cb_module *data, cb_scaler *scaler) {
    *run = (TrainingRun){.root = cb_module_new("Training", NULL, NULL)};
    cb_module *generator = run->root ? cb_module_new("Generator", NULL, NULL) : NULL;
    if (!generator || !cb_module_add(run->root, "generator", generator)) return false;
    RandomState now = random_take(0);
    int64_t words[] = {now.seed, now.offset};
    cb_tensor *state = cb_from_data(words, CB_I64, cb_dims_one(2));
    run->generator = state ? cb_module_buffer(generator, "state", state) : NULL;
    if (!run->generator || (optimizer && !cb_optimizer_state(optimizer)) ||
        (schedule && !cb_schedule_state(schedule)) || (scaler && !cb_scaler_state(scaler)) ||
        (model && !module_lives(model, "the model")) ||
        (data && !module_lives(data, "the data's state")))
        return false;
    return hold(run, 0, "model", model) &&
           hold(run, 1, "optimizer", optimizer ? cb_optimizer_state(optimizer) : NULL) &&
           hold(run, 2, "scheduler", schedule ? cb_schedule_state(schedule) : NULL) &&
           hold(run, 3, "data", data) &&
           hold(run, 4, "scaler", scaler ? cb_scaler_state(scaler) : NULL);
}

static void run_close(TrainingRun *run) {
    if (run->root) cb_module_free(run->root);
    for (int i = 0; i < 5; i++)
        if (run->held[i]) run->held[i]->parents--;
}

cb_status cb_training_save(const char *path, cb_module *model, cb_optimizer *optimizer,
                           cb_schedule *schedule, cb_module *data, cb_scaler *scaler) {
    TrainingRun run;
    bool fine = run_open(&run, model, optimizer, schedule, data, scaler) &&
                cb_module_save_state(run.root, path) == CB_OK;
    run_close(&run);
    return fine ? CB_OK : cb_error_status();
}

cb_status cb_training_load(const char *path, cb_module *model, cb_optimizer *optimizer,
                           cb_schedule *schedule, cb_module *data, cb_scaler *scaler) {
    TrainingRun run;
    bool fine = run_open(&run, model, optimizer, schedule, data, scaler) &&
                cb_module_load_state(run.root, path, true) == CB_OK;
    const int64_t *words = fine ? cb_data_const(run.generator) : NULL;
    if (words) random_set((RandomState){words[0], words[1]});
    run_close(&run);
    return words ? CB_OK : cb_error_status();
}
