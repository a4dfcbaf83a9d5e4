/* Training: optimizers, schedules of the learning rate, clipping, scaling, their state in files.
 * Included by carbide.h; include that.
 *
 *     cb_optimizer *adam = cb_optimizer_new("AdamW", "lr=3e-4, weight_decay=0.1");
 *     cb_optimizer_add_module(adam, net, NULL);
 *     cb_schedule *schedule = cb_schedule_new(adam, "CosineAnnealingLR", "T_max=1000");
 *     for (int step = 0; step < 1000; step++) {
 *         cb_scope_open();
 *         cb_optimizer_zero_grad(adam);
 *         cb_backward(cb_cross_entropy(cb_forward(net, x), target), NULL);
 *         cb_optimizer_step(adam);
 *         cb_schedule_step(schedule, 0);
 *         cb_scope_close();
 *     }
 *     cb_schedule_free(schedule);
 *     cb_optimizer_free(adam);
 *
 * Names, arguments and defaults are torch.optim's, written as in a call there; what is refused
 * names the argument. An update is made of ordinary ops that write in place. The learning rate and
 * the number of steps are tensors without dims, so that other values compile nothing again. */
#ifndef CARBIDE_TRAIN_H
#define CARBIDE_TRAIN_H

typedef struct cb_optimizer cb_optimizer;
typedef struct cb_schedule cb_schedule;
typedef struct cb_scaler cb_scaler;

/* ---- optimizers -----------------------------------------------------------------------------
 *
 *   SGD       lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, maximize=False
 *   Adam      lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, maximize=False
 *   AdamW     the same with weight_decay=0.01, which shrinks parameters in place of gradients
 *   Adagrad   lr=0.01, lr_decay=0, weight_decay=0, initial_accumulator_value=0, eps=1e-10,
 *             maximize=False
 *   RMSprop   lr=0.01, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, centered=False,
 *             maximize=False
 *   Muon      lr=1e-3, weight_decay=0.1, momentum=0.95, nesterov=True, eps=1e-7, ns_steps=5; of
 *             matrices alone. Five steps of Newton and Schulz in bf16, as torch.optim.Muon
 *   Lion      lr=1e-4, betas=(0.9, 0.99), weight_decay=0, maximize=False (Chen et al. 2023)
 *
 * Unlike PyTorch, all parameters share one count of steps: one that had no gradient in some of them
 * is left alone there, and corrected by the count of all. The dampening of SGD begins behind the
 * first gradient of each, as there. */

/* NULL with an error for another name or argument. */
CB_API cb_optimizer *cb_optimizer_new(const char *name, const char *arguments);
/* Frees its state; the parameters stay who they belong to, and must not be stepped any more. */
CB_API void cb_optimizer_free(cb_optimizer *optimizer);

/* A parameter group: floating point tensors, which require a gradient from now on, with arguments
 * of their own ("lr=1e-4, weight_decay=0"; NULL: the optimizer's). Its state begins with zeros. On
 * an error the optimizer has no new group. */
CB_API cb_status cb_optimizer_add(cb_optimizer *optimizer, cb_tensor *const *parameters, int count,
                                  const char *arguments);
/* All parameters of a module, tied ones once. */
CB_API cb_status cb_optimizer_add_module(cb_optimizer *optimizer, cb_module *module,
                                         const char *arguments);

/* Writes to every parameter that has a gradient. An error leaves those before it written. */
CB_API cb_status cb_optimizer_step(cb_optimizer *optimizer);
CB_API void cb_optimizer_zero_grad(cb_optimizer *optimizer); /* of all its parameters: to None */

/* The learning rate of a group; NAN with an error when there is no such group. */
CB_API double cb_optimizer_lr(cb_optimizer *optimizer, int group);
CB_API cb_status cb_optimizer_set_lr(cb_optimizer *optimizer, int group, double lr);

