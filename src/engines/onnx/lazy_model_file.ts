/** A model file that is opened when it is first asked. */
import { CheckpointError } from '../../core/errors.js';
import { ModelFile, type ModelFileOptions, type ModelTensor } from './model_file.js';

export class LazyModelFile {
  #opened: Promise<ModelFile> | null = null;

  /** @param check raises what is wrong with a file that was opened */
  constructor(
    private readonly file: string,
    private readonly options: ModelFileOptions,
    private readonly check: (model: ModelFile) => void = () => undefined,
  ) {}

  /** Gives these outputs. Raises CheckpointError where the file has no such output, EngineError as ModelFile, and what `check` does. */
  async run(feeds: Readonly<Record<string, ModelTensor>>, ...outputs: readonly string[]): Promise<ModelTensor[]> {
    if (this.#opened === null) {
      this.#opened = this.#open();
      // A failure is not kept: the next one who asks tries again.
      this.#opened.catch(() => (this.#opened = null));
    }
    const model = await this.#opened;
    const found = await model.run(feeds);
    return outputs.map((name) => {
      if (Object.hasOwn(found, name)) return found[name];
      throw new CheckpointError(`it gives no ${name}`, { where: this.file, next: 'Export it again.' });
    });
  }

  async dispose(): Promise<void> {
    await (await this.#opened)?.dispose();
  }

  async #open(): Promise<ModelFile> {
    const model = await ModelFile.open(this.file, this.options);
    try {
      this.check(model);
      return model;
    } catch (cause) {
      await model.dispose();
      throw cause;
    }
  }
}
