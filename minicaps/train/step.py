"""Training step: forward pass, loss, backward pass, and parameter update."""

from minicaps import optim, ranks
from minicaps.errors import Diverged
from minicaps.models.flat_gradients import FlatGradients
from minicaps.models.inputs import tensor_for
from minicaps.models.losses import ABSENT, classification_loss, spread_margin
from minicaps.models.multilabel import one_at_a_time, reconstruction_loss, right_answers
from minicaps.train import diagnosis


class Learner:
    """Model, optimizer, and running sums over the steps of an epoch.

    The running sums and the number of the first non-finite step stay on the device until they are
    displayed. Several ranks share the rows of each batch. They add up their gradients and sums in
    every step, so all of them have the same model, the same running sums, and the same reason to
    stop.

    batches: number of steps per epoch. stopped: whether any rank was asked to stop before the last
    step.
    """

    def __init__(self, model, options, device, batches):
        self.model, self.options, self.device, self.batches = model, options, device, batches
        self.optimization = own = options.optimization
        make = {"adam": optim.Adam, "sgd": optim.SGD}[own.optimizer]
        parameters = model.named_parameters()
        self.optimizer = make(parameters, own.learning_rate, weight_decay=own.weight_decay)
        self.together = FlatGradients(model.parameters(), 5) if ranks.count() > 1 else None
        self.stopped = False
        self.start_epoch()

    def start_epoch(self, loss=0.0, reconstruction=0.0, right=0):
        """Reset the running sums of an epoch, or restore the values returned by `sums`."""
        xp = self.device.xp
        self.loss_sum, self.reconstruction_sum = xp.asarray(loss), xp.asarray(reconstruction)
        self.right, self.first_bad = xp.asarray(right), xp.asarray(-1)
        self.gradient_norm = xp.asarray(0.0)  # of the last step of the epoch

    def sums(self):
        """Return the summed losses and the number of correct predictions on the host."""
        return [float(self.loss_sum), float(self.reconstruction_sum), int(self.right)]

    def step(self, epoch, batch, images, labels, parts=None, *, stop=False):
        """Perform one training step.

        epoch, batch: number of the epoch and of the batch within the epoch, starting at 0.

        images, labels, parts: arrays yielded by `minicaps.data.batches.batches`. If several ranks
        share the batch, only the labels are those of all its rows. stop: whether this rank was
        asked to stop; see `stopped`.
        """
        xp, model, share = self.device.xp, self.model, ranks.share_of(len(labels))
        images, there = tensor_for(model, images), self.device.put(labels)
        there = there if share is None else there[share.rows]
        model.reseed(self.options.run.seed, epoch, batch)
        with ranks.sharing(share):
            routed = model(images)
        margin = spread_margin(epoch + batch / self.batches)
        loss, reported = self._losses(routed.activations, there, margin)
        error = 0
        if self.options.model.reconstruction:
            error = self._reconstruction(routed.poses, images.data, there, labels, parts)
            loss, error = loss + error, error.data
        right = right_answers(model, routed.activations.data, there)
        bad = (self.first_bad < 0) & ~xp.isfinite(loss.data)
        if share is None:
            self._note(bad, images)
            model.zero_grad()
            loss.backward()
            sums = reported.data * len(labels), error * len(labels), right.sum()
        else:
            model.zero_grad()
            (loss * share.weight).backward()
            own = reported.data * share.counted, error * share.counted, right[: share.counted].sum()
            bads, stops, *sums = self.together.add_up(bad, bool(stop), *own)
            self.stopped = stops > 0
            self._note_together(bads > 0, bad, images)
        if batch == self.batches - 1:
            self.gradient_norm = optim.gradient_norm(model.parameters())
        if self.optimization.clip:
            optim.clip_gradient_norm(model.parameters(), self.optimization.clip)
        self.optimizer.learning_rate = self.learning_rate(epoch, batch)
        self.optimizer.step()
        self.loss_sum = self.loss_sum + sums[0]
        self.reconstruction_sum = self.reconstruction_sum + sums[1]
        self.right = self.right + sums[2]

    def _note(self, bad, images):
        """Note a non-finite loss; on a CPU, which need not wait to read it, diverge at once."""
        step = self.optimizer.steps + 1
        self.first_bad = self.device.xp.where(bad, step, self.first_bad)
        if self.device.kind == "cpu" and bad:
            self.diverged("loss", step, diagnosis.where(self.model, images.data))

    def _note_together(self, found, bad, images):
        """Diverge on all ranks alike if the loss is non-finite on any; the first tells where."""
        if found:
            own = diagnosis.where(self.model, images.data) if bad else None
            where = next(filter(None, ranks.gather(own)), None)
            self.diverged("loss", self.optimizer.steps + 1, where)

    def _losses(self, activations, labels, margin):
        """Return the loss to minimize and the loss to report.

        The reported spread loss always uses the final margin, and the reported margin loss the
        default weight of absent classes, so that losses can be compared.
        """
        name, absent = self.optimization.loss, self.optimization.absent_weight
        loss = classification_loss(name, self.model, activations, labels, margin, absent)
        if name != "spread" and absent == ABSENT:
            return loss, loss
        return loss, classification_loss(name, self.model, activations.detach(), labels)

    def _reconstruction(self, poses, images, labels, on_host, parts):
        """Return the reconstruction loss.

        on_host: labels on the host, required for multi-label data; those of all rows of the batch,
        since the number of classes in any of them decides how often every rank decodes.
        """
        keep = [labels]
        if labels.ndim == 2:
            rows = slice(None) if (share := ranks.share_of(len(on_host))) is None else share.rows
            keep = [self.device.put(one[rows]) for one in one_at_a_time(on_host)]
        if parts is not None:
            parts = tensor_for(self.model, parts).data
        weight = self.options.model.reconstruction
        return reconstruction_loss(self.model, poses, keep, images, parts, weight=weight)

    def learning_rate(self, epoch, batch):
        """Return the learning rate for a given batch of an epoch."""
        own, step = self.optimization, epoch * self.batches + batch + 1
        rise = min(1, step / own.warm_up) if own.warm_up else 1
        epoch += batch / self.batches
        left = optim.SCHEDULES[own.schedule](epoch, own.epochs, own.decay)
        return own.learning_rate * left * rise

    def check_finite(self):
        """Raise Diverged if any loss so far has been infinite or NaN.

        This check waits for the device.
        """
        if (step := int(self.first_bad)) >= 0:
            self.diverged("loss", step)

    def diverged(self, what, step=None, where=None):
        """Raise Diverged with a message about a non-finite value.

        step: step in which `what` became infinite or NaN, by default the last step.
        """
        step = step or self.optimizer.steps
        epoch = (step - 1) // self.batches + 1
        raise Diverged(
            f"the {what} became infinite or NaN in step {step} (epoch {epoch})"
            f"{', first ' + where if where else ''}. A step was probably too large: try a"
            f" smaller --learning-rate (it was {self.optimization.learning_rate:g}), or --clip 1"
        )