/* The state dict, as a module that the optimizer owns: cb_module_save_state writes it to a file,
 * cb_module_load_state reads one. Names are PyTorch's, joined by dots: state.0.exp_avg,
 * state.0.step, param_groups.0.lr, param_groups.0.betas; True is 1. A step computes with the
 * numbers of param_groups, so what is loaded counts, as does a write to one. A file whose numbers
 * cb_optimizer_new refuses, or with a negative step, is an error and changes nothing; so is a step
 * behind a write of such a number, but of lr (cb_optimizer_set_lr looks at it), and a step that
 * needs a state that was not made ("momentum" of an SGD without). The buffer AdamW, by its kind,
 * makes the file fit no other. */
CB_API cb_module *cb_optimizer_state(cb_optimizer *optimizer);

/* ---- gradients ------------------------------------------------------------------------------ */

/* torch.nn.utils.clip_grad_norm_: scales the gradients of all tensors together so that their norm
 * (norm_type 1, 2, ...; INFINITY: the greatest element) is at most max_norm. Gives the norm that
 * they had, without dims and in their dtype, in the current scope, added up in f32 for f16 and
 * bf16; NULL with an error. */
CB_API cb_tensor *cb_clip_grad_norm_(cb_tensor *const *tensors, int count, double max_norm,
                                     double norm_type);
/* torch.nn.utils.clip_grad_value_: every element of a gradient into -value..value. */
CB_API cb_status cb_clip_grad_value_(cb_tensor *const *tensors, int count, double value);

/* ---- schedules of the learning rate -----------------------------------------------------------
 *
 *   LinearLR            start_factor=1/3, end_factor=1, total_iters=5: the warm-up
 *   StepLR              step_size, gamma=0.1
 *   ExponentialLR       gamma
 *   CosineAnnealingLR   T_max, eta_min=0
 *   OneCycleLR          max_lr, total_steps, pct_start=0.3, anneal_linear=False, div_factor=25,
 *                       final_div_factor=1e4, three_phase=False; momentum stays as it is
 *   ReduceLROnPlateau   factor=0.1, patience=10, threshold=1e-4, cooldown=0, min_lr=0, eps=1e-8,
 *                       maximize=False (mode="max"), absolute=False (threshold_mode="abs")
 *
 * Others are a call of cb_optimizer_set_lr in each step: lr * lambda(n) as LambdaLR, or lr * gamma
 * in the steps of a list as MultiStepLR.
 *
 * Arguments that PyTorch refuses are refused: factor >= 1, or a start_factor above 1; unlike there,
 * negative ones too (eta_min, gamma, patience) and a cooldown that is no whole number up to 2^53. A
 * rate is never below 0, where PyTorch's goes in the last step of OneCycleLR with three phases of
 * lines: cb_optimizer_new takes no such rate, nor does a file.
 *
 * As in PyTorch a step goes on from the rate that a group has: what cb_optimizer_set_lr wrote
 * counts, and of several schedules that are stepped in turn (a warm-up and StepLR) each multiplies
 * what the others left. OneCycleLR alone writes what its arguments say. A group that was added
 * behind cb_schedule_new is stepped like the others, but where the rate before all schedules is
 * asked for: by OneCycleLR, by CosineAnnealingLR in step T_max + 1 (and every 2 T_max from there),
 * and at the milestone of cb_schedule_then. There the step is an error. */

/* The first value, from the learning rates that the groups have now, is set at once. The optimizer
 * must live as long. NULL with an error. */
CB_API cb_schedule *cb_schedule_new(cb_optimizer *optimizer, const char *name,
                                    const char *arguments);
/* SequentialLR: from step milestone on (after earlier ones and all steps that were made), another
 * schedule, which counts from 0 there and begins at the rates before all schedules. Not for
 * ReduceLROnPlateau. */
CB_API cb_status cb_schedule_then(cb_schedule *schedule, int64_t milestone, const char *name,
                                  const char *arguments);
/* The rates of the next step. metric is read by ReduceLROnPlateau alone. An error, which leaves the
 * rates of all groups, for every step behind the total_steps of OneCycleLR, for a rate that is not
 * finite, and where a group that was added since has no base rate. */
