/** Ends supervised training after a number of validations in a row without an improvement. */

export interface StoppingRule {
  /** Null never stops. */
  readonly patience: number | null;
  /** By how much a held-out loss must fall below the best to count as an improvement. */
  readonly min_delta: number;
}

/** As stored in a checkpoint's trainer.json. */
export interface StoppingState {
  readonly best_held_out_loss: number | null;
  readonly flat_validations: number;
  /** The iteration of the latest validation that the two fields above include. */
  readonly validated_iteration: number;
}

/** The state before the first validation. */
export const NEVER_VALIDATED: StoppingState = { best_held_out_loss: null, flat_validations: 0, validated_iteration: 0 };

export class EarlyStopping {
  #state = NEVER_VALIDATED;

  constructor(private readonly rule: StoppingRule) {}

  get state(): StoppingState {
    return this.#state;
  }

  /** Continues from a checkpoint's state. */
  restore({ best_held_out_loss, flat_validations, validated_iteration }: StoppingState): void {
    this.#state = { best_held_out_loss, flat_validations, validated_iteration };
  }

  /** Counts a validation. Repeating one does not count it again, and the one before training does not count. */
  note(iteration: number, loss: number): void {
    const { best_held_out_loss: best, flat_validations: flat, validated_iteration: noted } = this.#state;
    if (iteration === noted) return;
    const better = best === null || loss < best - this.rule.min_delta;
    this.#state = {
      best_held_out_loss: better ? loss : best,
      flat_validations: better ? 0 : flat + 1,
      validated_iteration: iteration,
    };
  }

  /** How many validations the loss has been flat for, if that is too many; else null. */
  get exhausted(): number | null {
    const { patience } = this.rule;
    const { flat_validations: flat } = this.#state;
    return patience === null || flat < patience ? null : flat;
  }
}
