/* ResNet-18 learns to tell pictures apart: a folder of folders of them, one for each class.
 *
 *     train_resnet                                          stripes across and down, 60 steps
 *     train_resnet --data photos/train --validation photos/val --size 224 --batch 32 --threads 4
 *     train_resnet --resume                                 goes on where the checkpoint is
 *
 * Each picture gives a window of size x size anywhere in it and the --pad zeros around it, turned
 * left to right by a coin, and normalized as ImageNet's are; pictures are not resized. Threads read
 * ahead. What is validated is the share of the other pictures, whose windows lie in the middle,
 * that it tells rightly. The loop is training.h's, which says what is compiled. */
#include "training.h"

#include <carbide_models.h>

typedef struct Pictures {
    Training run; /* first: a Training is this */
    int64_t batch, size, pad, threads, width;
    const char *data, *validation; /* folders; validation: NULL or "" for none */
    cb_samples *learned, *others;
    cb_sample_reader *reader;
} Pictures;

static cb_sample_options options_of(const Pictures *p, int64_t batch, bool random) {
    return (cb_sample_options){.batch = batch,
                               .height = p->size,
                               .width = p->size,
                               .pad = p->pad,
                               .random = random,
                               .flip = random,
                               .mean = {0.485, 0.456, 0.406},
                               .deviation = {0.229, 0.224, 0.225},
                               .threads = (int)p->threads,
                               .seed = (uint64_t)p->run.seed};
}

static cb_status next(Training *run, cb_tensor **pictures, cb_tensor **labels) {
    return cb_sample_reader_next(((Pictures *)run)->reader, pictures, labels);
}

static cb_tensor *loss(Training *run, cb_tensor *pictures, cb_tensor *labels) {
    return cb_cross_entropy(cb_forward(run->net, pictures), labels);
}

/* The share that is told rightly of the others; the last batch begins with them again. */
static double validate(Training *run) {
    const Pictures *p = (const Pictures *)run;
    int64_t count = cb_samples_count(p->others);
    cb_sample_options options = options_of(p, p->batch, false);
    cb_sample_reader *reader = cb_sample_reader_new(p->others, &options);
    double right = 0;
    cb_module_train(run->net, false);
    for (int64_t left = count; left > 0 && reader; left -= p->batch) {
        cb_tensor *pictures, *labels;
        if (cb_sample_reader_next(reader, &pictures, &labels) != CB_OK) break;
        cb_tensor *scores = training_forward(run, pictures);
        if (!scores) break;
        cb_tensor *told = cb_eq(cb_argmax(scores, 1), labels);
        right += cb_item(cb_sum(cb_narrow(told, 0, 0, left < p->batch ? left : p->batch)));
    }
    cb_module_train(run->net, true);
    cb_sample_reader_free(reader);
    return right / (double)count;
}

static void learn(Pictures *p) {
    Training *run = &p->run;
    p->learned = cb_samples_folder(p->data, 3);
    if (p->learned && p->validation && *p->validation) {
        p->others = cb_samples_folder(p->validation, 3);
        if (!p->others) return;
        run->validate = validate;
    }
    if (!p->learned) return;
    cb_sample_options options = options_of(p, p->batch, true);
    p->reader = cb_sample_reader_new(p->learned, &options);
    if (!p->reader) return;
    cb_resnet_config config = cb_resnet18_config();
    config.width = p->width, config.classes = cb_samples_classes(p->learned);
    run->net = cb_model_resnet(config);
    run->data = cb_sample_reader_state(p->reader);
    run->loss = loss, run->next = next, run->validated = "right";
    run->samples = p->batch, run->unit = "pictures";
    if (training_open(run, "SGD", "momentum=0.9, weight_decay=1e-4")) training_run(run);
    if (!cb_error() && p->others)
        printf("%.1f %% of %d other pictures are told rightly\n", 100 * validate(run),
               (int)cb_samples_count(p->others));
}

int main(int argc, char **argv) {
    static Pictures p;
    p = (Pictures){.run = {.steps = 60,
                           .warmup = 5,
                           .save_every = 50,
                           .validate_every = 20,
                           .seed = 1,
                           .lr = 0.02,
                           .checkpoint = "resnet.safetensors"},
                   .batch = 16,
                   .size = 32,
                   .threads = 2,
                   .width = cb_resnet18_config().width,
                   .data = CARBIDE_EXAMPLE_DATA "/stripes/learned",
                   .validation = CARBIDE_EXAMPLE_DATA "/stripes/others"};
    const Flag flags[] = {{"batch", .whole = &p.batch},
                          {"size", .whole = &p.size},
                          {"pad", .whole = &p.pad},
                          {"threads", .whole = &p.threads},
                          {"width", .whole = &p.width},
                          {"data", .text = &p.data},
                          {"validation", .text = &p.validation}};
    if (!flags_parse(&p.run, "train_resnet", flags, sizeof flags / sizeof *flags, argc, argv))
        return 2;
    cb_interrupt_catch();
    cb_scope_open();
    cb_manual_seed((uint64_t)p.run.seed);
    learn(&p);
    training_close(&p.run);
    cb_sample_reader_free(p.reader);
    cb_samples_free(p.learned);
    cb_samples_free(p.others);
    cb_scope_close();
    if (cb_error()) fprintf(stderr, "%s\n", cb_error());
    return cb_error() != NULL;
}