CB_API cb_status cb_schedule_step(cb_schedule *schedule, double metric);
/* As cb_optimizer_state: last_epoch, base_lrs, the arguments by their names; those of a schedule
 * that follows are _schedulers.1.milestone, _schedulers.1.gamma. The rates that it goes on from are
 * the optimizer's: a run is loaded with both (cb_training_load). */
CB_API cb_module *cb_schedule_state(cb_schedule *schedule);
CB_API void cb_schedule_free(cb_schedule *schedule);

/* ---- scaling of gradients ---------------------------------------------------------------------
 * torch.amp.GradScaler, for f16: init_scale=65536, growth_factor=2, backoff_factor=0.5,
 * growth_interval=2000, enabled=True. In a step:
 *
 *     cb_backward(cb_scaler_scale(scaler, loss), NULL);
 *     cb_scaler_unscale_(scaler, adam);    // before clipping; cb_scaler_step does it otherwise
 *     cb_scaler_step(scaler, adam);
 *     cb_scaler_update(scaler);
 *
 * A step with a gradient that is inf or NaN changes no parameter and no state. That is a tensor, of
 * which no value is read: all of it may stand in a compiled function, which is not compiled again
 * for another scale or a step that is skipped. Under fullgraph, where the function does not run
 * again, step and update belong into the same one. enabled=False: loss and gradients stay as they
 * are, and every step is made. */
CB_API cb_scaler *cb_scaler_new(const char *arguments);                /* NULL with an error */
CB_API cb_tensor *cb_scaler_scale(cb_scaler *scaler, cb_tensor *loss); /* loss * scale */
/* Divides the gradients of an optimizer's parameters by the scale, once before an update.
 * CB_ERR_DTYPE: one is of f16, none was written; CB_ERR_ARGUMENT: a second time, no parameter has a
 * gradient, or these are more than 8 optimizers. */
CB_API cb_status cb_scaler_unscale_(cb_scaler *scaler, cb_optimizer *optimizer);
/* cb_optimizer_step, unscaled first if that was not done, unless a gradient was inf or NaN. */
CB_API cb_status cb_scaler_step(cb_scaler *scaler, cb_optimizer *optimizer);
/* The next step's scale: times backoff_factor behind inf or NaN, times growth_factor behind
 * growth_interval steps without, unless that is inf. */
CB_API cb_status cb_scaler_update(cb_scaler *scaler);
CB_API double cb_scaler_scale_now(cb_scaler *scaler); /* get_scale: reads it; NAN with an error */
/* As cb_optimizer_state: scale, growth_factor, backoff_factor, growth_interval, _growth_tracker; a
 * file in which one is such as cb_scaler_new refuses changes nothing. */
CB_API cb_module *cb_scaler_state(cb_scaler *scaler);
CB_API void cb_scaler_free(cb_scaler *scaler);

/* ---- checkpoints ------------------------------------------------------------------------------
 * A safetensors file of all that a run goes on from: model.*, optimizer.*, scheduler.*, data.*,
 * scaler.* and the generator of random numbers. Any but path may be NULL; data, the state of what
 * reads the data (cb_token_reader_state, or a module of your own with buffers), scaler and, with
 * them, schedule and optimizer may be left out. The file is replaced as a whole or not at all; what
 * is loaded goes on to the same numbers, bit for bit, with the arguments that are in the file,
 * whatever optimizer, schedule and scaler were made with. Loading wants what was saved, of the same
 * kinds, names and sizes, and changes nothing otherwise. */
CB_API cb_status cb_training_save(const char *path, cb_module *model, cb_optimizer *optimizer,
                                  cb_schedule *schedule, cb_module *data, cb_scaler *scaler);
CB_API cb_status cb_training_load(const char *path, cb_module *model, cb_optimizer *optimizer,
                                  cb_schedule *schedule, cb_module *data, cb_scaler *scaler);
#endif
