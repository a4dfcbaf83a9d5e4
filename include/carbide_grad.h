/* Gradients: ops on tensors that require one are remembered, and cb_backward goes back over them.
 * Included by carbide.h; include that.
 *
 *     cb_requires_grad_(w, true);
 *     cb_backward(cb_mse_loss(cb_matmul(x, w), y), NULL);
 *     cb_no_grad_open();
 *     cb_sub_(w, cb_mul(cb_tensor_grad(w), 0.1));
 *     cb_no_grad_close();
 *     cb_zero_grad(w);
 *
 * As PyTorch's autograd. What an op computed lives on, with the operands that its gradient reads,
 * until its last result is freed; so going back twice over the same tensors is no error.
 * docs/ops.md lists the ops without a gradient.
 *
 * Inside of a compiled function, cb_backward is part of the graph, and so is what is done with the
 * gradients; what it went back over may be gone back over again there, as in eager. When the
 * function has returned, a tensor of it that was gone back over has no history, unless the call ran
 * op by op. What else it leaves with a history may be gone back over from outside, or inside behind
 * a value that was asked for: its gradients are compiled, too, when that happens first, and have
 * none of their own (docs/capture.md). */
#ifndef CARBIDE_GRAD_H
#define CARBIDE_GRAD_H

/* Tensor.requires_grad_: x, of a floating point dtype, is one whose gradient is wanted (on), or no
 * more (off, which frees its gradient, and is an error for the result of an op). x comes back; NULL
 * with an error. Inside of a compiled function, one that begins or ends to has the rest of that
 * call run op by op, and is an error under fullgraph. */
CB_API cb_tensor *cb_requires_grad_(cb_tensor *x, bool on);
CB_API bool cb_requires_grad(const cb_tensor *x); /* true of what is computed from one, too */

/* Tensor.backward: adds the gradient of y to that of every tensor that requires one and y was
 * computed from. gradient: that of y itself, of its dtype and sizes; NULL: 1, and y has one
 * element. An error names an operand that was written to since, where its elements are needed
 * (within a compiled function they are there); gradients may have been added to by then. Not inside
 * of a symbolic trace. One thread at a time for the same tensors. */
CB_API cb_status cb_backward(cb_tensor *y, cb_tensor *gradient);

/* torch.autograd.grad: the gradients of y by count tensors, which may be results on the way, into
 * out; NULL where y does not depend on one. By a tensor with hooks it is what they give (PyTorch:
 * what they are given, where the walk goes on behind it to another one that is asked for). Nothing
 * is added to anything. They have no history, like a number that was typed in. */
CB_API cb_status cb_grad(cb_tensor *y, cb_tensor *gradient, cb_tensor *const *wrt, int count,
                         cb_tensor **out);

/* The same with create_graph=True: the gradients are recorded as they are computed, so that one
 * goes back over them, too: Hessians, gradient penalties. One that depends on nothing that requires
 * a gradient has no history. Eagerly it takes an op of its own for each that the gradient is made
 * of.
 *
 *     cb_grad_graph(loss, NULL, &w, 1, &g);
 *     cb_grad(cb_sum(cb_mul(g, v)), NULL, &w, 1, &Hv);              the Hessian times v */
CB_API cb_status cb_grad_graph(cb_tensor *y, cb_tensor *gradient, cb_tensor *const *wrt, int count,
                               cb_tensor **out);

/* torch.func.jvp, of what is computed already: how y changes, of its sizes, where wrt[k] moves in
 * direction[k], of that one's dtype and sizes: the product of the Jacobian with a vector (a
 * cb_grad with a gradient given is that of a vector with the Jacobian). NULL where y depends on
 * none. It takes going back twice. */
CB_API cb_status cb_jvp(cb_tensor *y, cb_tensor *const *wrt, cb_tensor *const *direction, int count,
                        cb_tensor **out);

/* Tensor.register_hook: whenever gradients have come back to x, a leaf or a result with a history,
 * the hook is called with their sum, and what it gives, of that dtype and sizes, goes on in its
 * place: to what x was computed from, or x's gradient; NULL: the gradient itself does. Hooks of x
 * are called one after the other, where nothing is remembered but by cb_grad_graph, and return:
 * they throw no exception and do not leave by longjmp. The hook's number, for cb_remove_hook; 0
 * with an error. It lives as long as what x was computed by, or the leaf.
 *
 * A graph knows no hooks: compiled, gradients go to a leaf that has some as to what ops outside
 * have computed. One that is registered inside of a compiled function on a result cuts the call
 * there, on a leaf it has the call run op by op (docs/capture.md). */
typedef cb_tensor *cb_gradient_hook(cb_tensor *gradient, void *user);
CB_API int cb_register_hook(cb_tensor *x, cb_gradient_hook *hook, void *user);
CB_API void cb_remove_hook(cb_tensor *x, int number); /* nothing where it is gone */

/* torch.utils.checkpoint (use_reentrant=False): the function on inputs, as a call of it. What its
 * ops keep for their gradients, and was made in it, is let go when it has returned; when gradients
 * come, it runs again, with the same inputs, random numbers and autocast, and what it made is freed
 * as they go through. So a network's activations cost the memory of one layer, and its forward pass
 * twice the time. Gradients and all else are as without: by parameters that it finds, gradients of
 * gradients, hooks, going back twice. Checkpoints nest; without anything that requires a gradient,
 * and between cb_no_grad_open and _close, it is a call and nothing else. In a compiled function the
 * graph computes it again for the gradients, whether they come from outside or from a cb_backward
 * in the same graph.
 *
 *     static int layer(cb_tensor *const *x, int n, cb_tensor **y, void *user);
 *     h = cb_checkpoint(layer, weights, &h, 1);
 *
 * user, and tensors that the function finds, must live until gradients come no more. It returns: it
 * throws no exception and does not leave by longjmp. When it runs again, what gradients go through
 * is the same ops in the same order, with the same numbers, on the same elements, or going back is
 * an error that names both; so is a tensor from outside that was written to since, where what they
 * are computed from is read of it. A count, cb_assign(n, cb_add(n, 1)), is none.
 * What goes into no gradient may differ, and where compiled functions run inside, whose last bits
 * may, elements are not compared. What it did besides is not done twice: writes in place to tensors
 * from before the call, running statistics (which PyTorch moves twice), gradients that it adds to
 * leaves, hooks that it registers, whose numbers it is given again. Writes through pointers,
 * effects of operations of your own and whatever compiled functions inside of it write to are.
 * Compiled functions inside of it run as graphs, or op by op where they break: ask for values
 * outside. */
CB_API cb_tensor *cb_checkpoint(cb_function_n *function, void *user, cb_tensor *const *inputs,
                                int count); /* the first result; NULL with an error, or of none */
/* All results; how many, or a negative status, also where they are more than capacity. */
CB_API int cb_checkpoint_n(cb_function_n *function, void *user, cb_tensor *const *inputs, int count,
                           cb_tensor **outputs, int capacity);

/* Tensor.grad: what cb_backward added up, which x owns, whoever returns or shares it; NULL when
 * there is none. Setting it to None: it is freed, and the next cb_backward begins anew. */
CB_API cb_tensor *cb_tensor_grad(const cb_tensor *x);
CB_API void cb_zero_grad(cb_tensor *x);

/* torch.no_grad: between open and close, in this thread, nothing is remembered, and tensors that
 * require a gradient may be written to. Scopes nest, and end with the compiled function that opened
 * them at the latest. */
CB_API void cb_no_grad_open(void);
CB_API void cb_no_grad_close(void); /* an error when none is open */
#endif
